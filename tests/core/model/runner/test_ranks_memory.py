"""Ranks whose memory is too small for a batch: all stay in step, and no other batch is harmed."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from forkroot.core.api.batch import Batch, NoMemory, Outcome, Query, SamplingParams
from forkroot.core.api.protocol import BackendClosed
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.micro_batches import merged, micro_batches
from forkroot.core.model.runner.ranks import RankedRunner, follow, run_remaining
from forkroot.core.model.runner.runner import ModelRunner

from ..arch.test_shares import KINDS, Meeting, load
from ..conftest import NUM_SLOTS, MakeCheckpoint, Placement

SIZE = 2


class Noted:
    """Ranks that are threads here. met: the shapes of all that they did together, for each."""

    def __init__(self) -> None:
        self.meeting = Meeting(SIZE)
        self.met: list[list[Any]] = [[] for _ in range(SIZE)]
        self.gate: list[Callable[[], None]] = [lambda: None] * SIZE  # before a rank takes part

    def ranks(self, rank: int) -> Ranks:
        def meet(kind: str, part: Tensor) -> list[Tensor]:
            self.gate[rank]()
            self.met[rank].append((kind, tuple(part.shape), part.dtype))
            found.progress.num_collectives += 1
            return self.meeting.all(rank, part)

        def add(partial: Tensor) -> Tensor:
            return partial.copy_(sum(meet("sum", partial)))

        def gather(part: Tensor) -> list[Tensor]:
            parts = meet("gather", part)
            return [] if rank else parts

        def spread(tensor: Tensor) -> None:
            tensor.copy_(meet("spread", tensor)[0])

        found = Ranks(rank, SIZE, add, gather, spread)
        return found


class Scarce:
    """Lets memory run out for one rank, once it has met the others so many times in a step, in as
    many steps as are given."""

    def __init__(self, noted: Noted, rank: int) -> None:
        self._noted, self._rank = noted, rank
        self._is_dummy = False
        noted.gate[rank] = self._check
        self.in_steps: list[int] = []
        self._begun = 0

    def begin(self) -> None:
        """A step begins."""
        self._begun = len(self._noted.met[self._rank])

    def _check(self) -> None:
        if not self.in_steps:
            return
        if len(self._noted.met[self._rank]) - self._begun == self.in_steps[0]:
            self.in_steps.pop(0)
            self._begun = -1000
            raise torch.OutOfMemoryError("no memory")


class Short(ModelRunner):
    """A runner that says when a step begins."""

    scarce: Scarce | None = None

    def launch(self, batch: Batch) -> Any:
        if self.scarce is not None:
            self.scarce.begin()
        return super().launch(batch)

    def follow(self, batch: Batch) -> None:
        if self.scarce is not None:
            self.scarce.begin()
        super().follow(batch)


class Others:
    """The other rank, a thread here."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.short: set[int] = set()

    def send(self, message: Any) -> None:
        self.orders.put(message)

    def check(self) -> None:
        """It lives."""

    def when_gone(self, action: Callable[[], None]) -> None:
        """It lives."""

    def watch(self, report: Callable[[], Any]) -> None:
        """It does not hang."""

    def is_out_of_memory(self, number: int) -> bool:
        return number in self.short


def on_two(
    folder: Any, use: Callable[[RankedRunner], Any], scarce_rank: int, in_steps: list[int]
) -> tuple[Any, Noted, Others]:
    """What rank 0 gives, when memory runs out for one rank in some steps: after so many meetings in
    the first of them, and so on."""
    noted, others = Noted(), Others()

    def runner(rank: int) -> tuple[Short, Ranks]:
        ranks = noted.ranks(rank)
        found = Short(load(folder, ranks), NUM_SLOTS, ranks)
        if rank == scarce_rank:
            found.scarce = Scarce(noted, rank)
            found.scarce.in_steps = list(in_steps)
        return found, ranks

    def second() -> None:
        follow(iter(others.orders.get, "end"), *runner(1), others.short.add)

    with ThreadPoolExecutor(SIZE) as pool:
        following = pool.submit(second)
        try:
            given = use(RankedRunner(*runner(0), others))
        finally:
            others.orders.put("end")
        following.result(60)
    return given, noted, others


def batches(placement: Placement) -> tuple[Batch, Batch]:
    random = np.random.default_rng(5)
    first, second, third = (
        placement.add(random.integers(3, 97, count).tolist()) for count in (30, 5, 40)
    )
    whole = placement.batch({first: 30, second: 4, third: 40})
    sampling_params = (
        SamplingParams(),
        SamplingParams(temperature=0.9, seed=5, logprobs=3),
        SamplingParams(logprobs=0, log_mass=True),
    )
    whole = replace(
        whole,
        sampling_params=sampling_params,
        scored=np.arange(20, dtype=np.int32),
        targets=random.integers(0, 97, 20),
        num_top_logprobs=2,
        queried=np.arange(34, 40, dtype=np.int32),
        queries=(Query(np.array([0, 63]), (np.arange(60, 70, dtype=np.int32),)),) * 6,
    )
    return whole, placement.batch({second: 1})


