"""The second tier: host slots for tokens offloaded from the pool.

It knows which nodes have a copy there and in which order copies are dropped, and lists the copies
to do; the owner of the memory does them, in this order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ..api.batch import Copy
from .node import Node
from .pages import SlotPool


class HostTier:
    """Host slots 0 to capacity - 1.

    is_eager: tokens are copied as soon as they are cached (write-through), so that leaving the pool
      costs nothing later; else when they leave it (write-back).
    num_saved, num_loaded: tokens copied to and from the host since the start.
    """

    def __init__(self, capacity: int, is_eager: bool = False) -> None:
        self.is_eager = is_eager
        self.num_saved = 0
        self.num_loaded = 0
        self._slots = SlotPool(capacity)
        self._nodes: OrderedDict[Node, None] = OrderedDict()  # what goes first, first
        self._copies: list[Copy] = []

    @classmethod
    def of(cls, capacity: int, policy: str) -> HostTier | None:
        """The tier of a policy, "back" or "through"; None for a capacity of 0."""
        return cls(capacity, policy == "through") if capacity else None

    @property
    def num_stored(self) -> int:
        """Tokens stored here."""
        return self._slots.capacity - self._slots.num_free

    def room_for(self, node: Node) -> Iterator[Node]:
        """Forget copies until there is room for one of this node, if need be. Yields the
        nodes that are stored nowhere now: the caller removes each from the tree at once."""
        if node.host is not None or node.size > self._slots.capacity:
            return
        for _ in range(len(self._nodes)):
            if self._slots.num_free >= node.size:
                return
            other = next(iter(self._nodes))
            if not other.is_in_pool and (other.lock_count > 0 or other.children):
                self._nodes.move_to_end(other)  # wanted at this moment, or needed by those below
                continue
            self.drop(other)
            if not other.is_in_pool:
                yield other

    def save(self, node: Node) -> bool:
        """See that a node of the pool has a copy here, and let it go last; False where there is no
        room for it."""
        if node.host is None:
            node.host = self._slots.allocate(node.size)
            if node.host is None:
                return False
            self._copies.append(Copy(node.slots, node.host, is_load=False))
            self.num_saved += node.size
        self._nodes[node] = None
        self._nodes.move_to_end(node)
        return True

    def load(self, node: Node) -> None:
        """Copy a stored node into its slots of the pool; its copy here stays."""
        assert node.host is not None and len(node.slots) == node.size
        self._copies.append(Copy(node.slots, node.host, is_load=True))
        self._nodes.move_to_end(node)
        self.num_loaded += node.size

    def split(self, upper: Node, lower: Node) -> None:
        """An edge was cut in two: each half has its part of the copy."""
        if lower.host is None:
            return
        num_upper = upper.size
        upper.host, lower.host = lower.host[:num_upper].copy(), lower.host[num_upper:].copy()
        self._nodes[upper] = None

    def drop(self, node: Node) -> None:
        """Forget a node's copy, if it has one."""
        if node.host is not None:
            self._slots.release(node.host)
            node.host = None
            del self._nodes[node]

    def take_copies(self) -> tuple[Copy, ...]:
        """The copies to do before the next tokens are computed, in order; each is returned once."""
        copies, self._copies = tuple(self._copies), []
        return copies

    def check(self, nodes: list[Node]) -> None:
        """Assert that every copy is that of one of the tree's nodes, and counted once."""
        self._slots.check()
        owners = [node for node in nodes if node.host is not None]
        assert set(owners) == set(self._nodes), "the host's order is not that of the nodes it holds"
        assert sum(len(node.host) for node in owners if node.host is not None) == self.num_stored
