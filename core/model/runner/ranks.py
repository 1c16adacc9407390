"""One model held by several processes, each a rank, with the face of a single runner.

The scheduler, the tree and the drawing of tokens are with rank 0. It shows every batch to the other
ranks, which compute along: their parts are added up inside the layers, and put together to logits.
A batch that names tokens which are still being drawn begins with their broadcast by rank 0, within
the device's queue, so that no rank waits for them on its host. Every rank enqueues the same work in
the same order. A rank that is gone, or hangs, ends the runtime: what the others hold is of no use
without it.

A rank whose memory does not do for a batch goes through the rest of it with zeros (`hollow`), so
that all stay in step; the batch is then computed again in pieces. No healthy step asks for that:
another rank says so before it goes on, and without its going on no result of the batch can be
there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from ...api.batch import Batch, Copy, Draw, Ints, NoMemory, Outcome
from ...api.protocol import BackendClosed
from ..parallel import GroupBroadcast, GroupGather, GroupSum, Progress, Ranks
from . import hollow
from .flight import DeviceFlight
from .pieces import joined, pieces
from .runner import ModelRunner

T = TypeVar("T")
SECONDS_TO_MEET = 60
SECONDS_TO_ADD = 1800  # whoever hangs is noticed before; a rank may be slow
_PIECES = 4  # of a batch for which memory did not do
_ARRAYS = ("ids", "positions", "slots", "rows", "starts", "lens", "sampled", "scored", "queried")


def join(rank: int, size: int, meeting_place: str, device: torch.device) -> Ranks:
    """Meet the other ranks of this machine through a file, and wait until all are there. Raises
    RuntimeError where they do not come."""
    groups: Any = dist  # its stubs know little of groups that are not global
    store = groups.FileStore(meeting_place, size)
    if device.type == "cuda":
        # torch would end this process, our user's, where another rank is gone
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        return _of(groups.ProcessGroupNCCL(store, rank, size))
    options = groups.ProcessGroupGloo._Options()
    options._devices = [groups.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=SECONDS_TO_MEET)
    group = groups.ProcessGroupGloo(store, rank, size, options)
    group._set_default_timeout(timedelta(seconds=SECONDS_TO_ADD))
    return _of(group)


def _of(group: Any) -> Ranks:
    progress = Progress()
    ways = (
        GroupSum(group, progress),
        GroupGather(group, progress),
        GroupBroadcast(group, progress),
    )

    def abort() -> None:
        progress.is_over = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))  # gloo's would wait here when it goes
        group.abort()

    return Ranks(group.rank(), group.size(), *ways, abort=abort, progress=progress)


class Others(Protocol):
    """The processes of the other ranks."""

    def show(self, message: Any) -> None:
        """Give every one of them a message, without waiting."""

    def check(self) -> None:
        """Raise BackendClosed where one of them is gone."""

    def when_gone(self, action: Callable[[], None]) -> None:
        """Do this once one of them is gone, at once and in any thread; `check` knows it then."""

    def watch(self, told: Callable[[], tuple[int, int, int, bool]]) -> None:
        """From now on one that hangs is gone, too. told: `Progress.told` of rank 0."""

    def is_short(self, number: int) -> bool:
        """Whether the memory of one of them did not do for the batch of this number."""


class RankedRunner:
    """Rank 0's runner over all of them. Raises BackendClosed where a rank is gone, or is not in
    step, as do its methods."""

    def __init__(self, runner: ModelRunner, ranks: Ranks, others: Others) -> None:
        self._runner = runner
        self._ranks = ranks
        self._progress = ranks.progress
        self._others = others
        self._table: Ints | None = None
        if ranks.abort is not None:
            others.when_gone(ranks.abort)
        self._progress.num_begun = 1
        others.watch(self._progress.told)
        self._together(runner.record_steps)
        self._progress.num_done = 1

    def run(self, batch: Batch) -> Outcome:
        """As `ModelRunner.run`: in pieces, where a rank's memory does not do for all of it."""
        with contextlib.suppress(NoMemory):
            return self._run(batch)
        again = replace(batch, copies=())  # they are made
        size = -(-len(batch.ids) // _PIECES)
        return joined([self._run(piece) for piece in pieces(again, size, has_draws=True)])

    def launch(self, batch: Batch) -> RankedFlight:
        """As `ModelRunner.launch`. Raises NoMemory where a rank's does not do."""
        self._others.check()
        self._others.show(self._message(batch))
        self._progress.num_begun += 1
        number, num_met = self._progress.num_begun, self._progress.num_met
        try:
            flight = self._together(lambda: _begun(self._runner, batch))
            if flight is not None:
                return RankedFlight(flight, number, self._others, self._progress)
            met = self._progress.num_met - num_met
            self._together(lambda: catch_up(self._runner, self._ranks, batch, met))
        except BaseException:
            self._progress.num_done += 1
            raise
        self._progress.num_done += 1
        raise NoMemory(_no_memory("rank 0"))

    def _run(self, batch: Batch) -> Outcome:
        flight = self.launch(batch)
        flight.draw(batch.draws)
        return flight.outcome()

    def _together(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:
            self._others.check()
            text = f"a rank of the model is gone, or out of step ({_short(error)})"
            raise BackendClosed(text) from error

    def _message(self, batch: Batch) -> Any:
        """The batch as plain data: of the slot table only what changed since it was last shown."""
        if self._table is None:
            self._table = np.full_like(batch.table, -1)
        rows, columns, slots = [], [], []
        for row, end in zip(batch.rows.tolist(), (batch.starts + batch.lens).tolist(), strict=True):
            new, known = batch.table[row, :end], self._table[row, :end]
            changed = np.flatnonzero(new != known)
            known[changed] = new[changed]
            rows.append(np.full(len(changed), row, np.int32))
            columns.append(changed.astype(np.int32))
            slots.append(new[changed])
        table = [np.concatenate(part) for part in (rows, columns, slots)]
        arrays = [getattr(batch, name) for name in _ARRAYS]
        copies = [(_plain(it.slots), _plain(it.host), it.is_load) for it in batch.copies]
        return batch.table.shape, [_plain(array) for array in (*table, *arrays)], copies


class RankedFlight:
    """A batch that all ranks were launched with. number: how many were before it."""

    def __init__(
        self, flight: DeviceFlight, number: int, others: Others, progress: Progress
    ) -> None:
        self._flight = flight
        self._number = number
        self._others = others
        self._progress = progress

    def draw(self, draws: tuple[Draw, ...]) -> None:
        """As `DeviceFlight.draw`."""
        self._flight.draw(draws)

    def outcome(self) -> Outcome:
        """As `DeviceFlight.outcome`. Raises BackendClosed where a rank is gone, NoMemory where its
        memory did not do: its part is missing."""
        self._progress.is_waiting = True  # for the device
        try:
            return self._flight.outcome()
        finally:
            self._progress.is_waiting = False
            self._progress.num_done += 1
            self._others.check()
            if self._others.is_short(self._number):
                raise NoMemory(_no_memory("another rank"))


def follow(
    messages: Iterable[Any], runner: ModelRunner, ranks: Ranks, say_short: Callable[[int], None]
) -> None:
    """Compute along with rank 0 until it says no more.

    say_short: tells rank 0 that memory does not do for the batch of this number; returns when rank
    0 knows it.
    """
    progress = ranks.progress
    progress.num_begun = 1
    runner.record_steps()
    progress.num_done = 1
    table: Ints | None = None
    for shape, plain, told in messages:
        if table is None:
            table = np.zeros(shape, np.int32)
        rows, columns, slots, *arrays = (_array(item) for item in plain)
        table[rows, columns] = slots
        fields: dict[str, Any] = dict(zip(_ARRAYS, arrays, strict=True))
        copies = tuple(Copy(_array(slots), _array(host), is_load) for slots, host, is_load in told)
        batch = Batch(**fields, table=table, draws=(), copies=copies)
        progress.num_begun += 1
        num_met = progress.num_met
        if not _has_followed(runner, batch):
            say_short(progress.num_begun)
            catch_up(runner, ranks, batch, progress.num_met - num_met)
        progress.num_done += 1


def _begun(runner: ModelRunner, batch: Batch) -> DeviceFlight | None:
    """Its flight; None where memory does not do. What was computed until then is free again when
    this returns. Where nothing is asked of a batch, its flight all the same waits for the device:
    another rank's memory may yet not do."""
    try:
        flight = runner.launch(batch)
    except torch.OutOfMemoryError:
        return None
    if len(batch.sampled) + len(batch.scored) + len(batch.queried):
        return flight
    device = runner.model.device
    if device.type != "cuda":
        return flight
    return _Awaited(flight, torch.cuda.current_stream(device).record_event())


def _has_followed(runner: ModelRunner, batch: Batch) -> bool:
    """Compute along; False where memory does not do, as `_begun`."""
    try:
        runner.follow(batch)
    except torch.OutOfMemoryError:
        return False
    return True


def catch_up(runner: ModelRunner, ranks: Ranks, batch: Batch, num_met: int) -> None:
    """Go through the rest of a step for which memory did not do, after so many sums and the like.
    Raises RuntimeError where it may have been a recorded one: nobody knows how far that got."""
    model = runner.model
    if model.device.type == "cuda":
        if len(batch.ids) == len(batch.rows):
            raise RuntimeError("no memory beside a recorded step")
        torch.cuda.empty_cache()
    with torch.inference_mode():
        hollow.finish(model, ranks, batch, num_met)


class _Awaited(DeviceFlight):
    """A flight that has landed only when the device has got so far."""

    def __init__(self, flight: DeviceFlight, event: torch.cuda.Event) -> None:
        def begin(draws: tuple[Draw, ...]) -> Callable[[], Outcome]:
            flight.draw(draws)
            return outcome

        def outcome() -> Outcome:
            event.synchronize()
            return flight.outcome()

        super().__init__(begin)


def _no_memory(rank: str) -> str:
    return f"the memory of {rank} of the model does not do for a batch"


def _short(error: Exception) -> str:
    return str(error).partition(". ")[0][-160:]


def _plain(array: np.ndarray[Any, Any]) -> tuple[str, bytes]:
    return array.dtype.str, np.ascontiguousarray(array).tobytes()


def _array(plain: tuple[str, bytes]) -> np.ndarray[Any, Any]:
    kind, data = plain
    return np.frombuffer(bytearray(data), kind)
