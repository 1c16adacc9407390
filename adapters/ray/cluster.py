"""Actors with engines on a cluster of Ray: joining it, room for each actor, starting them.

It knows what an actor runs only as a function that makes a backend.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ...core.api.codec import unpack
from ...core.api.protocol import Backend, BackendClosed, BackendInfo, ForkrootError, InvalidCall
from .actor import EngineActor
from .backend import ActorBackend

NAMESPACE = "forkroot"  # of actors with names
_MOST_CALLS = 1000  # of an actor's methods at a time
_ADDRESSES = '"ray:auto" (the cluster of this machine), "ray:local" or "ray://HOST:10001"'


def join(address: str) -> None:
    """Connect this process to a cluster, if it is not: "ray:auto" to one that runs here or that
    RAY_ADDRESS names, "ray:local" to a new one on this machine, "ray://HOST:PORT" to one elsewhere.
    No usage statistics are sent. Raises InvalidCall, BackendClosed where there is no cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address not in ("ray:auto", "ray:local") and not address.startswith("ray://"):
        raise InvalidCall("model", address, _ADDRESSES)
    if ray.is_initialized():
        return
    known = {"ray:auto": "auto", "ray:local": "local"}
    options = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.WARNING}
    try:
        ray.init(known.get(address, address), **options)
    except (ConnectionError, RayError, RuntimeError) as error:
        raise BackendClosed(f"no cluster of Ray at {address}: {error!s:.300}") from error


@dataclass(frozen=True, slots=True)
class Room:
    """What an actor gets of one machine of the cluster. resources: others, by name."""

    cpus: float = 1.0
    gpus: float = 0.0
    resources: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for name, amount in (("cpus", self.cpus), ("gpus", self.gpus), *self.resources):
            if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
                raise InvalidCall(name, amount, "a number >= 0")

    @property
    def bundle(self) -> dict[str, float]:
        """As Ray's placement groups have it."""
        found = {"CPU": self.cpus, "GPU": self.gpus, **dict(self.resources)}
        return {name: amount for name, amount in found.items() if amount}


@dataclass(frozen=True, slots=True, eq=False)
class Starter:
    """Starts actors: `make` gives the backend of each, in its own process. timeout: seconds for
    room and for the model. tokenizer: the model's, from what an engine reports."""

    make: Callable[[], Backend]
    room: Room = Room()
    timeout: float = 600.0
    silence: float = 30.0
    tokenizer: Callable[[BackendInfo], Any] | None = None

    def start(self, name: str) -> ActorBackend:
        """One more. Raises InvalidCall if the cluster has no room, what `make` raises, and
        BackendClosed if the actor dies before it is ready."""
        group = placement_group([self.room.bundle], strategy="STRICT_PACK")
        try:
            return self._started(name, group)
        except BaseException:
            _remove(None, group)
            raise

    def _started(self, name: str, group: Any) -> ActorBackend:
        if not group.wait(self.timeout):
            free = {key: ray.available_resources().get(key, 0) for key in self.room.bundle}
            allowed = f"what the cluster has room for: each replica needs {self.room.bundle}"
            raise InvalidCall("replicas", name, f"{allowed}, and {free} are free")
        actor = (
            ray.remote(EngineActor)
            .options(
                num_cpus=self.room.cpus,
                num_gpus=self.room.gpus,
                resources=dict(self.room.resources) or None,
                max_concurrency=_MOST_CALLS,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group),
            )
            .remote(self.make)
        )
        try:
            features = unpack(ray.get(actor.start.remote(), timeout=self.timeout))
        except RayError as error:
            _remove(actor, None)
            raise BackendClosed(f"the actor {name} did not start: {error!s:.500}") from error
        if isinstance(features, ForkrootError):
            _remove(actor, None)
            raise features
        return ActorBackend(
            actor,
            name,
            lambda: _remove(actor, group),
            silence=self.silence,
            tokenizer=self.tokenizer,
        )


def _remove(actor: Any, group: Any) -> None:
    """Give back what they use. Does nothing for what is gone."""
    with contextlib.suppress(RayError, ValueError, ConnectionError, RuntimeError):
        if ray.is_initialized():
            if actor is not None:
                ray.kill(actor)
            if group is not None:
                remove_placement_group(group)
