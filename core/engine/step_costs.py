"""A running estimate of what a step takes, by what it computes.

Least squares of relative errors over the last steps, no coefficient below zero. A step that took
far longer than others like it, as when the system ran something else, counts little. Knows nothing
of tenants or memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import mul
from typing import NamedTuple

from .batch import Part

_KEPT = 0.98  # of the weight of earlier steps, after each
_LARGE = 1e100
_SHORT = 0.05  # of what is expected: a step counts as no shorter
_SWEEPS = 2  # of Gauss and Seidel's method, from the last solution
_ORDER = (1, 3, 4, 2, 0)
# What steps of equal size do not tell apart counts as of rows and tokens: steps then get smaller,
# which tells.
_PENALTY = (1.02, 1.0, 1.02, 1.0, 1.0)


class Work(NamedTuple):
    """What a step computes: sequences with one token, prompt tokens, and how many of these are
    scored."""

    rows: int = 0
    tokens: int = 0
    scored: int = 0

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Work:
        """That of these parts."""
        rows = tokens = scored = 0
        for part in parts:
            if part.count == 1 and not part.scored:
                rows += 1
            else:
                tokens += part.count
                scored += len(part.scored)
        return cls(rows, tokens, scored)


class StepCosts:
    """Seconds of a step: of every one, for each row, of one with prompt tokens, for each of these,
    and for each that is scored."""

    def __init__(self) -> None:
        self._seconds = [0.0] * 5
        self._sums = [[0.0] * 5 for _ in range(5)]  # of products of the features
        self._targets = [0.0] * 5
        self._weight = 1.0

    @property
    def base(self) -> float:
        """Seconds of a step that computes nothing."""
        return self._seconds[0]

    @property
    def chunk(self) -> float:
        """Seconds that a step takes longer where it has prompt tokens at all."""
        return self._seconds[2]

    def of(self, work: Work) -> float:
        """Seconds that this work adds to a step."""
        _, row, chunk, token, scored = self._seconds
        prompts = chunk + token * work.tokens + scored * work.scored if work.tokens else 0.0
        return row * work.rows + prompts

    def prompt_tokens(self, seconds: float, work: Work) -> int:
        """How many of this work's prompt tokens take so long in a step."""
        all_of_it = self.of(work._replace(rows=0)) - self.chunk
        if all_of_it <= 0:
            return work.tokens
        return min(work.tokens, int(work.tokens * (seconds - self.chunk) / all_of_it))

    def note(self, work: Work, seconds: float) -> None:
        """Learn from a step that took so long."""
        if seconds <= 0:
            return
        self._weight /= _KEPT  # instead of less for all before
        if self._weight > _LARGE:
            self._rescale()
        size = max(seconds, _SHORT * (self.base + self.of(work)))  # errors are relative
        weight = self._weight / size**2
        numbers = (1, work.rows, int(work.tokens > 0), work.tokens, work.scored)
        active = [index for index in _ORDER if numbers[index]]
        for index in active:
            scaled, sums = weight * numbers[index], self._sums[index]
            self._targets[index] += scaled * seconds
            for other in active:
                sums[other] += scaled * numbers[other]
        for index in active * _SWEEPS:  # the others keep what they are
            sums, known = self._sums[index], self._seconds[index]
            rest = sum(map(mul, sums, self._seconds)) - sums[index] * known
            most = (self._targets[index] - rest) / (sums[index] * _PENALTY[index])
            self._seconds[index] = max(0.0, most)

    def _rescale(self) -> None:
        self._sums = [[it / _LARGE for it in sums] for sums in self._sums]
        self._targets = [it / _LARGE for it in self._targets]
        self._weight /= _LARGE
