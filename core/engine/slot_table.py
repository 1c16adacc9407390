"""The slot table: where the KV of each running sequence's tokens is in the pool."""

from __future__ import annotations

import numpy as np

from ..api.batch import Ints


class SlotTable:
    """A row for each running sequence.

    slots: [num_rows, context_len], the slot of each of its tokens.
    """

    def __init__(self, num_rows: int, context_len: int) -> None:
        self.slots: Ints = np.zeros((num_rows, context_len), np.int32)
        self._free = list(range(num_rows - 1, -1, -1))
        self._changed: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def num_free(self) -> int:
        """Rows of no sequence."""
        return len(self._free)

    def take_row(self) -> int:
        """A free row, until `give_back`. Raises IndexError if none is free."""
        return self._free.pop()

    def give_back(self, row: int) -> None:
        """Free a row."""
        self._free.append(row)

    def write(self, row: int, start: int, slots: Ints) -> None:
        """Set the slots of tokens from position `start` on that are in the cache already."""
        end = start + len(slots)
        self.slots[row, start:end] = slots
        self._changed.append((row, start, end))

    def take_changes(self) -> Ints:
        """[K, 3] row, start and end of what was written since the last call."""
        changed, self._changed = self._changed, []
        return np.array(changed, np.int32).reshape(-1, 3)
