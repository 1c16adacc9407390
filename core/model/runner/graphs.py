"""Decode steps (one new token for each sequence), recorded once for each of some sizes and then
replayed: on a GPU as CUDA graphs, which save kernel launches.

A step is padded to the next size with tokens that are written to the pool's spare slot and ignored.
All that a recorded step reads lies in one buffer, which is updated by one copy.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ....kernels.interface import Ints, Past, StaticAttention
from ...api.batch import Batch
from ..inputs import Inputs, named, to_tensor, wanted_of
from ..model import Model
from ..pool import KVPool

SIZE_STEP = 8  # from which sizes are multiples of this
MAX_LISTED = 1 << 24  # slots that one step may list at most


@dataclass(frozen=True, slots=True)
class States:
    """What a forward pass gives: hidden [rows, hidden] of the wanted tokens; logits [rows,
    vocabulary] where they are made already."""

    hidden: Tensor
    logits: Tensor | None = None


Run: TypeAlias = Callable[[], States]


# Gives a function that repeats what `run` does, on what its memory then holds; what that gives lies
# in the same memory each time. `run` is called, perhaps several times.
Recorder: TypeAlias = Callable[[Run], Run]


class CudaRecorder:
    """Records CUDA graphs, all of which share one pool of memory. Other threads
    may use the device meanwhile (NCCL has one that does)."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # one: each has a workspace of cuBLAS

    def __call__(self, run: Run) -> Run:
        """As `Recorder`."""
        current, aside = torch.cuda.current_stream(self._device), self._stream
        aside.wait_stream(current)
        with torch.cuda.stream(aside):  # compile kernels and connect the ranks, outside the graph
            run()
        current.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self._memory, aside, "thread_local"):
            made = run()

        def replay() -> States:
            graph.replay()
            return made

        return replay


def sizes_up_to(max_size: int) -> tuple[int, ...]:
    """The sizes that are recorded for steps of up to `most` sequences."""
    small = (size for size in (1, 2, 4) if size < max_size)
    return (*small, *range(SIZE_STEP, max_size, SIZE_STEP), max_size)


class Graphs:
    """Recorded steps of a model over a pool.

    most: sequences in a step at most. context_len: tokens of one. sampled_ids: the samples that ids
    may refer to, as in `Inputs.of`. The pool has a spare slot.
    """

    def __init__(
        self,
        model: Model,
        pool: KVPool,
        attention: StaticAttention,
        max_size: int,
        context_len: int,
        recorder: Recorder,
        sampled_ids: Tensor,
    ) -> None:
        assert pool.has_spare
        self._sizes = sizes_up_to(max_size)
        self._model, self._pool, self._attention = model, pool, attention
        self._record, self._sampled_ids = recorder, sampled_ids
        self._steps: dict[tuple[int, bool], _Step] = {}
        self._planners = {size: attention.static(size, False) for size in self._sizes}
        longest = max_size * context_len
        num_listed = len(model.windows) * min(longest, 2 * pool.num_slots) + max_size + 1
        num_fixed = max(self._new(size, True).num_fixed for size in self._sizes)
        num_numbers = num_fixed + min(num_listed, MAX_LISTED)
        self._memory = torch.zeros(num_numbers, dtype=torch.int32, device=model.device)

    def record_all(self) -> None:
        """Record every size now, the largest first, so that the others find its memory free."""
        keys = [
            (size, has_roots)
            for size in reversed(self._sizes)
            for has_roots in ((True, False) if size > 1 else (False,))
        ]
        shown = tqdm(keys, desc="CUDA graphs", leave=False, disable=not sys.stderr.isatty())
        for size, has_roots in shown:
            self._step(size, has_roots)

    def run(self, batch: Batch) -> States | None:
        """Run a batch by a recorded step; None, and nothing done, if none fits. The result is valid
        until the next batch."""
        count = len(batch.rows)
        if count != len(batch.ids) or not 0 < count <= self._sizes[-1]:
            return None
        size = self._sizes[bisect_left(self._sizes, count)]
        past = Past(batch.table, batch.rows, batch.starts, batch.lens)
        step_items = [self._planners[size].items(past, window) for window in self._model.windows]
        step = self._step(size, any(items.has_roots for items in step_items))
        numbers = step.numbers(batch, step_items, len(self._memory))
        if numbers is None:
            return None
        self._copy(numbers)
        return _wanted(step.replay(), batch, self._model.device)

    def _step(self, size: int, has_roots: bool) -> _Step:
        key = size, has_roots
        if key not in self._steps:
            step = self._new(size, has_roots)
            self._copy(step.blank())
            step.replay = self._record(lambda: self._compute(step))
            self._steps[key] = step
        return self._steps[key]

    def _new(self, size: int, has_roots: bool) -> _Step:
        plans = [self._attention.static(size, has_roots) for _ in self._model.windows]
        return _Step(size, plans, self._pool.num_slots)

    def _copy(self, numbers: Ints) -> None:
        on_host = torch.from_numpy(numbers)
        on_host = on_host.pin_memory() if self._memory.is_cuda else on_host
        self._memory[: len(numbers)].copy_(on_host, non_blocking=True)

    def _compute(self, step: _Step) -> States:
        ids, positions, slots, plans = step.read(self._memory)
        ids = named(ids.long(), self._sampled_ids)
        inputs = Inputs(ids, positions.long(), slots.long(), None, plans)
        hidden = self._model.hidden(inputs, self._pool, self._attention)
        return States(hidden, self._model.logits(hidden))


