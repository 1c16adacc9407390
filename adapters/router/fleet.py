"""The replicas of a router, and what its policy knows of them: who takes calls, how many each has,
and who holds which prefix. It changes under the router's lock, and waits for nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from ...core.api.protocol import (
    Backend,
    BackendInfo,
    EngineDied,
    InvalidCall,
)
from ...core.common.suggestions import did_you_mean
from .loads import Loads
from .policies import Affinity, Replicas, Request, policy_of
from .rendezvous import Rendezvous
from .replica import Replica, State
from .tree import MetaTree


class Assigned(NamedTuple):
    """The replica of a call, and how much work it is there."""

    replica: Replica
    work: int


class Fleet:
    """Replicas by their names. policy: its name. tree_bytes: memory of the meta-tree.

    Bits of replicas that have gone are used again once no node of the tree has them.
    """

    def __init__(self, policy: str, tree_bytes: int) -> None:
        self.replicas: dict[str, Replica] = {}
        self.loads, self.work, self.tree = Loads(), Loads(), MetaTree(tree_bytes)
        self.rendezvous = Rendezvous()
        self.policy = policy_of(policy, Replicas(self.loads, self.work, self.tree, self.rendezvous))
        self._by_bit: dict[int, Replica] = {}
        self._free: list[int] = []
        self.num_indices = 0
        self._gone = self._sweeping = 0
        self.num_placed = 0
        self.last_placed = 0.0

    @property
    def num_ready(self) -> int:
        """Replicas that take calls."""
        return self.loads.everyone.bit_count()

    @property
    def may_recover(self) -> bool:
        """Whether some replica takes calls or may do so again by itself."""
        return any(
            it.state in (State.READY, State.HANGING) or (it.state is State.DEAD and it.may_return)
            for it in self.replicas.values()
        )

    @property
    def has_ended(self) -> bool:
        """Whether all replicas have ended, and none may come back."""
        return bool(self.replicas) and all(
            it.state is State.DEAD and not it.may_return for it in self.replicas.values()
        )

    @property
    def has_stuck_calls(self) -> bool:
        """Whether a replica hangs that has calls, and another one takes calls."""
        is_hanging = any(it.state is State.HANGING and it.num_open for it in self.replicas.values())
        return is_hanging and bool(self.loads.everyone)

    @property
    def uses_tree(self) -> bool:
        """Whether the policy reads the meta-tree."""
        return self.policy.uses_tree

    def counters(self) -> dict[str, int | float]:
        """Totals of the policy."""
        counters: dict[str, int | float] = {"placed": self.num_placed}
        if isinstance(self.policy, Affinity):
            counters["spills"] = self.policy.num_spills
        return counters

    def named(self, name: str) -> Replica:
        """The replica of this name. Raises InvalidCall."""
        if name not in self.replicas:
            allowed = ", ".join(self.replicas) + did_you_mean(str(name), list(self.replicas))
            raise InvalidCall("replica", name, allowed or "none: there is no replica")
        return self.replicas[name]

    def add(self, backend: Backend, name: str | None, info: BackendInfo) -> Replica:
        """One more replica, which takes calls. Raises InvalidCall."""
        if name is None:
            name = next(
                text for n in range(len(self.replicas) + 1) if (text := str(n)) not in self.replicas
            )
        if not isinstance(name, str) or not name or name in self.replicas:
            raise InvalidCall("name", name, "a text that no other replica has for a name")
        other = next((it.info for it in self.replicas.values()), info)
        for field in ("model", "vocabulary_size"):
            if getattr(info, field) != getattr(other, field):
                allowed = f"{getattr(other, field)!r}, as the other replicas have"
                raise InvalidCall(field, getattr(info, field), allowed)
        found = self.replicas[name] = Replica(name, backend, self._index(), info)
        self.enter(found)
        return found

    def enter(self, replica: Replica) -> None:
        """A replica takes calls from now on."""
        self._by_bit[replica.bit] = replica
        self.rendezvous.enter(replica.index, replica.name)
        replica.state, replica.fault = State.READY, ""
        self.loads.leave(replica.bit)
        self.work.leave(replica.bit)
        self.loads.enter(replica.bit, replica.num_open + replica.num_foreign)
        self.work.enter(replica.bit, replica.work + replica.num_foreign)

    def leave(self, replica: Replica, state: State, fault: str) -> None:
        """A replica takes no more calls for this reason; what it holds is not forgotten."""
        replica.state, replica.fault = state, fault
        self.loads.leave(replica.bit)
        self.work.leave(replica.bit)

    def die(self, replica: Replica, error: BaseException) -> None:
        """A replica has ended, and what it held is gone; where it only cannot be reached, that is
        found out when it comes back."""
        replica.may_return = not isinstance(error, EngineDied) or error.is_replaced
        replica.num_failures += 1
        replica.died = time.monotonic()
        self.leave(replica, State.DEAD, str(error))
        if isinstance(error, EngineDied):
            self.renew(replica)

    def come_back(self, replica: Replica, info: BackendInfo) -> None:
        """A replica takes calls again. What it held is gone if it was started anew: then it counts
        fewer calls than before, or does not tell."""
        calls = info.counters.get("calls", -1)
        if calls < replica.info.counters.get("calls", 0):
            self.renew(replica)
        self.enter(replica)

    def renew(self, replica: Replica) -> None:
        """What a replica held is gone; it may go on taking calls."""
        takes_calls = bool(self.loads.everyone & replica.bit)
        self._retire(replica)
        replica.index = self._index()
        replica.life, replica.report_end = "", -1
        if takes_calls:
            self.enter(replica)
        else:
            replica.num_foreign = 0

    def remove(self, replica: Replica) -> None:
        """Forget a replica."""
        self._retire(replica)
        if self.replicas.get(replica.name) is replica:
            del self.replicas[replica.name]

    def assign(self, request: Request, avoided: int) -> Assigned | None:
        """The replica that takes this request, which has one more call now."""
        placement = self.policy.choose(request, self.loads.everyone & ~avoided)
        if not placement.bit:
            return None
        self.num_placed += 1
        self.last_placed = time.monotonic()
        found = self._by_bit[placement.bit]
        work = placement.work(request)
        self.loads.change(found.bit, 1)
        self.work.change(found.bit, work)
        found.num_open += 1
        found.num_sent += 1
        found.work += work
        return Assigned(found, work)

    def land(self, replica: Replica, work: int, has_answered: bool) -> None:
        """A call has ended at a replica, to which it was assigned as so much work."""
        if has_answered:
            replica.num_failures = 0
        replica.num_open -= 1
        replica.work -= work
        self.loads.change(replica.bit, -1)
        self.work.change(replica.bit, -work)

    def hold(self, replica: Replica, namespace: str, keys: Iterable[bytes]) -> None:
        """A replica holds these from now on, if it is there."""
        if self._by_bit.get(replica.bit) is replica:
            for key in keys:
                self.tree.add(namespace, key, replica.bit)

    def note_info(self, replica: Replica, info: BackendInfo, num_open: int) -> None:
        """A replica has reported what it runs, when it had at most `num_open` calls of this router;
        those of others are part of its load."""
        replica.info = info
        there = int(info.load.get("running", 0) + info.load.get("waiting", 0))
        foreign = max(0, there - num_open)
        self.loads.change(replica.bit, foreign - replica.num_foreign)
        self.work.change(replica.bit, foreign - replica.num_foreign)
        replica.num_foreign = foreign

    def forget_all(self) -> None:
        """Nobody holds anything."""
        self.tree.clear()
        self.policy.forget(self.loads.everyone)

    def sweep(self, max_nodes: int) -> bool:
        """Take the bits of those that are gone out of some nodes; whether none is left to do."""
        if not self._sweeping:
            self._sweeping, self._gone = self._gone, 0
        if not self._sweeping:
            return True
        if self.tree.sweep(self._sweeping, max_nodes):
            self._free += [
                index for index in range(self._sweeping.bit_length()) if self._sweeping >> index & 1
            ]
            self._sweeping = 0
        return not (self._sweeping or self._gone)

    def check(self) -> None:
        """Assert the invariants."""
        self.tree.check()
        ready = {it.bit for it in self.replicas.values() if it.state is State.READY}
        assert sum(ready) == self.loads.everyone, "others take calls than those that are ready"
        for one in self.replicas.values():
            assert one.num_open >= 0 and self._by_bit.get(one.bit, one) is one
            if one.bit in ready:
                load = one.num_open + one.num_foreign
                assert self.loads.of(one.bit) == load, f"the load of {one.name} is wrong"
                load = one.work + one.num_foreign
                assert self.work.of(one.bit) == load, f"the work of {one.name} is wrong"

    def _index(self) -> int:
        if self._free:
            return self._free.pop()
        self.num_indices += 1
        return self.num_indices - 1

    def _retire(self, replica: Replica) -> None:
        self.loads.leave(replica.bit)
        self.work.leave(replica.bit)
        self.policy.forget(replica.bit)
        self._by_bit.pop(replica.bit, None)
        self._gone |= replica.bit
