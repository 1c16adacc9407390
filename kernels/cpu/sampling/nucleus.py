"""Samples tokens from logits over a whole vocabulary, on a CPU: by the loops of `sampler`, which
need numba. Only float32."""

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
    """What each row keeps. top_ks: [N] tokens at most, not positive: all. top_ps: [N] the part of
    the mass of these that is enough. min_ps: [N] the least weight, relative to that of the most
    probable token. Tokens as probable as the last one kept are kept, too."""

    top_ks: Longs
    top_ps: Doubles
    min_ps: Floats


class CompiledSampler:
    """Samples tokens; its loops are compiled when it is made."""

    def __init__(self) -> None:
        from . import sampler

        self._greedy = compiled(sampler.greedy, sampler.GREEDY, is_reordered=False)
        self._sample = compiled(sampler.sample, sampler.SAMPLE, is_reordered=False)

    def greedy(self, logits: Floats) -> Longs:
        """[N] the argmax of each row of logits [N, vocabulary], the first one of equals; -1 where a
        number of the row is not finite."""
        tokens = np.empty(len(logits), np.int64)
        self._greedy(logits, tokens)
        return tokens

    def sample(
        self,
        logits: Floats,
        temperatures: Doubles,
        filters: Filters,
        numbers: Doubles,
        has_holes: bool = False,
    ) -> Longs:
        """A token for each row of logits [N, vocabulary]: the first at which the running sum of the
        kept weights, in the order of token ids, exceeds `numbers` [N] of their total; the argmax
        where the temperature is 0. -1 for a row with a number that is not finite.

        has_holes: -inf is a masked token; then -1 only where all are masked, and a row with NaN or
        infinity gives any token of it, or -1.
        """
        tokens, counts = np.empty(len(logits), np.int64), _counts(filters, logits.shape[1])
        kept = counts, filters.top_ps, filters.min_ps
        self._sample(logits, _scales(temperatures), *kept, numbers, has_holes, tokens)
        return tokens


@functools.cache
def compiled_sampler() -> CompiledSampler | None:
    """The one of this process; None where numba is not installed."""
    return CompiledSampler() if can_compile() else None


def _scales(temperatures: Doubles) -> Floats:
    """Of logits in powers of two; 0 for greedy sampling."""
    scales = 1 / (math.log(2) * temperatures.clip(_COLDEST))
    return np.where(temperatures > 0, scales, 0).astype(np.float32)


def _counts(filters: Filters, size: int) -> Longs:
    """Tokens that each row keeps at most."""
    top_ks = filters.top_ks
    return np.where((top_ks > 0) & (top_ks < size), top_ks, size)