def assert_same(found: Outcome, wanted: Outcome) -> None:
    assert found.tokens.tolist() == wanted.tokens.tolist()
    for name in ("logprobs", "scores", "log_masses"):
        mine, other = getattr(found, name), getattr(wanted, name)
        assert np.allclose(mine, other, atol=1e-4, equal_nan=True)
    assert [[t for t, _ in top] for top in found.tops] == [[t for t, _ in t2] for t2 in wanted.tops]
    assert [[t for t, _ in top] for top in found.score_tops] == [
        [t for t, _ in top] for top in wanted.score_tops
    ]
    for mine, other in zip(found.answers, wanted.answers, strict=True):
        assert np.allclose(mine.logprobs, other.logprobs, atol=1e-4)
        assert np.allclose(mine.log_masses, other.log_masses, atol=1e-4)


@pytest.mark.parametrize("name", ["llama with biases", "llama, tied", "mixtral"])
def test_what_is_left_of_a_step_is_what_a_step_does(
    make_checkpoint: MakeCheckpoint, name: str
) -> None:
    folder, _ = make_checkpoint(**KINDS[name])
    placement = Placement()
    first, second = placement.add(list(range(3, 60))), placement.add([5, 6])
    without_samples = placement.batch({first: 20})
    without_samples = replace(
        without_samples, sampled=without_samples.sampled[:0], sampling_params=()
    )
    whole, sampled = batches(placement)
    named = replace(sampled, ids=np.array([-1]))
    batches_run = [without_samples, whole, named, placement.batch({first: 37, second: 2})]

    def run(is_dummy: bool) -> list[list[Any]]:
        noted = Noted()

        def each(rank: int) -> None:
            ranks = noted.ranks(rank)
            model = load(folder, ranks)
            runner = ModelRunner(model, NUM_SLOTS, ranks)
            for batch in batches_run:
                if is_dummy:
                    run_remaining(model, ranks, batch, 0)
                elif rank:
                    runner.follow(replace(batch, sampling_params=(), queries=()))
                else:
                    runner.run(batch)

        with ThreadPoolExecutor(SIZE) as pool:
            list(pool.map(each, range(SIZE)))
        return noted.met

    found, wanted = run(is_dummy=True), run(is_dummy=False)
    assert found == wanted
    assert {kind for kind, *_ in wanted[1]} == {"sum", "gather", "spread"}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("num_collectives", [0, 1, 4, 5])
def test_a_batch_for_which_a_rank_has_no_memory_is_computed_in_micro_batches(
    make_checkpoint: MakeCheckpoint, rank: int, num_collectives: int
) -> None:
    folder, _ = make_checkpoint()
    whole, after = batches(Placement())
    alone = ModelRunner(load(folder, Ranks()), NUM_SLOTS)
    wanted = [alone.run(whole), alone.run(after)]
    found, noted, others = on_two(
        folder, lambda two: [two.run(whole), two.run(after)], rank, [num_collectives]
    )
    for mine, other in zip(found, wanted, strict=True):
        assert_same(mine, other)
    assert others.short == ({2} if rank else set())
    assert noted.met[0] == noted.met[1]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_launch_for_which_a_rank_has_no_memory_fails_and_the_next_batch_does_not(
    make_checkpoint: MakeCheckpoint, rank: int
) -> None:
    folder, _ = make_checkpoint()
    whole, after = batches(Placement())
    alone = ModelRunner(load(folder, Ranks()), NUM_SLOTS)
    wanted = [alone.run(whole), alone.run(after)]

    def use(two: RankedRunner) -> list[Outcome]:
        with pytest.raises(NoMemory, match="the memory of"):
            launched = two.launch(replace(whole, sampling_params=()))
            launched.sample(whole.sampling_params)
            launched.result()
        with pytest.raises(NoMemory, match="the memory of"):  # its micro-batches neither
            two.run(whole)
        return [two.run(whole), two.run(after)]

    found, noted, _ = on_two(folder, use, rank, [2, 1, 3])
    for mine, other in zip(found, wanted, strict=True):
        assert_same(mine, other)
    assert noted.met[0] == noted.met[1]


def test_micro_batches_with_sampling_parameters_give_what_the_whole_gives(
    make_checkpoint: MakeCheckpoint,
) -> None:
    folder, _ = make_checkpoint()
    whole, _ = batches(Placement())
    alone = ModelRunner(load(folder, Ranks()), NUM_SLOTS)
    wanted = alone.run(whole)
    for size in (7, 30, 100):
        parts = [alone.run(it) for it in micro_batches(whole, size, has_params=True)]
        assert_same(merged(parts), wanted)


def test_another_failure_ends_all(make_checkpoint: MakeCheckpoint) -> None:
    folder, _ = make_checkpoint()
    whole, _ = batches(Placement())

    class Broken(ModelRunner):
        def launch(self, batch: Batch) -> Any:
            raise RuntimeError("out of step")

    ranks = Ranks(0, SIZE)
    two = RankedRunner(Broken(load(folder, Ranks()), NUM_SLOTS), ranks, Others())
    with pytest.raises(BackendClosed, match="out of step"):
        two.run(whole)
