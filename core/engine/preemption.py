"""Memory that sequences are expected to take, and which of them has to wait again: so that another
tenant runs, or because memory ran out.

One of the tenant that holds most by weight, and only where it still holds more than the other one
then: so no two retract each other in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Listed
from dataclasses import dataclass

from ..radix.cache import Lease, RadixCache
from .accounting.tenants import Tenants
from .sequence import Sequence

NOTHING: Mapping[str, int] = {}


@dataclass(slots=True)
class NewTokenRatio:
    """The share of a call's unknown output length that is reserved at admission: an estimate
    between `low` and 1 that decays with each step and increases with each retraction."""

    ratio: float = 0.4
    low: float = 0.1

    def decay(self) -> None:
        """Lower the ratio after a step."""
        self.ratio = max(self.low, self.ratio * 0.999)

    def increase(self) -> None:
        """Raise the ratio after a retraction."""
        self.ratio = min(1.0, self.ratio + 0.2)

    def expected(self, sequence: Sequence) -> int:
        """Slots that generated tokens of this sequence will still take."""
        return int(self.ratio * max(0, sequence.rules.max_new - sequence.num_new))


class Holders:
    """What tenants hold of rows or slots. size: what a running sequence holds. pinned: what each
    tenant holds beside these."""

    def __init__(
        self,
        running: Listed[Sequence],
        tenants: Tenants,
        size: Callable[[Sequence], int],
        pinned: Mapping[str, int] = NOTHING,
    ) -> None:
        self._running = running
        self._tenants = tenants
        self._size = size
        self._held = dict(pinned)
        for sequence in running:
            name = sequence.job.call.owner
            self._held[name] = self._held.get(name, 0) + size(sequence)

    def victim(self, name: str, needed: int) -> Sequence | None:
        """The sequence to retract where a tenant needs so much; None where no other one would still
        hold as much as this one then, by weight."""
        if not self._held:
            return None
        largest = self.largest
        victim = self.least_of(largest)
        left = (self._held[largest] - self._size(victim)) / self._tenants[largest].weight
        wanted = (self._held.get(name, 0) + needed) / self._tenants[name].weight
        return victim if largest != name and wanted <= left else None

    @property
    def largest(self) -> str:
        """The tenant that holds most by weight."""
        held, tenants = self._held, self._tenants
        return max(held, key=lambda name: held[name] / tenants.weight(name))

    def least_of(self, tenant: str) -> Sequence:
        """Of the running sequences of a tenant the least urgent, of these the least progressed, the
        newest."""
        newest = (it for it in reversed(self._running) if it.job.call.owner == tenant)
        return min(newest, key=lambda s: (s.job.call.priority, s.num_new, -s.arrival))


class Memory:
    """Slots that are left for calls that wait, beside those expected to be taken by what runs."""

    def __init__(self, cache: RadixCache, tenants: Tenants, running: list[Sequence]) -> None:
        self._cache = cache
        self._tenants = tenants
        self._running = running
        self.ratio = NewTokenRatio()

    @property
    def num_available(self) -> int:
        """Slots that are not reserved for running sequences."""
        expected = self.ratio.expected
        return self._cache.num_available - sum(
            it.num_unallocated + expected(it) for it in self._running
        )

    def holders(self, pinned: Mapping[str, int] = NOTHING) -> Holders:
        """Who holds slots, with those reserved, and those that are pinned."""
        expected = self.ratio.expected
        return Holders(self._running, self._tenants, lambda it: it.num_ids + expected(it), pinned)

    def give_back(self, lease: Lease) -> int:
        """Release a lease; how many slots become available."""
        before = self._cache.num_available
        self._cache.release(lease)
        return self._cache.num_available - before

    def fits(self, needed: int, available: int, release_pin: Callable[[], bool]) -> bool:
        """Whether slots are available. Where nothing runs they must be: pins are released, and
        slots reserved for new tokens are used as well."""
        if needed <= available or self._running:
            return needed <= available
        while needed > self._cache.num_available and release_pin():
            continue
        return True


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
