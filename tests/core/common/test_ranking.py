"""Items stay sorted by rank, whatever comes, goes and changes meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from forkroot.core.common.ranking import Ranking


def waiting(*ranks: int) -> tuple[Ranking[Any], list[Any]]:
    sequences = [Waiting(rank=rank, number=number) for number, rank in enumerate(ranks)]
    ranking = Ranking(lambda it: (it.rank, it.number))
    for sequence in sequences:
        ranking.add(sequence)
    return ranking, sequences


class Waiting(SimpleNamespace):
    """A sequence, as far as a ranking knows it."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Machine(RuleBasedStateMachine):
    """A ranking beside a plain list that is sorted again each time."""

    def __init__(self) -> None:
        super().__init__()
        self.ranking, _ = waiting()
        self.known: list[Any] = []
        self.count = 0

    @rule(rank=st.integers(-3, 3))
    def add(self, rank: int) -> None:
        self.count += 1
        self.known.append(Waiting(rank=rank, number=self.count))
        self.ranking.add(self.known[-1])

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.ranking.remove(self.known.pop(data.draw(st.integers(0, len(self.known) - 1))))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), rank=st.integers(-3, 3))
    def change(self, data: st.DataObject, rank: int) -> None:
        sequence = data.draw(st.sampled_from(self.known))
        sequence.rank = rank
        self.ranking.changed(sequence)

    @invariant()
    def is_sorted(self) -> None:
        assert list(self.ranking) == sorted(self.known, key=lambda it: (it.rank, it.number))
        assert len(self.ranking) == len(self.known)


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestRanking = Machine.TestCase


def test_what_is_removed_while_it_is_read_is_left_out_and_nothing_else() -> None:
    ranking, sequences = waiting(*range(200))
    found = []
    for sequence in ranking:
        found.append(sequence.rank)
        ranking.remove(sequence)
        if sequence.rank % 3 == 0 and sequence.rank < 199:
            ranking.remove(sequences[sequence.rank + 1])
    assert found == [rank for rank in range(200) if rank % 3 != 1]
    assert len(ranking) == 0
