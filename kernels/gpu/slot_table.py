"""The slot table on a device: each step sends what changed, not all slots that it reads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..interface import Ints, Past, own_spans, table_index
from .upload import uploaded


class SlotTable:
    """A copy of the scheduler's slot table, with one row more, for tokens that fill a recorded
    step: these read the spare slot, which is finite, whatever the pool holds elsewhere."""

    def __init__(self, device: torch.device, spare: int) -> None:
        self._device, self._spare = device, spare
        self._allocate(0, 0)

    @property
    def slots(self) -> Tensor:
        """[rows + 1, columns] int32, the last row full of the spare slot."""
        return self._slots

    def reserve(self, num_rows: int, num_columns: int) -> bool:
        """Make room for tables of this shape. Returns whether memory moved, and was emptied."""
        rows, columns = self._slots.shape
        if num_rows < rows and num_columns <= columns:
            return False
        self._allocate(max(num_rows, rows - 1), max(num_columns, columns))
        return True

    def update(self, past: Past) -> bool:
        """Bring what a step reads up to date. Returns as `reserve`."""
        has_moved = self.reserve(*past.table.shape)
        try:
            self._send(past.table, self._spans(past))
        except BaseException:
            self.forget()
            raise
        return has_moved

    def forget(self) -> None:
        """Send all that the next steps read: what is on the device may be of a failed step."""
        self._is_stale[:] = True

    def _allocate(self, num_rows: int, num_columns: int) -> None:
        shape = num_rows + 1, num_columns
        self._slots = torch.full(shape, self._spare, dtype=torch.int32, device=self._device)
        self._is_stale = np.ones(num_rows, bool)

    def _spans(self, past: Past) -> Ints:
        """[K, 3] row, start and end of what must be sent."""
        rows = past.rows
        if past.changed is None:
            self.forget()
        own = own_spans(rows, past.starts, past.lens, self._is_stale[rows])
        self._is_stale[rows] = False
        if past.changed is None or not len(past.changed):
            return own
        known = past.changed[~self._is_stale[past.changed[:, 0]]]
        return np.concatenate([own, known])

    def _send(self, table: Ints, spans: Ints) -> None:
        rows, columns = table_index(spans)
        addresses = rows.astype(np.int64) * self._slots.shape[1] + columns
        numbers = [addresses.view(np.int32), table[rows, columns]]
        where, slots = uploaded(numbers, self._device)
        self._slots.view(-1).index_copy_(0, where.view(torch.int64), slots)
