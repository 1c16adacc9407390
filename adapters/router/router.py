"""The router: a `Backend` over replicas of one model (paper, data-parallel RadixAttention).

It places every call by its policy, sends it again where a replica ends before it answers, watches
the replicas, and lets them come and go while programs run. It knows the protocol only: a replica is
any `Backend`, in this process, in another one, or elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...core.api.owner import Owner, ProcessLocal
from ...core.api.program_report import ProgramReport
from ...core.api.protocol import (
    Backend,
    BackendClosed,
    BackendInfo,
    Call,
    Completion,
    EngineDied,
    NodeView,
    Reply,
    as_call,
)
from ...core.api.reply import Mailbox
from ...core.common.exits import close_at_exit
from ..programs import FEATURE, ProgramHost, ProgramReceiver, ProgramRequest
from ..relays import RelayReceiver, RelayRequest
from .call_flight import CallFlight
from .fleet import Fleet
from .flight import End, Flight
from .health import Watch
from .keys import Encoder, answered, request_of
from .program_flight import ProgramFlight
from .relay_flight import RelayFlight, Relays
from .replica import Replica, ReplicaView, State, check_seconds, named_backends
from .reports import EvictionReader
from .views import joined_info, joined_report, joined_snapshot

_PATIENCE = 30.0


class Router(ProcessLocal):
    """As `Backend`, over replicas of one model, which it closes when it is closed.

    replicas: at least one; a mapping names them, else they are "0", "1" and so on. Routers side by
      side agree on where a prefix belongs if they give the replicas the same names.
    policy: "affinity", "round-robin", "least-loaded", "power-of-two" or "random".
    tokenizer: of the model, by which prompts are compared as tokens. None: that of the first
      replica, if it has one; without one they are compared as texts.
    heartbeat: seconds between looks at each replica. hang_timeout: seconds without an answer after
      which it gets no more calls, until it answers. patience: seconds for which a call waits where
      no replica can take it, but one may come back.
    tree_bytes: memory of the meta-tree.
    fleet, watch: its parts, for tests and for the simulation.

    Raises InvalidCall for a bad setting, and for replicas of different models.
    """

    def __init__(
        self,
        replicas: Sequence[Backend] | Mapping[str, Backend],
        policy: str = "affinity",
        *,
        tokenizer: Any = None,
        heartbeat: float = 1.0,
        hang_timeout: float = 10.0,
        patience: float = _PATIENCE,
        tree_bytes: int = 256 << 20,
    ) -> None:
        named = named_backends(replicas)
        check_seconds(heartbeat=heartbeat, hang_timeout=hang_timeout, patience=patience)
        self._owner = Owner()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.fleet = Fleet(policy, tree_bytes)
        self._patience = patience
        self._open, self._held = dict[Flight, None](), dict[Flight, None]()
        self._num_resent = self._num_deaths = 0
        self._relays = Relays(self.fleet, self._lock)
        self._encoder: Encoder | None = None
        self.is_closed = False
        reader = EvictionReader(self.fleet, self._lock, lambda: self._encoder is not None)
        self.watch = Watch(self, self.fleet, self._lock, heartbeat, hang_timeout, reader)
        self.policy = policy
        for name, backend in named.items():
            self.add(backend, name)
        of_first = getattr(next(iter(named.values())), "tokenizer", None)
        self._take_tokenizer(of_first if tokenizer is None else tokenizer)
        self.watch.start()
        close_at_exit(self)

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer. Raises AttributeError where none is known."""
        if self._encoder is None:
            raise AttributeError("the replicas of this router have no tokenizer in this process")
        return self._encoder

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        """Compare prompts as this tokenizer's tokens from now on; what is known is forgotten."""
        with self._lock:
            self._take_tokenizer(tokenizer)
            self.fleet.forget_all()
            for one in self.fleet.replicas.values():
                one.life, one.report_end = "", -1

    def _take_tokenizer(self, given: Any) -> None:
        self._encoder = given
        self._relays.take_tokenizer(given)

    @property
    def is_over(self) -> bool:
        """Whether it is closed, or all its replicas have ended and none may come back."""
        with self._lock:
            return self.is_closed or self.fleet.has_ended

    # --- calls -----------------------------------------------------------------------------------

    def submit(self, call: Call) -> Mailbox:
        """Take a call without waiting for it; it is tokenized in this thread, to find who holds the
        longest prefix of it."""
        request = request_of(as_call(call), self._encoder)
        flight = CallFlight(self, call, request)
        if not self._owner.is_here:
            flight.mailbox.fail(self._owner.fork_error())
            return flight.mailbox
        self._begin(flight)
        return flight.mailbox

    def takes_programs(self) -> bool:
        """Whether all replicas that take calls run whole programs."""
        with self._lock:
            ready = [it for it in self.fleet.replicas.values() if it.state is State.READY]
            return bool(ready) and all(
                FEATURE in it.info.features and isinstance(it.backend, ProgramHost) for it in ready
            )

    def run_program(
        self, request: ProgramRequest, receiver: ProgramReceiver
    ) -> Callable[[], object]:
        """As `ProgramHost.run_program`: the run goes as a whole to the replica that holds most of
        what its first call begins with, and to another one where that ends before anything was
        reported."""
        opening = Call(request.opening, namespace=request.namespace)
        placed_by = request_of(opening, self._encoder)
        flight = ProgramFlight(self, request, receiver, placed_by)
        if self._owner.is_here:
            return self._begin(flight)
        receiver.fail(self._owner.fork_error(), {})
        return lambda: None

    def takes_relays(self, model: str) -> bool:
        """As `RelayHost.takes_relays`."""
        return self._relays.are_taken(model)

    def prepare_relay(self, request: RelayRequest) -> Callable[[RelayReceiver], Any]:
        """As `RelayHost.prepare_relay`: it goes to the replica that takes the request's call, and
        to another one where that ends before anything was delivered."""
        self._owner.check()
        key = request_of(request.call, self._relays.encoder)
        return lambda receiver: self._begin(RelayFlight(self, request, receiver, key))

    def end_relays(self) -> None:
        """As `RelayHost.end_relays`."""
        self._relays.end()

    def _begin(self, flight: Flight) -> Callable[[], object]:
        """Send it; returns what ends it early."""
        with self._lock:
            self._open[flight] = None
        flight.send()
        return flight.cancel

    def cancel(self, reply: Reply) -> None:
        """End a call early; its completion says "abort"."""
        reply.cancel()

    def info(self) -> BackendInfo:
        """The model, and the counters and the load of all replicas together, as they last reported;
        beside them those of the router: "replicas", "ready_replicas", "held" (calls that wait for a
        replica), "resent" (calls sent once more), "deaths", "meta_nodes", "meta_bytes". Raises
        BackendClosed once it is closed, EngineDied where all replicas have ended for good."""
        if self.is_closed:
            raise BackendClosed.before()
        with self._lock:
            fleet = self.fleet
            if fleet.has_ended:
                raise EngineDied("all replicas have ended, and none may come back")
            reader = self.watch.evictions
            own: dict[str, int | float] = {"resent": self._num_resent, "deaths": self._num_deaths}
            own |= {"evictions_read": reader.num_evictions, "resyncs": reader.num_resyncs}
            load = {"replicas": len(fleet.replicas), "ready_replicas": fleet.num_ready}
            load |= {"held": len(self._held), "meta_nodes": fleet.tree.num_nodes}
            load["meta_bytes"] = fleet.tree.num_bytes
            infos = [it.info for it in fleet.replicas.values()]
            return joined_info(infos, own | fleet.counters(), load)

    def snapshot(
        self, max_nodes: int | None = 1000, max_tokens: int | None = 64
    ) -> tuple[NodeView, ...]:
        """The trees of all replicas that have one and answer, each below roots of its own, whose
        namespaces begin with the replica's name."""
        with self._lock:
            ready = [it for it in self.fleet.replicas.values() if it.state is State.READY]
        return joined_snapshot(ready, max_nodes, max_tokens)

    def program_report(self, tenant: str | None = None) -> ProgramReport:
        """What programs have used on all replicas that answer, by kind. tenant: of one only."""
        return joined_report(self._backends_with("program_report"), tenant)

    def clear_cache(self) -> int:
        """Forget what no open call uses, on all replicas; returns how many tokens."""
        total = 0
        for one in self._backends_with("clear_cache"):
            total += one.clear_cache()
        with self._lock:
            self.fleet.forget_all()
        return total

    def reset_counters(self) -> None:
        """Start the counters of all replicas anew."""
        for one in self._backends_with("reset_counters"):
            one.reset_counters()
        self.watch.look()

    def check(self) -> None:
        """Assert the invariants of the router and of its replicas. For tests."""
        with self._lock:
            self.fleet.check()
        for one in self._backends_with("check"):
            one.check()

    def close(self) -> None:
        """Close the replicas; open calls end in BackendClosed. Nothing in a fork of this process.
        May be called twice."""
        if not self._owner.is_here:
            return
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            flights, replicas = list(self._open), list(self.fleet.replicas.values())
            self._changed.notify_all()
        self.watch.stop()
        for flight in flights:
            flight.abandon(BackendClosed.meanwhile())
        for one in replicas:
            one.backend.close()

    # --- replicas --------------------------------------------------------------------------------

    @property
    def replicas(self) -> tuple[ReplicaView, ...]:
        """All replicas, as they are now."""
        with self._lock:
            return tuple(
                ReplicaView(it.name, it.state.value, it.num_open, it.num_sent, it.fault)
                for it in self.fleet.replicas.values()
            )

    def add(self, backend: Backend, name: str | None = None) -> str:
        """Give calls to one more replica from now on; returns its name. Raises InvalidCall where it
        has another model than the others, or the name is taken, and what its `info` raises."""
        info = backend.info()
        with self._lock:
            if self.is_closed:
                raise BackendClosed.before()
            found = self.fleet.add(backend, name, info)
            self._relays.forget()
            self.watch.follow(found)
        self._release_held()
        return found.name

    def drain(self, name: str, timeout: float | None = None) -> None:
        """Give no more calls to a replica, and wait until its open ones have ended. `resume` undoes
        it. Raises TimeoutError after `timeout` seconds (it stays drained), InvalidCall for a name
        that is nobody's."""
        with self._changed:
            one = self.fleet.named(name)
            self.fleet.leave(one, State.DRAINING, "it is being drained")
            if not self._changed.wait_for(lambda: not one.num_open or self.is_closed, timeout):
                message = f"the replica {name} has {one.num_open} open calls after {timeout} s"
                raise TimeoutError(message)

    def resume(self, name: str) -> None:
        """Give calls to a drained replica again."""
        with self._lock:
            one = self.fleet.named(name)
            if one.state is State.DRAINING:
                self.fleet.enter(one)
        self._release_held()

    def remove(self, name: str, timeout: float | None = 0.0) -> Backend:
        """Drain a replica for at most `timeout` seconds (None: as long as it takes), and forget it.
        Calls that are still open there go on to their ends; they are sent elsewhere if it is closed
        before they have answered. Returns its backend, which is the caller's to close."""
        with self._changed:
            one = self.fleet.named(name)
            self.fleet.leave(one, State.REMOVED, "it was removed")
            self._changed.wait_for(lambda: not one.num_open or self.is_closed, timeout)
            self.fleet.remove(one)
            return one.backend

    # --- what flights ask ------------------------------------------------------------------------

    def assign(self, flight: Flight) -> Replica | None:
        """As `Dispatcher.place`."""
        with self._lock:
            if self.is_closed:
                return None
            found = self.fleet.assign(flight.request, flight.avoided)
            if found is None:
                return None
            flight.work = found.work
            self._held.pop(flight, None)
            flight.waiting_since = None
            self._num_resent += flight.num_sends > 0
            return found.replica

    def land(self, flight: Flight, replica: Replica, end: End) -> None:
        """As `Dispatcher.land`."""
        has_answered = not isinstance(end, BaseException)
        keys: Iterable[bytes] = ()
        if isinstance(flight, CallFlight | RelayFlight) and isinstance(end, Completion):
            keys = self._keys_of(flight, end)
        with self._changed:
            self.fleet.land(replica, flight.work, has_answered)
            self.fleet.hold(replica, flight.request.namespace, keys)
            is_alive = replica.state in (State.READY, State.HANGING)
            if isinstance(end, BackendClosed) and is_alive and not self.is_closed:
                self.note_death(replica, end)
            if not replica.num_open:
                self._changed.notify_all()

    def _keys_of(self, flight: CallFlight | RelayFlight, end: Completion) -> Iterable[bytes]:
        """What a replica holds besides the prompt, now that it has answered."""
        if not self.fleet.uses_tree:
            return ()
        request, call = flight.request, flight.call
        keys = {answered(request, call, it, self._encoder) for it in end.outputs}
        return [key for key in keys if len(key) > len(request.key)]

    def wait(self, flight: Flight) -> bool:
        """As `Dispatcher.wait`."""
        with self._lock:
            if self.is_closed or not self.fleet.may_recover:
                return False
            flight.avoided = 0
            if flight.waiting_since is None:
                flight.waiting_since = time.monotonic()
            self._held[flight] = None
            return True

    def has_others(self, avoided: int) -> bool:
        """As `Dispatcher.has_others`."""
        return bool(self.fleet.loads.everyone & ~avoided)

    def end(self, flight: Flight) -> None:
        """As `Dispatcher.end`."""
        with self._lock:
            self._open.pop(flight, None)
            self._held.pop(flight, None)

    # --- what the watch says ---------------------------------------------------------------------

    def note_death(self, replica: Replica, error: BaseException) -> None:
        """A replica has ended. Under the lock."""
        self._num_deaths += 1
        self.fleet.die(replica, error)

    def tick(self) -> None:
        """Send held calls that some replica can take now, and those elsewhere whose replica hangs;
        end those that waited too long, and those whose deadline is over."""
        self._relays.forget()
        self._release_held()
        now = time.monotonic()
        with self._lock:
            is_hopeless, are_stuck = not self.fleet.may_recover, self.fleet.has_stuck_calls
            late = [it for it in self._held if is_hopeless or it.waited(now) >= self._patience]
            stuck = [it for it in self._open if are_stuck or it.is_late]
        for flight in stuck:
            flight.withdraw()
        for flight in late:
            flight.give_up(self._patience)

    def _release_held(self) -> None:
        with self._lock:
            flights = list(self._held) if self.fleet.loads.everyone else []
        for flight in flights:
            flight.send()

    def _backends_with(self, method: str) -> Iterable[Any]:
        with self._lock:
            ready = [it.backend for it in self.fleet.replicas.values() if it.state is State.READY]
        return [it for it in ready if hasattr(it, method)]
