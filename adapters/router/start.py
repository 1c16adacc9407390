"""Starts a router: over servers that run already, or over replicas in child processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...core.api.protocol import Backend, InvalidCall
from .policies import POLICIES
from .router import Router

MOST_REPLICAS = 64  # of one machine


def check_policy(policy: object) -> None:
    """Raise InvalidCall for what is no policy's name."""
    if not isinstance(policy, str) or policy not in POLICIES:
        raise InvalidCall("policy", policy, ", ".join(POLICIES))


def over(
    names: Sequence[str], start: Callable[[int], Backend], policy: str, **settings: Any
) -> Router:
    """A router over what `start` gives for each of these places: the first one, which may have to
    compile or to download, then all others at once. Closes them and raises what one of them raised,
    if any did. settings: of `Router`."""
    check_policy(policy)
    backends = [start(0)]
    errors: list[BaseException] = []
    with ThreadPoolExecutor(len(names), "forkroot-start") as pool:
        for future in [pool.submit(start, index) for index in range(1, len(names))]:
            try:
                backends.append(future.result())
            except BaseException as error:
                errors.append(error)
    try:
        if errors:
            raise errors[0]
        return Router(dict(zip(names, backends, strict=True)), policy, **settings)
    except BaseException:
        for backend in backends:
            backend.close()
        raise


def names_of(models: Sequence[object]) -> list[str]:
    """The names of replicas that are given as models or URLs. Raises InvalidCall."""
    names = [str(model).rstrip("/") for model in models]
    if not names or len(set(names)) < len(names):
        raise InvalidCall("model", list(models), "at least one URL or model, none of them twice")
    return names


def settings_of(index: int, replicas: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one of several engines of a machine: each has its share of the cores and of
    the memory, or a GPU of its own. Raises InvalidCall."""
    device = settings.get("device", "cpu")
    found = {"engines": replicas, **settings}
    if isinstance(device, str) and device.startswith("cuda"):
        if device != "cuda" or settings.get("ranks", 1) != 1:
            field = "device" if device != "cuda" else "ranks"
            raise InvalidCall(field, settings.get(field), "cuda and one rank, with replicas")
        found |= {"device": f"cuda:{index}", "engines": 1}
    return found


def check_replicas(replicas: object) -> int:
    """The number of replicas. Raises InvalidCall."""
    if type(replicas) is not int or not 1 <= replicas <= MOST_REPLICAS:
        raise InvalidCall("replicas", replicas, f"an integer from 1 to {MOST_REPLICAS}")
    return replicas
