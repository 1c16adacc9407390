"""How many calls each replica has, so that the least loaded of any set of them is found at once.

A set of replicas is an integer with a bit for each. `Loads` keeps one such set for each number of
calls: the least loaded of a set is in the first level that it meets.
"""

from __future__ import annotations


class Loads:
    """Open calls of replicas, by bit."""

    def __init__(self) -> None:
        self.everyone = 0
        self.total = 0
        self._levels: list[int] = [0]
        self._lowest = 0  # no replica has fewer calls
        self._load: dict[int, int] = {}

    def enter(self, bit: int, load: int = 0) -> None:
        """A replica takes calls from now on; it has some that others sent it."""
        self.everyone |= bit
        self._load[bit] = load
        self.total += load
        self._put(bit, load)

    def leave(self, bit: int) -> None:
        """A replica takes no more calls; nothing if it did not."""
        if not self.everyone & bit:
            return
        self.everyone &= ~bit
        load = self._load.pop(bit)
        self.total -= load
        self._levels[load] &= ~bit

    def of(self, bit: int) -> int:
        """The calls of a replica; 0 for one that takes none."""
        return self._load.get(bit, 0)

    def change(self, bit: int, by: int) -> None:
        """So many more calls; nothing for a replica that takes none."""
        load = self._load.get(bit)
        if load is None:
            return
        self._levels[load] &= ~bit
        self._load[bit] = load + by
        self.total += by
        self._put(bit, load + by)

    def least(self, among: int) -> tuple[int, int]:
        """The least loaded of these replicas that take calls, as a set, and their load; the empty
        set where none does."""
        among &= self.everyone
        if not among:
            return 0, 0
        while not self._levels[self._lowest]:
            self._lowest += 1
        for load in range(self._lowest, len(self._levels)):
            if found := self._levels[load] & among:
                return found, load
        return 0, 0

    def up_to(self, load: int, among: int) -> int:
        """Those of a set that take calls and have no more than so many."""
        found = 0
        for level in self._levels[self._lowest : load + 1]:
            found |= level
        return found & among

    @property
    def mean(self) -> float:
        """Calls of a replica, on average."""
        return self.total / len(self._load) if self._load else 0.0

    def _put(self, bit: int, load: int) -> None:
        while len(self._levels) <= load:
            self._levels.append(0)
        self._levels[load] |= bit
        self._lowest = min(self._lowest, load)


def bits_of(holders: int) -> list[int]:
    """The bits of a set, the lowest first."""
    found = []
    while holders:
        bit = holders & -holders
        found.append(bit)
        holders ^= bit
    return found
