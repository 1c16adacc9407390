"""The plugin that knows clusters of Ray by their addresses; Ray is imported when one is used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...core.api.config import EngineConfig
from ...core.api.protocol import Backend, InvalidCall, InvalidModel
from ...core.common.extras import how_to_install
from ..connection import connect
from ..hookspecs import hookimpl

PREFIXES = ("ray:",)
_OWN = (
    *("replicas", "min_replicas", "max_replicas", "busy", "patience_up", "patience_down"),
    *("cpus", "gpus", "start_timeout", "silence", "policy"),
)


class Plugin:
    """As `adapters.hookspecs` has it. model_prefixes: of all the addresses that it knows. needs:
    modules that `load_model` imports."""

    model_prefixes = PREFIXES
    needs = ("ray",)

    @hookimpl
    def load_model(self, ref: str, config: Mapping[str, Any]) -> Backend | None:
        """A router over engines on the cluster "ray:auto", "ray:local" or "ray://HOST:PORT".

        config: `model`, what they run; `replicas` (1), or `min_replicas` and `max_replicas`, and
        beside these `busy` (open calls of a replica above which one more is started, 32),
        `patience_up` and `patience_down` (seconds, 5 and 60); of each replica `cpus` (1 for each
        rank), `gpus` (1 for each rank on a GPU); `start_timeout` (600) and `silence` (30 seconds
        without an answer after which an actor counts as dead); `policy` of the router; all else are
        settings of the engines. Raises InvalidCall, InvalidModel, BackendClosed.
        """
        if not ref.startswith(PREFIXES):
            return None
        settings = {name: value for name, value in config.items() if name != "process"}
        model = settings.pop("model", None)
        if not isinstance(model, str | Path) or not str(model):
            raise InvalidCall("model", model, "what the replicas run, as connect(..., model=NAME)")
        own = {name: settings.pop(name) for name in _OWN if name in settings}
        engine = EngineConfig.from_settings(settings)
        try:
            from .cluster import Room, Starter, join
            from .replicas import RayRouter
            from .texts import TokenizerOf
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            text = f"{ref} needs {error.name}: {how_to_install('ray')}"
            raise InvalidModel(text) from error
        bounds = _bounds(own)
        is_gpu = engine.device.startswith("cuda")
        room = Room(
            own.get("cpus", float(engine.ranks)),
            own.get("gpus", float(engine.ranks) if is_gpu else 0.0),
        )
        join(ref)
        starter = Starter(
            partial(connect, str(model), process=True, **settings),
            room,
            own.get("start_timeout", 600.0),
            own.get("silence", 30.0),
            TokenizerOf(str(model), engine),
        )
        return RayRouter(starter, bounds, own.get("policy", "affinity"))


def _bounds(own: Mapping[str, Any]) -> Any:
    from .scaling import Bounds

    fixed = own.get("replicas", own.get("min_replicas", 1))
    is_scaled = "min_replicas" in own or "max_replicas" in own
    if "replicas" in own and is_scaled:
        allowed = "no number beside min_replicas and max_replicas"
        raise InvalidCall("replicas", own["replicas"], allowed)
    more = {it: own[it] for it in ("busy", "patience_up", "patience_down") if it in own}
    if type(fixed) is not int or fixed < 1:
        name = "min_replicas" if is_scaled else "replicas"
        raise InvalidCall(name, fixed, "an integer >= 1")
    return Bounds(fixed, own.get("max_replicas", fixed), **more)


ray = Plugin()
