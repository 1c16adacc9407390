"""A replica as its router knows it: a backend, its state, and the calls that are open there."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...core.api.protocol import Backend, BackendInfo, InvalidCall
from ..relays import RelayTarget


class State(enum.Enum):
    """Of a replica. Only one that is READY takes calls.

    HANGING: it has not answered for some time. DEAD: its backend says that it has ended; it may
    come back. DRAINING: what is open there ends, and nothing new begins. REMOVED: for good.
    """

    READY = "ready"
    DRAINING = "draining"
    HANGING = "hanging"
    DEAD = "dead"
    REMOVED = "removed"


@dataclass(slots=True, eq=False)
class Replica:
    """A replica. Its router changes it, under the router's lock.

    name: by which all routers know it. index: of its bit in sets of replicas; a new one whenever it
      has lost what it held. num_open: calls of this router. work: of these, as their policy
      counts it. num_foreign: calls of others, as it reported.
    num_failures: deaths since it last answered a call. died: when the last one was.
    life, report_end, read_at: of its last report of evictions: see `EvictionReport`, and when.
    info: as it last reported. seen: when that was. fault: why it is not ready.
    may_return: whether a dead one may come back. relay_target: its backend, where that takes whole
      requests.
    """

    name: str
    backend: Backend
    index: int
    info: BackendInfo
    state: State = State.READY
    num_open: int = 0
    work: int = 0
    num_foreign: int = 0
    num_sent: int = 0
    seen: float = field(default_factory=time.monotonic)
    fault: str = ""
    may_return: bool = True
    num_failures: int = 0
    life: str = ""
    report_end: int = -1
    read_at: float = 0.0
    died: float = 0.0
    relay_target: RelayTarget | None = field(init=False)

    def __post_init__(self) -> None:
        self.relay_target = self.backend if isinstance(self.backend, RelayTarget) else None

    @property
    def bit(self) -> int:
        """Its bit in sets of replicas."""
        return 1 << self.index


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """A replica, as `Router.replicas` shows it. open: calls of this router there. sent: since the
    start. fault: why it takes no calls."""

    name: str
    state: str
    open: int
    sent: int
    fault: str = ""


def named_backends(replicas: Sequence[Backend] | Mapping[str, Backend]) -> dict[str, Backend]:
    """Backends by their names: those of a mapping, or numbers. Raises InvalidCall."""
    if isinstance(replicas, Mapping):
        named = dict(replicas)
    else:
        named = {str(index): backend for index, backend in enumerate(replicas)}
    if not named or not all(isinstance(it, Backend) for it in named.values()):
        raise InvalidCall("replicas", replicas, "at least one backend")
    return named


def check_seconds(**given: float) -> None:
    """Raise InvalidCall for what is no number of seconds."""
    for name, seconds in given.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise InvalidCall(name, seconds, "a number of seconds > 0")
