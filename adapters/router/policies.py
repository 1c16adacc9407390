"""Which replica takes a call: the policies, by name.

A policy sees a request (the digests of its prompt, the name of its root), the load of the replicas
and the meta-tree. It knows nothing of calls on their way, health or connections.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ...core.api.protocol import InvalidCall
from ...core.common.suggestions import did_you_mean
from .loads import Loads, bits_of
from .popularity import Popularity
from .rendezvous import Rendezvous
from .tree import Held, MetaTree

UNIT = 1 << 7  # bytes of keys that count as much as a call: 256 tokens
_FEW = 4  # a replica has few calls beside one that has so many times as many
MOST_ROOTS = 1 << 16  # names of roots that are remembered


@dataclass(frozen=True, slots=True)
class Request:
    """What a policy sees of a call. key: digests of its prompt; empty for a short one. rest: what
    is left of the prompt after the last of these. root: whose it is and its name, where the call
    has a hint."""

    namespace: str
    key: bytes = b""
    rest: bytes = b""
    root: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """The replica that was chosen, by its bit (0: there is none), and how many bytes of the key it
    is expected to hold."""

    bit: int
    expected: int = 0

    def work(self, request: Request) -> int:
        """Of a request there: 1, and 1 more for every `UNIT` bytes of keys that it has to
        compute."""
        return 1 + (len(request.key) - self.expected) // UNIT


class Policy(Protocol):
    """A way to choose among replicas. uses_tree: whether it reads the meta-tree."""

    uses_tree: bool

    def choose(self, request: Request, among: int) -> Placement:
        """One of these replicas, a set that may be empty. The request will be sent there."""

    def forget(self, holders: int) -> None:
        """What these replicas held is gone."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """What policies choose by: open calls, their work (see `Placement.work`), and who holds which
    prefix."""

    loads: Loads
    work: Loads
    tree: MetaTree
    rendezvous: Rendezvous


class RoundRobin:
    """One replica after the other."""

    uses_tree = False

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._last = 0

    def choose(self, request: Request, among: int) -> Placement:
        """As `Policy.choose`."""
        among &= self._replicas.loads.everyone
        later = among & ~((self._last << 1) - 1) if self._last else among
        chosen = (later or among) & -(later or among)
        self._last = chosen
        return Placement(chosen)

    def forget(self, holders: int) -> None:
        """It remembers nothing."""


class LeastLoaded(RoundRobin):
    """The replica with the fewest calls; in turn where several have as few."""

    def choose(self, request: Request, among: int) -> Placement:
        """As `Policy.choose`."""
        return super().choose(request, self._replicas.loads.least(among)[0])


class Random:
    """Any replica."""

    uses_tree = False

    def __init__(self, replicas: Replicas, seed: int | None = None) -> None:
        self._replicas = replicas
        self._random = random.Random(seed)
        self._among, self._bits = 0, list[int]()

    def choose(self, request: Request, among: int) -> Placement:
        """As `Policy.choose`."""
        bits = self._bits_of(among & self._replicas.loads.everyone)
        return Placement(self._random.choice(bits) if bits else 0)

    def forget(self, holders: int) -> None:
        """It remembers nothing."""

    def _bits_of(self, among: int) -> list[int]:
        """The bits of a set, which is mostly the same as before."""
        if among != self._among:
            self._among, self._bits = among, bits_of(among)
        return self._bits


class PowerOfTwo(Random):
    """The less loaded one of two replicas that are drawn."""

    def choose(self, request: Request, among: int) -> Placement:
        """As `Policy.choose`."""
        loads = self._replicas.loads
        bits = self._bits_of(among & loads.everyone)
        drawn = self._random.sample(bits, min(2, len(bits)))
        return Placement(min(drawn, key=loads.of, default=0))


class Affinity:
    """The replica that holds the longest prefix of the prompt, or the root that its hint names,
    unless that is too busy: then the least loaded one, which holds the root as well from then on.

    A prefix counts where it is at least a quarter of the prompt, or the call's hint names its root.
    Anything else is placed by load, and where that leaves a choice by rendezvous hashing. Load is
    the work of open calls (`Placement.work`), so that roots that have to be computed are spread as
    calls are; where that misleads it counts calls.

    max_gap, max_ratio: a replica that has so many calls more than the least loaded one, and so many
      times as many, is too busy whatever it holds.
    gap, idle: one that would have so much more work than the least loaded one even after the call
      was sent there is too busy, too, if that has no more calls than `idle` or than a quarter, and
      what is computed again is paid out of a credit: `share` of what has to be computed anyway,
      `loss` of all prompts, and `credit` bytes of keys for each replica to begin with. So balance
      costs no more than this share of the work and this much of the hit rate, and roots that are
      fewer than the replicas are replicated at once. (Who weighs the cost of each call alone has
      every root everywhere in the end.)
    popular, reserve: a root with less than `popular` of one replica's share of recent calls is not
      paid out of the last `reserve` of the most credit: a copy of it would soon be without calls
      while the replica that has too many keeps them.
    """

    uses_tree = True

    def __init__(
        self,
        replicas: Replicas,
        *,
        max_gap: int = 64,
        max_ratio: float = 1.5,
        gap: int = 8,
        idle: int = 2,
        share: float = 0.05,
        loss: float = 0.005,
        credit: int = 1 << 9,
        popular: float = 0.5,
        reserve: float = 0.5,
    ) -> None:
        self._replicas = replicas
        self._max_gap, self._max_ratio = max_gap, max_ratio
        self._gap, self._idle = gap, idle
        self._share, self._loss, self._credit_each = share, loss, credit
        self._popular, self._reserve = popular, reserve
        self._popularity = Popularity()
        self._most_credit = self._credit = 0.0
        self._roots: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.num_spills = 0

    def choose(self, request: Request, among: int) -> Placement:
        """As `Policy.choose`."""
        among &= self._replicas.loads.everyone
        held = self._replicas.tree.find(request.namespace, request.key, among)
        self._popularity.count(request.namespace, request.key)
        self._earn(len(request.key), held[0].length if held else 0, among)
        placement = self._choose(request, among, held)
        self._replicas.tree.add(request.namespace, request.key, placement.bit)
        if request.root is not None and placement.bit:
            self._remember(request.root, placement.bit)
        return placement

    def forget(self, holders: int) -> None:
        """As `Policy.forget`."""
        for root, known in list(self._roots.items()):
            if known & holders:
                self._roots[root] = known & ~holders

    def _earn(self, num_bytes: int, num_held: int, among: int) -> None:
        most = float(self._credit_each * among.bit_count())
        if most > self._most_credit:
            self._credit += most - self._most_credit
        self._most_credit = most
        earned = self._share * (num_bytes - num_held) + self._loss * num_bytes
        self._credit = min(most, self._credit + earned)

    def _choose(self, request: Request, among: int, held: list[Held]) -> Placement:
        holders = self._holders(request, among, held)
        least = self._least(among)
        if not holders:  # nobody holds enough of it
            return self._one_of(request, least, held)
        nearest = self._least(holders)
        kept = self._one_of(request, self._longest(nearest, held), held)
        if self._gap_of(kept, least) < min(self._gap, self._max_gap):
            return kept
        spilled = self._one_of(request, self._longest(least, held), held)
        if self._is_far_too_busy(kept, spilled) or self._is_worth(request, among, kept, spilled):
            self.num_spills += 1
            return spilled
        return kept

    def _least(self, among: int) -> int:
        """Those of a set with the least work, without those that have many more calls than others:
        what a call had to compute first may be done long before it ends."""
        loads = self._replicas.loads
        _, low = loads.least(among)
        return self._replicas.work.least(loads.up_to(low + low // 2 + self._gap, among))[0]

    def _holders(self, request: Request, among: int, held: list[Held]) -> int:
        """The replicas that a call is drawn to."""
        of_root = 0 if request.root is None else self._roots.get(request.root, 0) & among
        if held and (of_root & held[0].holders or 4 * held[0].length >= len(request.key)):
            return of_root & held[0].holders or held[0].holders
        return of_root

    def _gap_of(self, kept: Placement, least: int) -> int:
        work = self._replicas.work
        return work.of(kept.bit) - work.of(least & -least)

    def _is_far_too_busy(self, kept: Placement, spilled: Placement) -> bool:
        load, low = self._replicas.loads.of(kept.bit), self._replicas.loads.of(spilled.bit)
        return load - low > self._max_gap and load > self._max_ratio * low

    def _is_worth(self, request: Request, among: int, kept: Placement, spilled: Placement) -> bool:
        """Whether a replica with few calls takes one from another, which it does if its work stays
        less by the gap, and what is computed again can be paid."""
        cost, loads = kept.expected - spilled.expected, self._replicas.loads
        few = max(self._idle, loads.of(kept.bit) // _FEW)
        if (
            loads.of(spilled.bit) > few
            or self._gap_of(kept, spilled.bit) - cost // UNIT < self._gap
            or cost > self._credit_for(request, among)
        ):
            return False
        self._credit -= cost
        return True

    def _credit_for(self, request: Request, among: int) -> float:
        """The credit that a copy of what a call begins with may be paid out of."""
        share = self._popularity.share(request.namespace, request.key)
        is_popular = share * among.bit_count() >= self._popular
        return self._credit if is_popular else self._credit - self._reserve * self._most_credit

    def _one_of(self, request: Request, among: int, held: list[Held]) -> Placement:
        """One of a set of equals: the one that wins the request's root, or else its prompt."""
        root = request.root
        key = request.key[:8] if root is None else "\n".join(root).encode()
        bit = self._replicas.rendezvous.best(key or b"", among)
        return Placement(bit, next((it.length for it in held if it.holders & bit), 0))

    def _longest(self, among: int, held: list[Held]) -> int:
        """Those of a set that hold most."""
        return next((it.holders & among for it in held if it.holders & among), among)

    def _remember(self, root: tuple[str, str], bit: int) -> None:
        self._roots[root] = self._roots.pop(root, 0) | bit
        if len(self._roots) > MOST_ROOTS:
            self._roots.popitem(last=False)


POLICIES: Mapping[str, type[Affinity] | type[RoundRobin] | type[Random]] = {
    "affinity": Affinity,
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "power-of-two": PowerOfTwo,
    "random": Random,
}


def policy_of(name: object, replicas: Replicas) -> Policy:
    """The policy of this name. Raises InvalidCall."""
    if not isinstance(name, str) or name not in POLICIES:
        allowed = ", ".join(POLICIES) + did_you_mean(str(name), list(POLICIES))
        raise InvalidCall("policy", name, allowed)
    return POLICIES[name](replicas)
