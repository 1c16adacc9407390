"""Plans whose numbers always stand in the same memory, for steps that are recorded once and
repeated (CUDA graphs): single tokens only, filled up to one size, and some shared roots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...interface import Ints, Past
from ..upload import ALIGNMENT
from .chunks import Parts
from .cutting import Cutter, Part, Plan, joined, parts_of, seen_from, singles_of
from .tokens import Singles

ROOT_PARTS = 64  # pieces of shared roots
ROOT_TILES = 128  # tiles of queries over these
ROOT_LEVELS = 32  # pieces that one token reads, one below the other
ROOT_READS = 8  # pieces that a token reads on average


@dataclass(frozen=True, slots=True)
class Cut:
    """What sequences with one new token each read: roots together, and each from its offset [S] on
    by itself."""

    past: Past
    offsets: Ints
    roots: list[Part]

    @property
    def has_roots(self) -> bool:
        """Whether they share any."""
        return bool(self.roots)


class StaticPlan:
    """The `Static` of `GpuAttention`. What is not used of its numbers does nothing; tokens beyond a
    step's own read the key in the first of all slots."""

    def __init__(self, cutter: Cutter, size: int, has_roots: bool) -> None:
        self._cutter, self._size = cutter, size
        self._splits = cutter.splits(size)
        self._tile = cutter.tile(size)
        lens = [size] * 4
        if has_roots:
            lens += [ROOT_READS * size, *[ROOT_PARTS + 1] * 6, *[ROOT_TILES] * 2]
        self._lens, self._has_roots = lens, has_roots
        self._starts = np.cumsum([0, *(-(-n // ALIGNMENT) * ALIGNMENT for n in lens)]).tolist()

    @property
    def num_numbers(self) -> int:
        """As `Static.num_numbers`."""
        return int(self._starts[-1])

    def cut(self, past: Past, window: int | None) -> Cut:
        """As `Static.cut`."""
        every, offsets = np.arange(len(past.rows), dtype=np.int32), seen_from(past, window)
        roots = self._cutter.roots(past, every, every, offsets, self._splits)
        return Cut(past, offsets, roots)

    def fill(self, cut: Cut, numbers: Ints, at: int) -> Ints | None:
        """As `Static.fill`."""
        roots = parts_of(cut.roots, self._tile, at)
        if not self._has_room(cut, roots):
            return None
        every = np.arange(len(cut.past.rows), dtype=np.int32)
        own = singles_of(cut.past, every, every, cut.offsets, at + len(roots[1]))
        arrays = [*own[:4], roots[0], *roots[2:]]
        if self._has_roots:  # tiles that are not used are of a part that is always empty
            work = self._starts[11]
            numbers[work : work + ROOT_TILES] = ROOT_PARTS
        for array, start in zip(arrays, self._starts, strict=False):
            numbers[start : start + len(array)] = array
        spare = slice(len(every), self._size)
        numbers[: self._size][spare] = np.arange(self._size)[spare]
        numbers[self._starts[3] :][spare] = 1  # bases and firsts are 0: the first slot of all
        return joined([roots[1], own[4]])

    def plan(self, numbers: Tensor, slots: Tensor) -> Plan:
        """As `Static.plan`."""
        views = [
            numbers[start : start + length]
            for start, length in zip(self._starts, self._lens, strict=False)
        ]
        tokens, bases, firsts, ends, *rest = views
        singles = Singles(self._splits, tokens, bases, firsts, ends, slots)
        if not self._has_roots:
            return Plan(singles, None, None, self._splits)
        roots = Parts(self._tile, 0, rest[0], slots, *rest[1:])
        return Plan(singles, None, roots, self._splits + ROOT_LEVELS)

    def _has_room(self, cut: Cut, roots: list[Ints]) -> bool:
        if not cut.roots:
            return True
        levels = 1 + max(part.level for part in cut.roots) - self._splits
        tokens, parts, tiles = len(roots[0]), len(cut.roots), len(roots[-1])
        return self._has_roots and (
            tokens <= ROOT_READS * self._size
            and parts <= ROOT_PARTS
            and tiles <= ROOT_TILES
            and levels <= ROOT_LEVELS
        )
