"""Which sequence has to wait again, so that another tenant runs, or because memory ran out.

Of the tenant that holds most by weight, and only where it still holds more than the other one then:
so no two retract each other in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Listed

from .sequence import Sequence
from .tenants import Tenants


class Holders:
    """What tenants hold of rows or slots. size: what a running sequence holds."""

    def __init__(
        self, running: Listed[Sequence], tenants: Tenants, size: Callable[[Sequence], int]
    ) -> None:
        self._running = running
        self._tenants = tenants
        self._size = size
        self._held: dict[str, int] = {}
        for sequence in running:
            name = sequence.job.call.owner
            self._held[name] = self._held.get(name, 0) + size(sequence)

    def victim(self, name: str, needed: int) -> Sequence | None:
        """The sequence to retract where a tenant needs so much; None where no other one would still
        hold as much as this one then, by weight."""
        if not self._held:
            return None
        victim = self.least_of_largest()
        largest = victim.job.call.owner
        left = (self._held[largest] - self._size(victim)) / self._tenants[largest].weight
        wanted = (self._held.get(name, 0) + needed) / self._tenants[name].weight
        return victim if largest != name and wanted <= left else None

    def least_of_largest(self) -> Sequence:
        """Of the tenant that holds most: the least urgent sequence, of these the least progressed,
        the newest."""
        held, tenants = self._held, self._tenants
        largest = max(held, key=lambda name: held[name] / tenants[name].weight)
        newest = (it for it in reversed(self._running) if it.job.call.owner == largest)
        return min(newest, key=lambda s: (s.job.call.priority, s.num_new, -s.arrival))


def unallocated(running: Iterable[Sequence]) -> dict[str, int]:
    """Tokens of prompts that have no slots yet, by tenant."""
    found: dict[str, int] = {}
    for sequence in running:
        if sequence.num_unallocated > 1:
            name = sequence.job.call.owner
            found[name] = found.get(name, 0) + sequence.num_unallocated
    return found


def is_prefilling(running: Iterable[Sequence], name: str) -> bool:
    """Whether the prompt of a running sequence of this tenant is not computed yet."""
    return name in unallocated(running)
