"""A running estimate of what a step takes, by what it computes.

Least squares of relative errors over the last steps, no coefficient below zero. A step that took
far longer than others like it, as when the system ran something else, counts little. Knows nothing
of tenants or memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_KEPT = 0.98  # of the weight of earlier steps, after each
_LARGE = 1e100
_SHORT = 0.05  # of what is expected: a step counts as no shorter
_COUNT = 7
_EARLY, _SOLVED_AFTER = 64, 4  # steps after each of which, and after how many, all is solved again
_GROWTH = 2  # of what steps have had so far, up to which the estimate is trusted
# What steps of equal size do not tell apart counts as of every step: shares then get larger, which
# tells.
_PENALTY = np.array([0.0, 0.01, 0.03, 0.01, 0.03, 0.03, 0.03])


class Work(NamedTuple):
    """What a step computes: sequences with one token, prompt tokens, and how many of these are
    scored.

    context: cached tokens that the former attend to, of all sequences together.
    pairs: the same of each prompt token.
    """

    rows: int = 0
    tokens: int = 0
    scored: int = 0
    context: int = 0
    pairs: int = 0


class StepCosts:
    """Seconds of a step: of every one, for each row, of one with prompt tokens, for each of these,
    for each that is scored, and for each cached token to which a row or a prompt token attends.

    most_rows, most_tokens: of a step for which the estimate can be trusted.
    """

    def __init__(self) -> None:
        self._known = [0.0] * _COUNT
        self._changed = np.zeros(_COUNT, bool)
        self._sums = np.zeros((_COUNT, _COUNT))  # of products of the features
        self._targets = np.zeros(_COUNT)
        self._weight = 1.0
        self._num_noted = self._num_new = 0
        self.most_rows = self.most_tokens = 8

    @property
    def _seconds(self) -> list[float]:
        is_early = self._num_noted <= _EARLY and self._num_new
        if is_early or self._num_new >= _SOLVED_AFTER:
            self._solve()
        return self._known

    @property
    def has_learnt(self) -> bool:
        """Whether a step was noted."""
        return bool(self._sums[0, 0])

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
        _, row, chunk, token, scored, context, pair = self._seconds
        prompts = chunk if work.tokens else 0.0
        prompts += token * work.tokens + scored * work.scored + pair * work.pairs
        return row * work.rows + context * work.context + prompts

    def prompt_tokens(self, seconds: float, work: Work) -> int:
        """How many of this work's prompt tokens take so long in a step."""
        all_of_it = self.of(work._replace(rows=0, context=0)) - self.chunk
        if all_of_it <= 0:
            return work.tokens
        return min(work.tokens, int(work.tokens * (seconds - self.chunk) / all_of_it))

    def note(self, work: Work, seconds: float) -> None:
        """Learn from a step that took so long."""
        self.most_rows = max(self.most_rows, _GROWTH * work.rows)
        self.most_tokens = max(self.most_tokens, _GROWTH * work.tokens)
        if seconds <= 0:
            return
        self._weight /= _KEPT  # instead of less for all before
        if self._weight > _LARGE:
            self._rescale()
        expected = np.dot(self._known, numbers := _features(work))
        size = max(seconds, _SHORT * expected)  # errors are relative
        weight = self._weight / size**2
        self._sums += np.outer(weight * numbers, numbers)
        self._targets += weight * seconds * numbers
        self._changed |= numbers > 0
        self._num_noted += 1
        self._num_new += 1

    def _solve(self) -> None:
        """Find the coefficients of the features of the last steps; the others keep what they are.
        One that would be below zero is zero."""
        active = np.flatnonzero(self._changed)
        self._changed[:], self._num_new = False, 0
        found = np.array(self._known)
        found[active] = 0.0
        targets = self._targets - self._sums @ found
        scale = np.sqrt(self._sums.diagonal())
        while len(active):
            sums = self._sums[np.ix_(active, active)] / np.outer(scale[active], scale[active])
            sums += np.diag(_PENALTY[active])
            scaled = np.linalg.solve(sums, targets[active] / scale[active])
            if scaled.min() >= 0:
                found[active] = scaled / scale[active]
                break
            active = np.delete(active, scaled.argmin())
        self._known = found.tolist()

    def _rescale(self) -> None:
        self._sums /= _LARGE
        self._targets /= _LARGE
        self._weight /= _LARGE


def _features(work: Work) -> npt.NDArray[np.float64]:
    """What the coefficients are of."""
    return np.array([1, work.rows, work.tokens > 0, *work[1:]], float)
