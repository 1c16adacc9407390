"""Steps of few tokens, recorded once for each of some shapes and then replayed: on a GPU as CUDA
graphs, which save kernel launches.

A step is padded to the next size with tokens that are written to the pool's spare slot and ignored.
All that a recorded step reads lies in one buffer, which is updated by one copy, and in the slot
table; what all steps give lies in another, so that each keeps no memory of its own.
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

from ....kernels.interface import Ints, Past, StaticAttention, StepShape
from ...api.batch import Batch
from ..inputs import Inputs, named, past_of, to_tensor, wanted_of
from ..model import Model
from ..pool import KVPool
from ..step_sizes import EXTEND_SIZES, sizes_up_to


@dataclass(frozen=True, slots=True)
class States:
    """What a forward pass gives: hidden [rows, hidden] of the wanted tokens; logits [rows,
    vocabulary] where they are made already."""

    hidden: Tensor
    logits: Tensor | None = None


Run: TypeAlias = Callable[[], None]


# Gives a function that repeats what `run` does, on what its memory then holds. `run` is called,
# perhaps several times.
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
            run()
        replay: Run = graph.replay
        return replay


class Graphs:
    """Recorded steps of a model over a pool, which has a spare slot.

    max_size: sequences in a decode step at most. context_len: tokens of one. sampled_ids: the
    samples that ids may refer to, as in `Inputs.of`. extend_sizes: the sizes in tokens that are
    recorded for steps in which sequences have several new tokens.
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
        extend_sizes: tuple[int, ...] = EXTEND_SIZES,
    ) -> None:
        assert pool.has_spare
        self._sizes, self._extend_sizes = sizes_up_to(max_size), extend_sizes
        self._model, self._pool, self._attention = model, pool, attention
        self._record, self._sampled_ids = recorder, sampled_ids
        attention.reserve(max_size, context_len)
        self._steps = dict(self._all_steps())
        most = max((step.num_numbers for step in self._steps.values()), default=0)
        self._numbers = torch.zeros(most, dtype=torch.int32, device=model.device)
        self._hidden: Tensor | None = None  # what all steps give, by token
        self._logits: Tensor | None = None

    def record_all(self) -> None:
        """Record every shape now, the largest first, so that the others find its memory free."""
        steps = sorted(self._steps.values(), key=lambda step: -step.shape.num_tokens)
        for step in tqdm(steps, "CUDA graphs", leave=False, disable=not sys.stderr.isatty()):
            self._record_step(step)

    def fits(self, batch: Batch) -> bool:
        """Whether a batch of so many tokens may be run as a recorded step."""
        return self._step_for(batch) is not None

    def run(self, batch: Batch) -> States | None:
        """Run a batch by a recorded step; None, and nothing done, if none fits. The result is valid
        until the next batch."""
        step, past = self._step_for(batch), past_of(batch)
        items = None if step is None else step.items(past)
        if step is None or items is None:
            return None
        plain = self._steps.get(step.shape._replace(has_roots=False))
        if plain is not None and not any(it.has_roots for it in items):
            step = plain
        if self._attention.update(past):
            self._steps = dict(self._all_steps())
            step = self._steps[step.shape]
        if step.replay is None:
            self._record_step(step)
        self._copy(step.numbers(batch, items))
        assert step.replay is not None
        step.replay()
        return self._states(batch, step.shape.has_extends)

    def _all_steps(self) -> Iterator[tuple[StepShape, _Step]]:
        """Those that attention can record."""
        shapes = [StepShape(size, has_roots) for size in self._sizes for has_roots in (False, True)]
        shapes += [StepShape(size, True, True) for size in self._extend_sizes]
        for shape in shapes:
            plans = [self._attention.static(shape, window) for window in self._model.windows]
            if None not in plans and shape != StepShape(1, True):  # one token shares no prefix
                yield shape, _Step(shape, plans, self._pool.num_slots)

    def _step_for(self, batch: Batch) -> _Step | None:
        """The smallest with room for the tokens of a batch, and for roots where there is one."""
        count = len(batch.ids)
        has_extends = count != len(batch.rows)
        sizes = self._extend_sizes if has_extends else self._sizes
        at = bisect_left(sizes, count)
        if not count or at == len(sizes):
            return None
        shape = StepShape(sizes[at], True, has_extends)
        return self._steps.get(shape) or self._steps.get(shape._replace(has_roots=False))

    def _record_step(self, step: _Step) -> None:
        self._copy(step.blank())
        step.replay = self._record(lambda: self._compute(step))

    def _copy(self, numbers: Ints) -> None:
        on_host = torch.from_numpy(numbers)
        on_host = on_host.pin_memory() if self._numbers.is_cuda else on_host
        self._numbers[: len(numbers)].copy_(on_host, non_blocking=True)

    def _compute(self, step: _Step) -> None:
        ids, positions, slots, plans = step.read(self._numbers)
        ids = named(ids.long(), self._sampled_ids)
        inputs = Inputs(ids, positions.long(), slots.long(), None, plans)
        hidden = self._model.hidden(inputs, self._pool, self._attention)
        if self._hidden is None:
            most = max(shape.num_tokens for shape in self._steps)
            self._hidden = hidden.new_zeros(most, hidden.shape[1])
        self._hidden[: len(hidden)] = hidden
        if step.shape.has_extends:
            return
        if self._logits is None:
            width = self._model.logits(hidden).shape[1]
            self._logits = torch.zeros(self._sizes[-1], width, device=hidden.device)
        self._model.logits(hidden, out=self._logits[: len(hidden)])

    def _states(self, batch: Batch, has_extends: bool) -> States:
        """The states of the wanted tokens."""
        assert self._hidden is not None
        wanted, hidden = wanted_of(batch), self._hidden[: len(batch.ids)]
        if wanted is not None:
            return States(hidden.index_select(0, to_tensor(wanted, self._model.device)))
        logits = None if self._logits is None or has_extends else self._logits[: len(batch.ids)]
        return States(hidden, logits)


