"""A whole request on its way to a server as it came, and its answer on its way back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...core.api.protocol import BackendClosed, Call, Completion, UnsupportedCall
from ..relays import RelayReceiver, RelayRequest, RelayTarget
from .fleet import Fleet
from .flight import Dispatcher, Flight, Leg
from .keys import Encoder
from .policies import Request
from .replica import Replica, State


class Relays:
    """Whether the replicas of a fleet take whole requests, under the router's lock.

    encoder: of the prompts by which requests are placed; None: by their texts.
    """

    def __init__(self, fleet: Fleet, lock: threading.RLock) -> None:
        self._fleet, self._lock = fleet, lock
        self._known: tuple[str, bool] | None = None
        self.encoder: Encoder | None = None

    def take_tokenizer(self, tokenizer: Any) -> None:
        """Compare prompts as this tokenizer's tokens; None: as texts."""
        has_keys = hasattr(tokenizer, "key_encoder")
        self.encoder = tokenizer.key_encoder() if has_keys else tokenizer

    def are_taken(self, model: str) -> bool:
        """Whether all replicas that take calls answer requests for this model; looked up once until
        `forget`."""
        known = self._known
        if known is None or known[0] != model:
            with self._lock:
                ready = [it for it in self._fleet.replicas.values() if it.state is State.READY]
                takes = bool(ready) and all(_takes(it, model) for it in ready)
                known = self._known = model, takes
        return known[1]

    def forget(self) -> None:
        """Replicas may have changed."""
        self._known = None

    def end(self) -> None:
        """The running event loop ends."""
        for one in list(self._fleet.replicas.values()):
            if one.relay_target is not None:
                one.relay_target.end_relays()


def _takes(replica: Replica, model: str) -> bool:
    target = replica.relay_target
    return target is not None and target.takes_relays(model)


class RelayFlight(Flight):
    """A request, and who takes its answer, in the event loop in which it was made. It goes to
    another replica only where nothing has been delivered yet: a stream's first piece, or the whole
    of any other answer."""

    def __init__(
        self, router: Dispatcher, relayed: RelayRequest, receiver: RelayReceiver, request: Request
    ) -> None:
        super().__init__(router, request, relayed.call.deadline)
        self._relayed, self._receiver = relayed, receiver
        self._loop = asyncio.get_running_loop()
        self._is_done = False

    @property
    def call(self) -> Call:
        """What it is placed by."""
        return self._relayed.call

    @property
    def is_done(self) -> bool:
        """As `Flight.is_done`."""
        return self._is_done

    def _send_to(self, leg: Leg) -> None:
        self._in_loop(lambda: self._send_now(leg))

    def _send_now(self, leg: Leg) -> None:
        receiver = _Receiver(self, leg, self._relayed.is_stream)
        if leg.is_over:
            return
        host: RelayTarget | None = leg.replica.relay_target
        if host is None:
            kind = type(leg.replica.backend).__name__
            receiver.fail(UnsupportedCall("relay", kind, "replicas that take whole requests"))
            return
        relayed, left = self._relayed, self._seconds_left()
        if left is not None:
            relayed = replace(relayed, client={**relayed.client, "deadline": left})
        cancel = host.relay(relayed, receiver)
        leg.cancel = lambda: self._in_loop(cancel)
        if self._is_cancelled or leg.is_over:  # before the replica had it
            cancel()

    def _end_early(self) -> None:
        self.fail(BackendClosed("the request was ended"))

    def _deliver(self, error: BaseException) -> None:
        if self._ends():
            self._in_loop(lambda: self._receiver.fail(error))

    def _ends(self) -> bool:
        """Whether this is its end; it has only one."""
        with self._lock:
            is_first, self._is_done = not self._is_done, True
        return is_first

    def _in_loop(self, action: Callable[[], object]) -> None:
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            action()
            return
        with suppress(RuntimeError):  # the loop has ended: nobody waits there
            self._loop.call_soon_threadsafe(action)

    # --- what a replica answers ------------------------------------------------------------------

    def begin(self, leg: Leg, status: int, headers: Mapping[str, str]) -> None:
        """Its answer begins."""
        if self._delivers(leg) and not self._is_done:
            self._receiver.begin(status, headers)

    def take(self, leg: Leg, piece: bytes) -> None:
        """A piece of its answer."""
        if self._delivers(leg) and not self._is_done:
            self._receiver.take(piece)

    def end(self, leg: Leg, completion: Completion | None) -> None:
        """It has ended well there."""
        if not self._ends_leg(leg):
            return
        self._router.land(self, leg.replica, completion)
        if self._ends():
            self._receiver.end(completion)
        self._router.end(self)

    def failed(self, leg: Leg, error: BaseException) -> None:
        """It has ended there in an error."""
        if not self._ends_leg(leg):
            return
        if self._is_cancelled:  # which says nothing of the replica
            self._router.land(self, leg.replica, None)
            self._end_early()
            return
        self._failed(leg.replica, error)


class _Receiver:
    """A `RelayReceiver` for one leg. What does not stream is handed on when it has come as a
    whole."""

    def __init__(self, flight: RelayFlight, leg: Leg, is_stream: bool) -> None:
        self._flight, self._leg, self._is_stream = flight, leg, is_stream
        self._begun: tuple[int, Mapping[str, str]] | None = None
        self._pieces: list[bytes] = []

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """As `RelayReceiver.begin`."""
        self._begun = status, headers

    def take(self, piece: bytes) -> None:
        """As `RelayReceiver.take`."""
        if not self._is_stream:
            self._pieces.append(piece)
            return
        self._hand_on()
        self._flight.take(self._leg, piece)

    def end(self, completion: Completion | None) -> None:
        """As `RelayReceiver.end`."""
        self._hand_on()
        if self._pieces:
            self._flight.take(self._leg, b"".join(self._pieces))
        self._flight.end(self._leg, completion)

    def fail(self, error: BaseException) -> None:
        """As `RelayReceiver.fail`."""
        self._flight.failed(self._leg, error)

    def _hand_on(self) -> None:
        """What has begun, once."""
        if self._begun is not None:
            self._flight.begin(self._leg, *self._begun)
            self._begun = None
