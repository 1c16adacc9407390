"""Another router's policy, made again from its description, to compare with.

SGLang's cache-aware policy, as described: a request goes to the worker whose approximate tree
matches the longest prefix if that is more than 0.3 of the request, else to the worker with the
smallest tree; unless the load is imbalanced (the largest queue has more than 64 more than the
smallest, and more than 1.5 times as much): then to the shortest queue.
"""

from __future__ import annotations

from forkroot.adapters.router.loads import bits_of
from forkroot.adapters.router.policies import Placement, Replicas, Request

MATCH, GAP, RATIO = 0.3, 64, 1.5


class SglangPolicy:
    """The policy, over our own tree, which holds what was sent."""

    uses_tree = False  # nor answers

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._sizes: dict[int, int] = {}
        self._among, self._bits = 0, list[int]()

    def choose(self, request: Request, among: int) -> Placement:
        """As `Policy.choose`."""
        loads, tree = self._replicas.loads, self._replicas.tree
        among &= loads.everyone
        if among != self._among:
            self._among, self._bits = among, bits_of(among)
        bits = self._bits
        if not bits:
            return Placement(0)
        least, low = loads.least(among)
        high = max(map(loads.of, bits))
        held = tree.find(request.namespace, request.key, among)
        if high - low > GAP and high > RATIO * low:
            bit = least & -least
        elif held and held[0].length > MATCH * len(request.key):
            bit = held[0].holders & -held[0].holders
        else:
            bit = min(bits, key=lambda it: self._sizes.get(it, 0))
        known = next((it.length for it in held if it.holders & bit), 0)
        self._sizes[bit] = self._sizes.get(bit, 0) + len(request.key) - known
        tree.add(request.namespace, request.key, bit)
        return Placement(bit, known)

    def forget(self, holders: int) -> None:
        """These trees are empty."""
        for bit in bits_of(holders):
            self._sizes.pop(bit, None)