class _Step:
    """One size of recorded step, and where its numbers are: token ids, positions and slots, the
    numbers of each window's plan, and behind these all lists of slots, first of them the spare."""

    replay: Run

    def __init__(self, size: int, plans: list[Any], spare: int) -> None:
        self._size, self._plans, self._spare = size, plans, spare
        lens = [-(-size // 4) * 4] * 3 + [plan.num_numbers for plan in plans]
        self._starts = np.cumsum([0, *lens]).tolist()

    @property
    def num_fixed(self) -> int:
        """Numbers before the lists of slots."""
        return int(self._starts[-1])

    def blank(self) -> Ints:
        """The numbers of a step without sequences."""
        none = np.empty(0, np.int32)
        past = Past(np.empty((0, 1), np.int32), none, none, none)
        numbers = self._filled([plan.items(past, None) for plan in self._plans], [none] * 3)
        assert numbers is not None
        return numbers

    def numbers(self, batch: Batch, step_items: list[Any], max_size: int) -> Ints | None:
        """The numbers of a batch; None where they are more than `most`, or share too much."""
        numbers = self._filled(step_items, [batch.ids, batch.positions, batch.slots])
        return None if numbers is None or len(numbers) > max_size else numbers

    def _filled(self, step_items: list[Any], own: list[Any]) -> Ints | None:
        fixed = np.zeros(self.num_fixed, np.int32)
        fixed[self._starts[2] :][: self._size] = self._spare
        for array, start in zip(own, self._starts, strict=False):
            fixed[start : start + len(array)] = array
        listed, at = [np.array([self._spare], np.int32)], 1
        for plan, items, (start, end) in zip(self._plans, step_items, self._spans(), strict=True):
            slots = plan.write(items, fixed[start:end], at)
            if slots is None:
                return None
            listed.append(slots)
            at += len(slots)
        return np.concatenate((fixed, *listed))

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor, Tensor, tuple[Any, ...]]:
        """Ids, positions and slots [size], and the plans, as views of the memory."""
        ids, positions, slots = (memory[start : start + self._size] for start in self._starts[:3])
        listed = memory[self.num_fixed :]
        plans = tuple(
            plan.plan(memory[start:end], listed)
            for plan, (start, end) in zip(self._plans, self._spans(), strict=True)
        )
        return ids, positions, slots, plans

    def _spans(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts[3:], self._starts[4:], strict=False)


def _wanted(made: States, batch: Batch, device: torch.device) -> States:
    """The states of the requested tokens."""
    wanted = wanted_of(batch)
    if wanted is None:
        count = len(batch.ids)
        logits = None if made.logits is None else made.logits[:count]
        return States(made.hidden[:count], logits)
    return States(made.hidden.index_select(0, to_tensor(wanted, device)))
