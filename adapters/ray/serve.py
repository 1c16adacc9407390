"""An application of Ray Serve: our server, with all its routes, in Serve's replicas.

A line of Serve's config names it: `import_path: forkroot.adapters.ray:deployment`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from ray import serve

from ...core.api.protocol import InvalidCall

_OPTIONS = ("num_replicas", "autoscaling_config", "ray_actor_options", "max_ongoing_requests")
_SERVER = ("api_keys", "admin_keys", "served_names", "allowed_hosts", "share_cache")
_MOST_REQUESTS = 1024


def deployment(args: Mapping[str, Any]) -> Any:
    """The application, from the `args` of Serve's config.

    model: as in `connect`; "tiny" if none is given. With `replicas`, or `min_replicas` and
    `max_replicas`, each server has a router over so many engines in actors of the cluster; without,
    an engine of its own. api_keys, admin_keys, served_names, allowed_hosts: lists; share_cache: as
    the options of `forkroot serve`. num_replicas, autoscaling_config, ray_actor_options,
    max_ongoing_requests: Serve's own, of the servers. All else are settings of the engines. Raises
    InvalidCall.
    """
    given = dict(args)
    options = {name: given.pop(name) for name in _OPTIONS if name in given}
    access = {name: given.pop(name) for name in _SERVER if name in given}
    for name in _SERVER[:-1]:
        if not isinstance(access.get(name, []), list):
            raise InvalidCall(name, access[name], "a list of texts")
    options.setdefault("max_ongoing_requests", _MOST_REQUESTS)

    def build() -> Any:
        return application(given, access)

    @serve.deployment(name="forkroot", **options)
    @serve.ingress(build)
    class Server:
        async def check_health(self) -> None:
            requests = self.app.state.requests  # type: ignore[attr-defined]
            await asyncio.to_thread(requests.check_alive)

    deployed: Any = Server  # what the decorators made of it
    return deployed.bind()


def application(given: Mapping[str, Any], access: Mapping[str, Any]) -> Any:
    """The ASGI application in a replica of Serve, with the backend that it serves."""
    from ..connection import connect
    from ..http.app import build_app
    from ..http.server.runtime import Runtime
    from ..http.server.settings import Settings

    config = dict(given)
    model = config.pop("model", "tiny")
    if {"replicas", "min_replicas", "max_replicas"} & set(config):
        backend: Any = connect("ray:auto", model=model, **config)
    else:
        backend = connect(model, process=True, restart=True, **config)
    settings = Settings(
        tuple(access.get("api_keys", ())),
        tuple(access.get("admin_keys", ())),
        bool(access.get("share_cache", False)),
        allowed_hosts=tuple(access.get("allowed_hosts", ())),
    )
    names = tuple(access.get("served_names", ())) or (backend.info().model,)
    return build_app(
        Runtime(backend, backend.tokenizer, names, version=version("forkroot")), settings
    )
