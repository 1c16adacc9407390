"""One model in several processes (tensor-parallel ranks), with the interface of a single runner.

The scheduler, the radix tree and sampling are on rank 0. It sends every batch to the other ranks,
which compute their parts: partial results are summed inside the layers, and logits are gathered.
A batch that refers to samples still in flight begins with their broadcast by rank 0, in the
device's queue, so that no rank waits for them on its host. Every rank enqueues the same work in the
same order. If a rank dies or hangs, the runtime ends: the other parts are useless without it.

A rank with too little memory for a batch contributes zeros to every remaining sum, gather and
broadcast of it (`run_remaining`), so that all ranks, each of which waits for all in every
collective, stay in step; the batch is then computed again in micro-batches. This costs a healthy
step nothing: the other rank reports before it continues, and no result of the batch can exist
before it does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ....kernels.interface import table_index
from ...api.batch import Batch, Copy, Ints, NoMemory, Outcome, SamplingParams
from ...api.protocol import BackendClosed
from ..config import ModelConfig
from ..inputs import wanted_of
from ..model import Model, RankedModel
from ..parallel import GroupCollectives, Progress, Ranks
from .answers import blocks
from .messages import MediaMessages, array_of, plain_of
from .micro_batches import NUM_MICRO_BATCHES, merged, micro_batches
from .runner import DeviceBatch, ModelRunner

T = TypeVar("T")
SECONDS_TO_CONNECT = 60
COLLECTIVE_TIMEOUT = 1800  # seconds; a hang is noticed before, and a rank may be slow
_ARRAYS = ("ids", "positions", "slots", "rows", "starts", "lens", "sampled", "scored", "queried")


def join(rank: int, size: int, store_path: str, device: torch.device) -> Ranks:
    """Connect to the other ranks of this machine through a file store, and wait for all. Raises
    BackendClosed where one does not connect in time."""
    groups: Any = dist  # its stubs know little of groups that are not global
    store = groups.FileStore(store_path, size)
    if device.type == "cuda":
        # torch would end this process, our user's, where another rank is gone
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
        return _of(groups.ProcessGroupNCCL(store, rank, size))
    options = groups.ProcessGroupGloo._Options()
    options._devices = [groups.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=SECONDS_TO_CONNECT)
    try:
        group = groups.ProcessGroupGloo(store, rank, size, options)
    except RuntimeError as error:
        raise BackendClosed(f"the ranks of the model did not connect ({error})") from error
    group._set_default_timeout(timedelta(seconds=COLLECTIVE_TIMEOUT))
    return _of(group)


def _of(group: Any) -> Ranks:
    progress = Progress()
    of_group = GroupCollectives(group, progress)
    collectives = of_group.all_reduce, of_group.gather, of_group.broadcast

    def abort() -> None:
        progress.is_over = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))  # gloo's would wait here when it goes
        group.abort()

    return Ranks(group.rank(), group.size(), *collectives, abort=abort, progress=progress)


class Others(Protocol):
    """The processes of the other ranks."""

    def send(self, message: Any) -> None:
        """Send every one of them a message, without waiting."""

    def check(self) -> None:
        """Raise BackendClosed where one of them is gone."""

    def when_gone(self, action: Callable[[], object]) -> None:
        """Call the action once one of them is gone, at once and in any thread, beside earlier
        actions; from then on `check` raises."""

    def watch(self, report: Callable[[], tuple[int, int, int, bool]]) -> None:
        """From now on one that hangs counts as gone. report: `Progress.snapshot` of rank 0."""

    def is_out_of_memory(self, number: int) -> bool:
        """Whether one of them had too little memory for the batch of this number."""


class RankedRunner:
    """Rank 0's runner over all ranks. It and its methods raise BackendClosed where a rank is gone
    or out of step."""

    def __init__(self, runner: ModelRunner, ranks: Ranks, others: Others) -> None:
        self._runner = runner
        self._ranks = ranks
        self._progress = ranks.progress
        self._others = others
        self._media = MediaMessages()
        if ranks.abort is not None:
            others.when_gone(ranks.abort)
        self._progress.num_started = 1
        others.watch(self._progress.snapshot)
        self._checked(runner.record_steps)
        self._progress.num_done = 1

    def check(self) -> None:
        """Raise BackendClosed where a rank is gone."""
        self._others.check()

    def when_gone(self, action: Callable[[], object]) -> None:
        """As `Others.when_gone`."""
        self._others.when_gone(action)

    def run(self, batch: Batch) -> Outcome:
        """As `ModelRunner.run`; in micro-batches where a rank has too little memory for all of
        it."""
        with contextlib.suppress(NoMemory):
            return self._run(batch)
        again = replace(batch, copies=())  # they are made already
        size = -(-len(batch.ids) // NUM_MICRO_BATCHES)
        return merged([self._run(it) for it in micro_batches(again, size, has_params=True)])

    def launch(self, batch: Batch) -> RankedBatch:
        """As `ModelRunner.launch`. Raises NoMemory where a rank has too little memory."""
        self._others.check()
        self._others.send(self._message(batch))
        self._progress.num_started += 1
        number, num_collectives = self._progress.num_started, self._progress.num_collectives
        try:
            launched = self._checked(lambda: _launched(self._runner, batch))
            if launched is not None:
                end = self._checked(lambda: _end(self._runner, batch))
                return RankedBatch(launched, number, self._others, self._progress, end)
            num_done = self._progress.num_collectives - num_collectives
            self._checked(lambda: catch_up(self._runner, self._ranks, batch, num_done))
        except BaseException:
            self._progress.num_done += 1
            raise
        self._progress.num_done += 1
        raise NoMemory(_no_memory("rank 0"))

    def _run(self, batch: Batch) -> Outcome:
        launched = self.launch(batch)
        launched.sample(batch.sampling_params)
        return launched.result()

    def _checked(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:
            self._others.check()
            text = str(error).partition(". ")[0][-160:]
            message = f"a rank of the model is gone, or out of step ({text})"
            raise BackendClosed(message) from error

    def _message(self, batch: Batch) -> Any:
        """The batch as plain data: of the slot table only what changed since the last batch."""
        spans = np.stack([batch.rows, batch.starts, batch.starts + batch.lens], 1)
        if batch.changed is None:  # all that it reads
            spans[:, 1] = 0
        else:
            spans = np.concatenate([spans, batch.changed])
        table = [spans, batch.table[table_index(spans)]]
        arrays = [getattr(batch, name) for name in _ARRAYS]
        copies = [(plain_of(it.slots), plain_of(it.host), it.is_load) for it in batch.copies]
        plain = [plain_of(array) for array in (*table, *arrays)]
        return batch.table.shape, plain, copies, self._media.message(batch)


class RankedBatch:
    """A batch in flight on all ranks. number: of the batch, counted from the start. end: an event
    of the device that its result also waits for."""

    def __init__(
        self,
        batch: DeviceBatch,
        number: int,
        others: Others,
        progress: Progress,
        end: torch.cuda.Event | None,
    ) -> None:
        self._batch, self._number, self._end = batch, number, end
        self._others, self._progress = others, progress

    def sample(self, params: tuple[SamplingParams, ...]) -> None:
        """As `DeviceBatch.sample`."""
        self._batch.sample(params)

    def result(self) -> Outcome:
        """As `DeviceBatch.result`. Raises BackendClosed where a rank is gone, NoMemory where one
        had too little memory, so that its part is missing."""
        self._progress.is_waiting = True  # for the device
        try:
            if self._end is not None:
                self._end.synchronize()
            return self._batch.result()
        finally:
            self._progress.is_waiting = False
            self._progress.num_done += 1
            self._others.check()
            if self._others.is_out_of_memory(self._number):
                raise NoMemory(_no_memory("another rank"))


def follow(
    messages: Iterable[Any],
    runner: ModelRunner,
    ranks: Ranks,
    report_out_of_memory: Callable[[int], None],
) -> None:
    """Compute this rank's part of every batch of rank 0, until there are no more messages.

    report_out_of_memory: notifies rank 0 that this rank has too little memory for the batch of a
    number; returns when rank 0 has acknowledged it.
    """
    progress = ranks.progress
    progress.num_started = 1
    runner.record_steps()
    progress.num_done = 1
    table: Ints | None = None
    media = MediaMessages()
    for shape, plain, plain_copies, plain_media in messages:
        if table is None:
            table = np.zeros(shape, np.int32)
        plain_spans, slots, *arrays = (array_of(item) for item in plain)
        spans = plain_spans.reshape(-1, 3)
        table[table_index(spans)] = slots
        fields: dict[str, Any] = dict(zip(_ARRAYS, arrays, strict=True))
        copies = tuple(
            Copy(array_of(slots), array_of(host), is_load) for slots, host, is_load in plain_copies
        )
        fields |= media.fields(plain_media)
        batch = Batch(**fields, table=table, sampling_params=(), copies=copies, changed=spans)
        progress.num_started += 1
        num_collectives = progress.num_collectives
        if not _has_followed(runner, batch):
            report_out_of_memory(progress.num_started)
            catch_up(runner, ranks, batch, progress.num_collectives - num_collectives)
        progress.num_done += 1


def _launched(runner: ModelRunner, batch: Batch) -> DeviceBatch | None:
    """Launch a batch; None where memory is too small, and then its intermediate results are free
    again."""
    with contextlib.suppress(torch.OutOfMemoryError):
        return runner.launch(batch)
    return None


def _end(runner: ModelRunner, batch: Batch) -> torch.cuda.Event | None:
    """An event at the end of a launched batch without samples, scores and queries, for which
    nothing else waits for the device: another rank may run out of memory."""
    if len(batch.sampled) + len(batch.scored) + len(batch.queried):
        return None
    device = runner.model.device
    if device.type != "cuda":
        return None
    event: torch.cuda.Event = torch.cuda.current_stream(device).record_event()
    return event


def _has_followed(runner: ModelRunner, batch: Batch) -> bool:
    """Compute this rank's part; False where memory is too small, as `_launched`."""
    with contextlib.suppress(torch.OutOfMemoryError):
        runner.follow(batch)
        return True
    return False


