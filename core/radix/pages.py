"""Which slots are free. A slot is the place of one token's keys and values (page size one).

It knows nothing of tokens, trees or sequences: it only hands slots out and takes them back.
"""

from __future__ import annotations

import numpy as np

from ..api.batch import Ints


class SlotPool:
    """The slots 0 to capacity - 1, each free or handed out; every operation is O(count) copies.

    It prefers runs of adjacent slots: a fresh pool hands out ascending neighbours, slots released
    together come back together and in their order, and once a quarter of the pool has come back
    the free slots are put in ascending order again.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"invalid capacity={capacity}: expected at least 1 slot")
        self.capacity = capacity
        self._stack = np.arange(capacity, dtype=np.int32)[::-1].copy()  # next slot at its end
        self._num_free = capacity
        self._is_free = np.ones(capacity, np.bool_)
        self._num_returned = 0

    @property
    def num_free(self) -> int:
        """Slots that are not handed out."""
        return self._num_free

    def allocate(self, count: int) -> Ints | None:
        """`count` slots, now the caller's; None, and nothing changed, when fewer are free."""
        if count > self._num_free:
            return None
        if self._num_returned * 2 > self.capacity:
            self._stack[: self._num_free] = np.flatnonzero(self._is_free)[::-1]
            self._num_returned = 0
        rest = self._num_free - count
        slots = self._stack[rest : self._num_free][::-1].copy()
        self._is_free[slots.astype(np.intp)] = False
        self._num_free = rest
        return slots

    def release(self, slots: Ints) -> None:
        """Take slots back. Raises ValueError, and takes none, when one of them is free already; a
        slot that is named twice in one call is found by `check`."""
        index = slots.astype(np.intp)
        is_twice = self._is_free.take(index)
        if is_twice.any():
            twice = slots[is_twice]
            raise ValueError(f"slots={twice[:8].tolist()} are free already; released twice")
        top = self._num_free + slots.size
        self._stack[self._num_free : top] = slots[::-1]
        self._is_free[index] = True
        self._num_free = top
        self._num_returned += slots.size

    def free_slots(self) -> Ints:
        """A copy of the free slots, in no promised order."""
        return self._stack[: self._num_free].copy()

    def check(self) -> None:
        """Assert that each free slot is listed once."""
        marked = np.count_nonzero(self._is_free)
        assert marked == self._num_free, f"{self._num_free} slots listed as free, {marked} marked"
        assert self._is_free[self._stack[: self._num_free]].all(), "a free slot is not marked"
