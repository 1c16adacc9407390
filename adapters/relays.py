"""Whole requests that a router sends on to a server as they came, and whose answers come back as
they are: what goes there, and what comes back. Nothing here knows what is in a body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ..core.api.protocol import Call, Completion

RELAY_FEATURE = "relay"  # of the info of a server that answers such requests


class Flow:
    """Whether more of an answer may come. is_full: its reader is behind. on_room: called once when
    it no longer is."""

    def __init__(self) -> None:
        self.is_full = False
        self.on_room: Callable[[], object] | None = None

    def open(self) -> None:
        """There is room again."""
        self.is_full = False
        action, self.on_room = self.on_room, None
        if action is not None:
            action()


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """A request. path, body: as they came. call: what it is placed by: prompt, hint, namespace and
    deadline. client: whose it is, for the server's header. request_id: by which it can be aborted.
    is_stream: whether a part of its answer is of use."""

    path: str
    body: bytes
    call: Call
    client: Mapping[str, object]
    request_id: str
    is_stream: bool
    flow: Flow = field(default_factory=Flow)


class RelayReceiver(Protocol):
    """Takes an answer, in order: `begin`, any number of `take`, `end`; or `fail`, at any time, as
    the only ending. All are called in one event loop."""

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """The answer has begun."""

    def take(self, piece: bytes) -> None:
        """A piece of the body."""

    def end(self, completion: Completion | None) -> None:
        """The whole answer has come. completion: the tokens used, and those of the outputs, as far
        as the server has reported them; None for a refusal."""

    def fail(self, error: BaseException) -> None:
        """It has ended in an error."""


@runtime_checkable
class RelayTarget(Protocol):
    """A server, to which whole requests are sent as they came."""

    def takes_relays(self, model: str) -> bool:
        """Whether the other end answers requests for a model of this name as this end would."""

    def relay(self, request: RelayRequest, receiver: RelayReceiver) -> Callable[[], object]:
        """Send a request without waiting, in a running event loop; returns what ends it early.
        Raises nothing."""

    def end_relays(self) -> None:
        """The running event loop ends: close its connections; open requests end in an error."""


@runtime_checkable
class RelayHost(Protocol):
    """A backend over several servers, which sends each request to one of them."""

    def takes_relays(self, model: str) -> bool:
        """As `RelayTarget.takes_relays`, of all of them."""

    def prepare_relay(
        self, request: RelayRequest
    ) -> Callable[[RelayReceiver], Callable[[], object]]:
        """Tokenize what a request is placed by, which may take some time, in any thread. What
        comes back sends it, as `RelayTarget.relay` does. Raises ForkrootError."""

    def end_relays(self) -> None:
        """As `RelayTarget.end_relays`, of all of them."""
