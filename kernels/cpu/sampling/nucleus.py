"""Draws tokens from logits over a whole vocabulary, on a CPU: by the loops of `draws`, which need
numba. Only float32."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..jit.jit import can_compile, compiled

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Longs: TypeAlias = npt.NDArray[np.int64]

_COLDEST = 1e-6


class Filters(NamedTuple):
    """What each row keeps. top_ks: [N] tokens at most, not positive: all. top_ps: [N] the share of
    the mass of these that is enough. min_ps: [N] the least weight, that of the likeliest being 1.
    Tokens as likely as the last one kept are kept."""

    top_ks: Longs
    top_ps: Doubles
    min_ps: Floats


class Drawer:
    """Draws tokens; has the loops for this compiled when it is made, and those that show the steps
    on the way when they are called."""

    def __init__(self) -> None:
        from . import draws

        self._likeliest = compiled(draws.likeliest, draws.LIKELIEST, is_reordered=False)
        self._draw = compiled(draws.draw, draws.DRAW, is_reordered=False)

    def likeliest(self, logits: Floats) -> Longs:
        """[N] the first of the likeliest tokens of each row of logits [N, vocabulary]; -1 where one
        of them is no finite number."""
        tokens = np.empty(len(logits), np.int64)
        self._likeliest(logits, tokens)
        return tokens

    def draw(
        self,
        logits: Floats,
        temperatures: Doubles,
        filters: Filters,
        numbers: Doubles,
        has_holes: bool = False,
    ) -> Longs:
        """A token for each row of logits [N, vocabulary]: that at which the running sum of the
        weights kept, in the order of token ids, passes `numbers` [N] of the whole; the likeliest
        where the temperature is 0. -1 for a row that has something that is no finite number.

        has_holes: -inf is a token that is not to be drawn; then -1 where there are only such. What
        comes of rows with NaN or infinity is any token of theirs, or -1.
        """
        tokens, counts = np.empty(len(logits), np.int64), _counts(filters, logits.shape[1])
        kept = counts, filters.top_ps, filters.min_ps
        self._draw(logits, _scales(temperatures), *kept, numbers, has_holes, tokens)
        return tokens

    def weights(self, logits: Floats, temperatures: Doubles) -> Floats:
        """Probabilities up to a factor: the likeliest token of a row has 1. Filled up with zeros:
        [N, more than the vocabulary]."""
        from . import draws

        num_rows, size = logits.shape
        width = -(-size // draws.BLOCK) * draws.BLOCK + draws.SPARE
        weights = np.empty((num_rows, width), np.float32)
        weigh = compiled(draws.weigh, draws.WEIGH, is_reordered=False)
        weigh(logits, _scales(temperatures), weights)
        return weights

    def floors(self, weights: Floats, size: int, filters: Filters) -> Floats:
        """[N] the least weight that each row's filters keep, of such weights. size: of the
        vocabulary."""
        from . import draws

        floors, counts = np.empty(len(weights), np.float32), _counts(filters, size)
        find = compiled(draws.floors, draws.FLOORS, is_reordered=False)
        find(weights, size, counts, filters.top_ps, filters.min_ps, floors)
        return floors


@functools.cache
def drawer() -> Drawer | None:
    """The one of this process; None where numba is not installed."""
    return Drawer() if can_compile() else None


def _scales(temperatures: Doubles) -> Floats:
    """Of logits in powers of two; 0 for the likeliest token."""
    scales = 1 / (math.log(2) * temperatures.clip(_COLDEST))
    return np.where(temperatures > 0, scales, 0).astype(np.float32)


def _counts(filters: Filters, size: int) -> Longs:
    """Tokens that each row keeps at most."""
    top_ks = filters.top_ks
    return np.where((top_ks > 0) & (top_ks < size), top_ks, size)
