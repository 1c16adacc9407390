"""One model held by several processes, each a rank, with the face of a single runner.

The scheduler, the tree and the drawing of tokens are with rank 0. It shows every batch to the other
ranks, which compute along: their parts are added up inside the layers, and put together to logits.
A batch that names tokens which are still being drawn begins with their broadcast by rank 0, within
the device's queue, so that no rank waits for them on its host. Every rank enqueues the same work in
the same order. A rank that is gone ends the runtime: what the others hold is of no use without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from ..protocol import BackendClosed
from .batch import Batch, Copy, Draw, Ints, Outcome
from .flight import DeviceFlight
from .parallel import GroupBroadcast, GroupGather, GroupSum, Ranks
from .runner import ModelRunner

T = TypeVar("T")
SECONDS = 60
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
    options._timeout = timedelta(seconds=SECONDS)
    return _of(groups.ProcessGroupGloo(store, rank, size, options))


def _of(group: Any) -> Ranks:
    ways = GroupSum(group), GroupGather(group), GroupBroadcast(group)
    return Ranks(group.rank(), group.size(), *ways, abort=group.abort)


class Others(Protocol):
    """The processes of the other ranks."""

    def show(self, message: Any) -> None:
        """Give every one of them a message, without waiting."""

    def check(self) -> None:
        """Raise BackendClosed where one of them is gone."""

    def when_gone(self, action: Callable[[], None]) -> None:
        """Do this once one of them is gone, at once and in any thread; `check` knows it then."""


class RankedRunner:
    """Rank 0's runner over all of them. Raises BackendClosed where a rank is gone, or is not in
    step, as do its methods."""

    def __init__(self, runner: ModelRunner, ranks: Ranks, others: Others) -> None:
        self._runner = runner
        self._others = others
        self._table: Ints | None = None
        if ranks.abort is not None:
            others.when_gone(ranks.abort)
        self._together(runner.record_steps)

    def run(self, batch: Batch) -> Outcome:
        """As `ModelRunner.run`."""
        flight = self.launch(batch)
        flight.draw(batch.draws)
        return flight.outcome()

    def launch(self, batch: Batch) -> RankedFlight:
        """As `ModelRunner.launch`."""
        self._others.check()
        self._others.show(self._message(batch))
        flight = self._together(lambda: self._runner.launch(batch))
        return RankedFlight(flight, self._others.check)

    def _together(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:
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
    """A batch that all ranks were launched with."""

    def __init__(self, flight: DeviceFlight, check: Callable[[], None]) -> None:
        self._flight = flight
        self._check = check

    def draw(self, draws: tuple[Draw, ...]) -> None:
        """As `DeviceFlight.draw`."""
        self._flight.draw(draws)

    def outcome(self) -> Outcome:
        """As `DeviceFlight.outcome`. Raises BackendClosed where a rank is gone: its part may be
        missing."""
        try:
            return self._flight.outcome()
        finally:
            self._check()


def follow(messages: Iterable[Any], runner: ModelRunner) -> None:
    """Compute along with rank 0 until it says no more."""
    runner.record_steps()
    table: Ints | None = None
    for shape, plain, told in messages:
        if table is None:
            table = np.zeros(shape, np.int32)
        rows, columns, slots, *arrays = (_array(item) for item in plain)
        table[rows, columns] = slots
        fields: dict[str, Any] = dict(zip(_ARRAYS, arrays, strict=True))
        copies = tuple(Copy(_array(slots), _array(host), is_load) for slots, host, is_load in told)
        runner.follow(Batch(**fields, table=table, draws=(), copies=copies))


def _short(error: Exception) -> str:
    return str(error).partition(". ")[0][-160:]


def _plain(array: np.ndarray[Any, Any]) -> tuple[str, bytes]:
    return array.dtype.str, np.ascontiguousarray(array).tobytes()


def _array(plain: tuple[str, bytes]) -> np.ndarray[Any, Any]:
    kind, data = plain
    return np.frombuffer(bytearray(data), kind)
