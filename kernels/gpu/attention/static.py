"""Plans in a fixed buffer, for CUDA graphs: padded to so many tokens, with room for shared prefixes
and extends where these are wanted."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from torch import Tensor

from ...interface import Ints, Past, StepShape
from ..slot_table import SlotTable
from ..upload import ALIGNMENT
from .decode import DecodeItems
from .extend import ExtendItems
from .planner import Plan, Planner, StepItems

Array = TypeVar("Array", Ints, Tensor)


class StaticPlan:
    """The `Static` of `GpuAttention`. Work items that are not used do nothing; tokens that fill the
    step read the spare slot."""

    def __init__(
        self, planner: Planner, table: SlotTable, shape: StepShape, window: int | None
    ) -> None:
        self._planner, self._table, self._shape, self._window = planner, table, shape, window
        self._root_tile, self._extend_tile = planner.tile(shape.num_tokens), planner.extend_tile()
        self._capacity = most = planner.capacity(shape.num_tokens)
        self._shapes: list[tuple[int, ...]] = [(most.decodes, 5), (shape.num_tokens, 2)]
        if shape.has_roots:  # one item more, always empty, to which tiles that are not used belong
            self._shapes += [(most.root_tokens,), (most.root_items + 1, 7), (most.root_tiles, 2)]
        if shape.has_extends:
            self._shapes += [(shape.num_tokens,), (most.extends + 1, 7), (most.extend_tiles, 2)]
        sizes = [-(-int(np.prod(it)) // ALIGNMENT) * ALIGNMENT for it in self._shapes]
        self._starts = np.cumsum([0, *sizes]).tolist()

    @property
    def num_numbers(self) -> int:
        """As `Static.num_numbers`."""
        return int(self._starts[-1])

    def items(self, past: Past) -> StepItems | None:
        """As `Static.items`."""
        found = self._planner.items(past, self._window, self._root_tile, self._extend_tile)
        most, extends = self._capacity, found.extends
        is_room = len(extends.items) <= most.extends and len(extends.tiles) <= most.extend_tiles
        return found if is_room else None

    def write(self, items: StepItems, numbers: Ints) -> None:
        """As `Static.write`."""
        (decodes, merges), *groups = self._views(numbers)
        num_items, num_real = len(items.decodes), len(items.merges)
        decodes[:num_items] = items.decodes
        merges[:num_real] = items.merges
        padding = decodes[num_items : num_items + len(merges) - num_real]
        padding[:] = 0, len(self._table.slots) - 1, 0, 1, -1
        padding[:, 0] = np.arange(num_real, len(merges))
        works = [items.roots] * self._shape.has_roots + [items.extends] * self._shape.has_extends
        for group, work in zip(groups, works, strict=True):
            group[2][:, 0] = len(group[1]) - 1
            for view, array in zip(group, work.arrays, strict=True):
                view[: len(array)] = array

    def plan(self, numbers: Tensor) -> Plan:
        """As `Static.plan`."""
        slots, shape = self._table.slots, self._shape
        (decodes, merges), *groups = self._views(numbers)
        roots = (
            ExtendItems(self._root_tile, 0, True, slots, *groups[0]) if shape.has_roots else None
        )
        extends = None
        if shape.has_extends:
            window = self._window or 0
            extends = ExtendItems(self._extend_tile, window, True, slots, *groups[-1])
        num_partials = self._capacity.partials
        return Plan(DecodeItems(decodes, slots), roots, extends, merges, num_partials)

    def _views(self, numbers: Array) -> list[list[Array]]:
        """The arrays of decodes and merges, of roots, and of extends, as far as there are any."""
        views: list[Array] = [
            numbers[start : start + int(np.prod(shape))].reshape(shape)
            for shape, start in zip(self._shapes, self._starts, strict=False)
        ]
        return [views[:2]] + [views[at : at + 3] for at in range(2, len(views), 3)]
