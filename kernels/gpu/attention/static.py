"""Plans in a fixed buffer, for CUDA graphs: decode tokens only, padded to one size, and some shared
roots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...interface import Ints, Past
from ..upload import ALIGNMENT
from .decode import DecodeItems
from .extend import ExtendItems
from .planner import (
    Plan,
    Planner,
    WorkItem,
    concatenated,
    decode_arrays,
    extend_arrays,
    first_visible,
)

ROOT_ITEMS = 64  # work items of shared roots
ROOT_TILES = 128  # tiles of queries over these
ROOT_LEVELS = 32  # most of these that one token reads
ROOT_READS = 8  # of these that a token reads on average


@dataclass(frozen=True, slots=True)
class StepItems:
    """A decode step: shared roots, and the keys of each sequence from its offset [S] on."""

    past: Past
    offsets: Ints
    roots: list[WorkItem]

    @property
    def has_roots(self) -> bool:
        """Whether they share any."""
        return bool(self.roots)


class StaticPlan:
    """The `Static` of `GpuAttention`. Unused numbers do nothing; padding tokens read slot 0."""

    def __init__(self, planner: Planner, size: int, has_roots: bool) -> None:
        self._planner, self._size = planner, size
        self._splits = planner.splits(size)
        self._tile = planner.tile(size)
        lens = [size] * 4
        if has_roots:
            lens += [ROOT_READS * size, *[ROOT_ITEMS + 1] * 6, *[ROOT_TILES] * 2]
        self._lens, self._has_roots = lens, has_roots
        self._starts = np.cumsum([0, *(-(-n // ALIGNMENT) * ALIGNMENT for n in lens)]).tolist()

    @property
    def num_numbers(self) -> int:
        """As `Static.num_numbers`."""
        return int(self._starts[-1])

    def items(self, past: Past, window: int | None) -> StepItems:
        """As `Static.items`."""
        all_rows, offsets = np.arange(len(past.rows), dtype=np.int32), first_visible(past, window)
        roots = self._planner.roots(past, all_rows, all_rows, offsets, self._splits)
        return StepItems(past, offsets, roots)

    def write(self, items: StepItems, numbers: Ints, at: int) -> Ints | None:
        """As `Static.write`."""
        roots = extend_arrays(items.roots, self._tile, at)
        if not self._fits(items, roots):
            return None
        all_rows = np.arange(len(items.past.rows), dtype=np.int32)
        own = decode_arrays(items.past, all_rows, all_rows, items.offsets, at + len(roots[1]))
        arrays = [*own[:4], roots[0], *roots[2:]]
        if self._has_roots:  # unused tiles belong to an item that is always empty
            work = self._starts[11]
            numbers[work : work + ROOT_TILES] = ROOT_ITEMS
        for array, start in zip(arrays, self._starts, strict=False):
            numbers[start : start + len(array)] = array
        spare = slice(len(all_rows), self._size)
        numbers[: self._size][spare] = np.arange(self._size)[spare]
        numbers[self._starts[3] :][spare] = 1  # bases and firsts are 0: slot 0
        return concatenated([roots[1], own[4]])

    def plan(self, numbers: Tensor, slots: Tensor) -> Plan:
        """As `Static.plan`."""
        views = [
            numbers[start : start + length]
            for start, length in zip(self._starts, self._lens, strict=False)
        ]
        tokens, bases, firsts, ends, *rest = views
        decodes = DecodeItems(self._splits, tokens, bases, firsts, ends, slots)
        if not self._has_roots:
            return Plan(decodes, None, None, self._splits)
        roots = ExtendItems(self._tile, 0, rest[0], slots, *rest[1:])
        return Plan(decodes, None, roots, self._splits + ROOT_LEVELS)

    def _fits(self, step: StepItems, roots: list[Ints]) -> bool:
        if not step.roots:
            return True
        levels = 1 + max(item.level for item in step.roots) - self._splits
        tokens, items, tiles = len(roots[0]), len(step.roots), len(roots[-1])
        return self._has_roots and (
            tokens <= ROOT_READS * self._size
            and items <= ROOT_ITEMS
            and tiles <= ROOT_TILES
            and levels <= ROOT_LEVELS
        )