class _Step:
    """One shape of recorded step, and where its numbers are: token ids, positions and slots, and
    the numbers of each window's plan. replay: None: it is not recorded yet."""

    def __init__(self, shape: StepShape, plans: list[Any], spare: int) -> None:
        self.shape = shape
        self.replay: Run | None = None
        self._plans, self._spare = plans, spare
        lens = [-(-shape.num_tokens // 4) * 4] * 3 + [plan.num_numbers for plan in plans]
        self._starts = np.cumsum([0, *lens]).tolist()

    @property
    def num_numbers(self) -> int:
        """How many there are."""
        return int(self._starts[-1])

    def items(self, past: Past) -> list[Any] | None:
        """The work items of each window; None where there is no room for them."""
        found = [plan.items(past) for plan in self._plans]
        return None if any(items is None for items in found) else found

    def blank(self) -> Ints:
        """The numbers of a step without sequences."""
        none = np.empty(0, np.int32)
        items = self.items(Past(np.empty((0, 1), np.int32), none, none, none))
        assert items is not None
        return self._filled(items, [none] * 3)

    def numbers(self, batch: Batch, items: list[Any]) -> Ints:
        """The numbers of a batch."""
        return self._filled(items, [batch.ids, batch.positions, batch.slots])

    def _filled(self, step_items: list[Any], own: list[Any]) -> Ints:
        numbers = np.zeros(self.num_numbers, np.int32)
        numbers[self._starts[2] :][: self.shape.num_tokens] = self._spare
        for array, start in zip(own, self._starts, strict=False):
            numbers[start : start + len(array)] = array
        for plan, items, (start, end) in zip(self._plans, step_items, self._spans(), strict=True):
            plan.write(items, numbers[start:end])
        return numbers

    def read(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor, tuple[Any, ...]]:
        """Ids, positions and slots [tokens], and the plans, as views of the numbers."""
        ids, positions, slots = (
            numbers[start : start + self.shape.num_tokens] for start in self._starts[:3]
        )
        plans = tuple(
            plan.plan(numbers[start:end])
            for plan, (start, end) in zip(self._plans, self._spans(), strict=True)
        )
        return ids, positions, slots, plans

    def _spans(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts[3:], self._starts[4:], strict=False)