def catch_up(runner: ModelRunner, ranks: Ranks, batch: Batch, num_done: int) -> None:
    """Run the remaining collectives of a step that ran out of memory after the first `num_done`.
    Raises RuntimeError where the step may be a recorded graph: how far that got is unknown."""
    model = runner.model
    if model.device.type == "cuda":
        if runner.fits_graphs(batch):
            raise RuntimeError("no memory beside a recorded step")
        torch.cuda.empty_cache()
    with torch.inference_mode():
        run_remaining(model, ranks, batch, num_done)


def run_remaining(model: Model, ranks: Ranks, batch: Batch, num_done: int) -> None:
    """Take part, with zeros, in the collectives of a step after the first `num_done`. The step must
    be computed, not replayed from a graph. Raises RuntimeError where a rank is gone."""
    for collective in islice(_collectives(model, ranks, batch), num_done, None):
        collective()


def _collectives(model: Model, ranks: Ranks, batch: Batch) -> Iterator[Callable[[], object]]:
    """All collectives of a batch, in order: the broadcast of sampled tokens, the sums of the
    embeddings and of both halves of every layer, and the gathers of logits."""
    sizes = model.config
    assert isinstance(sizes, ModelConfig), "others' code runs on one rank"
    assert isinstance(model, RankedModel)

    def zeros(*shape: int, dtype: torch.dtype = model.dtype) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=model.device)

    def add(count: int) -> None:
        ranks.sum(zeros(count, sizes.hidden_size))

    def gather(count: int) -> None:
        ranks.gathered(zeros(count, ranks.block_len(sizes.vocabulary_size)))

    num_references = -int(batch.ids.min(initial=0))
    if num_references:
        yield lambda: ranks.broadcast_from_first(zeros(num_references, dtype=torch.int64))
    wanted, num_tokens = wanted_of(batch), len(batch.ids)
    num_wanted = num_tokens if wanted is None else len(wanted)
    for count in model.sum_rows(num_tokens, num_wanted):
        if count:
            yield partial(add, count)
    for block in blocks(*(torch.empty(len(it), 0) for it in (batch.scored, batch.queried))):
        yield partial(gather, len(block))
    if len(batch.sampled):
        yield partial(gather, len(batch.sampled))


def _no_memory(rank: str) -> str:
    return f"the memory of {rank} of the model is too small for a batch"
