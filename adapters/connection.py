"""Runtimes for adapters: one function that gives a backend, and one engine for a whole process.

It knows the protocol and where backends are made; what runs in them it never sees.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, cast
from weakref import WeakValueDictionary

from ..core.api.hidden import with_hidden_key
from ..core.api.keywords import ENGINE_SETTINGS, KeywordOwner, suggestion_for
from ..core.api.owner import NonCopyable
from ..core.api.protocol import (
    Backend,
    BackendClosed,
    BackendInfo,
    Call,
    EngineDied,
    InvalidCall,
    InvalidModel,
    Reply,
)
from ..core.common.exits import close_at_exit
from ..core.common.harmless import hint_errors
from ..core.model.hub.folders import (
    EMBEDDED,
    is_dummy,
    is_hub_model,
    model_folder,
    model_of_page,
    pinned,
    unknown_model,
)
from .hints.prefix import Prefixes
from .names import OTHERS
from .names import check_name as check_name
from .names import check_settings as check_settings
from .names import hub_folder as hub_folder
from .names import introduce as introduce
from .names import introduce_embedded as introduce_embedded
from .names import is_fetched as is_fetched
from .names import is_known as is_known
from .names import is_url as is_url
from .names import located as located
from .names import suggestion as suggestion
from .names import takes_key as takes_key
from .names import trained_len as trained_len
from .names import unnamed as unnamed

if TYPE_CHECKING:
    from .registry import Registry

_OF_SERVERS = KeywordOwner(
    ENGINE_SETTINGS, "{name} is of the engine there: forkroot serve --set {name}=..."
)
_NOT_GIVEN: Any = object()
CLUSTERS = ("ray:",)  # how addresses begin of what runs a model that is named beside
REMOTE_SETTINGS = ("api_key", "connect_timeout", "silence")


def connect(
    where: str | Path | Sequence[str | Path] = _NOT_GIVEN,
    /,
    *,
    model: str | Path | Sequence[str | Path] = _NOT_GIVEN,
    process: bool = False,
    restart: bool = False,
    revision: str | None = None,
    replicas: int | None = None,
    policy: str = "affinity",
    **settings: Any,
) -> Backend:
    """A runtime for a model: a checkpoint folder, "tiny" for the embedded one, a model of the hub
    ("Qwen/Qwen2.5-0.5B-Instruct", or with "@revision"), the URL of a forkroot server
    ("http://127.0.0.1:30000"), an API model ("openai:MODEL", "anthropic:MODEL"), a cluster of Ray
    ("ray:auto", "ray://HOST:10001"), or another name that a plugin knows. A folder comes before a
    plugin, and a plugin before the hub, from which what is not in its cache is downloaded.

    model: in place of the first argument; beside it, what a cluster is to run.
    process: run it in a child process, so that busy threads of this one do not slow it.
    restart: start another child process where one dies (up to 5 times in a row). Calls that were
      open end in EngineDied, as do those that come before the new one is ready; later ones work. A
      spare process without a model waits for it (about 200 MB, and as much for each rank).
    revision: a branch, a tag or a commit of a hub model.
    replicas: so many engines of the model in child processes, behind one router. A list of URLs in
      place of the model: these servers, behind one router (docs/replicas.md).
    policy: of the router: "affinity", "round-robin", "least-loaded", "power-of-two" or "random".
    settings: as in `core.api.config.EngineConfig`; for a URL as in
    `adapters.http.client.RemoteBackend` (api_key and its like). Raises InvalidModel or InvalidCall,
    and BackendClosed for a URL where no forkroot server answers.
    """
    settings = with_hidden_key(settings)
    if not isinstance(process, bool):
        raise InvalidCall("process", process, "True or False")
    if not isinstance(restart, bool) or (restart and not process and replicas is None):
        allowed = "False, or True beside process=True: an engine in this process ends with it"
        raise InvalidCall("restart", restart, allowed)
    from .registry import registry

    plugins = registry()
    backend: Backend
    if _is_cluster(where) or _NOT_GIVEN not in (where, model):
        if model is not _NOT_GIVEN:
            settings["model"] = pinned(model, revision) if isinstance(model, str | Path) else model
        if replicas is not None:
            settings["replicas"] = replicas
        backend = _clustered(where, {**settings, "policy": policy}, plugins)
    else:
        named: Any = model if where is _NOT_GIVEN else where
        named = EMBEDDED if named is _NOT_GIVEN else named
        if replicas is not None or isinstance(named, list | tuple):
            models = list(named) if isinstance(named, list | tuple) else [named]
            pins = [pinned(it, revision) for it in cast(list[str | Path], models)]
            backend = _routed(pins, process, restart, replicas, policy, settings, plugins)
        else:
            _check_alone(policy)
            source = pinned(named, revision)
            backend = _started(source, process, restart, settings, plugins)
    plugins.started(backend)
    return backend


def _check_alone(policy: str) -> None:
    """Raise InvalidCall for a router's policy where there is no router."""
    if policy != "affinity":
        allowed = "none without replicas= or a list of servers; did you mean order=?"
        raise InvalidCall("policy", policy, allowed)


def _is_cluster(where: object) -> bool:
    return isinstance(where, str) and where.startswith(CLUSTERS)


def _clustered(where: Any, settings: Mapping[str, Any], registry: Registry) -> Backend:
    """The backend of a plugin that runs `settings["model"]`."""
    if not isinstance(where, str) or is_known(where) or not registry.may_load(where):
        allowed = f"no model beside {where!r:.80}, which is one"
        raise InvalidCall("model", settings.get("model"), allowed)
    found = registry.load_model(where, settings)
    if found is None:
        raise unknown_model(where, OTHERS)
    return found


def _routed(
    models: Sequence[str | Path],
    process: bool,
    restart: bool,
    replicas: int | None,
    policy: str,
    settings: Mapping[str, Any],
    registry: Registry,
) -> Backend:
    start = import_module(".router.start", __package__)
    start.check_policy(policy)
    if replicas is None:
        names = start.names_of(models)

        def one(index: int) -> Backend:
            return _started(models[index], process, restart, settings, registry)
    else:
        count = start.check_replicas(replicas)
        if len(models) > 1 or is_url(models[0]):
            raise InvalidCall("replicas", replicas, "None for servers: a list of their URLs")
        if not is_known(models[0]):  # what a plugin loads, it replicates as it can
            config = {**settings, "process": process, "replicas": count, "policy": policy}
            if (found := registry.load_model(str(models[0]), config)) is not None:
                return found
        names, source = list(map(str, range(count))), located(models[0])

        def one(index: int) -> Backend:
            own = start.settings_of(index, count, settings)
            return _started(source, True, restart, own, registry)

    backend: Backend = start.over(names, one, policy)
    return backend


def _started(
    model: str | Path, process: bool, restart: bool, settings: Mapping[str, Any], registry: Registry
) -> Backend:
    if is_url(model):
        return _remote(str(model), process, settings)
    if not is_known(model):
        found = registry.load_model(str(model), {**settings, "process": process})
        if found is not None and restart:
            found.close()
            raise InvalidCall("restart", restart, "False, for a model that a plugin loads")
        if found is not None:
            return found
        if not is_hub_model(model):
            raise unknown_model(model, OTHERS)
    settings = registry.resolved(settings)
    introduce_embedded(model)
    if process:
        start = import_module("..core.process.client", __package__).ProcessBackend
        if restart:
            return _restarting(model, settings)
    else:
        start = import_module("..core.local", __package__).LocalBackend.from_folder
    backend: Backend = start(model, **settings)
    return backend


def _restarting(model: str | Path, settings: Mapping[str, Any]) -> Backend:
    source = model if is_dummy(model) else model_folder(model)  # all starts use the same files
    supervisor = import_module("..core.process.supervisor", __package__)
    engines = supervisor.WarmEngines(source, **settings)
    backend: Backend = supervisor.RestartingBackend(engines, release=engines.close)
    return backend


def _remote(url: str, process: bool, settings: Mapping[str, Any]) -> Backend:
    if (name := model_of_page(url)) is not None:
        raise InvalidModel(
            f"{url} is the page of a hub model, not a server; did you mean {name!r}?"
        )
    if process:
        raise InvalidCall("process", process, "False for a server: it is a process already")
    unknown = next((name for name in settings if name not in REMOTE_SETTINGS), None)
    if unknown is not None:
        allowed = ", ".join(REMOTE_SETTINGS) + " beside a URL"
        hint = suggestion_for(unknown, REMOTE_SETTINGS, _OF_SERVERS)
        raise InvalidCall(unknown, settings[unknown], allowed + hint)
    client = import_module(".http.client", __package__)
    backend: Backend = client.RemoteBackend(url, **settings)
    try:
        backend.info()  # an unreachable server raises here, not at the first call
    except BaseException:
        backend.close()
        raise
    return backend


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Connection(NonCopyable):
    """A backend, and what is known of the prefixes of the calls that went to it."""

    backend: Backend
    prefixes: Prefixes

    def __reduce__(self) -> Any:
        return shared, (self.backend,)


def shared(where: Backend | str | Path = EMBEDDED, **settings: Any) -> Connection:
    """The one connection of this process to a backend, or to what `connect` would give.

    A name with the same settings gives the same running backend as before, started at its first
    use, closed when Python ends, and started again if it was closed. Thread-safe. Raises as
    `connect` does, and InvalidCall for settings beside a backend that runs already.
    """
    if isinstance(where, str | Path):
        return _shared.named(where, settings)
    if settings:
        name, value = next(iter(settings.items()))
        raise InvalidCall(name, value, "no settings for a backend that runs already")
    if not isinstance(where, Backend):
        raise InvalidCall("backend", where, "a backend, or what connect() takes: a name, path, URL")
    return _shared.of(where)


class Lent(NonCopyable):
    """A backend that many use: it remembers whether it was closed, or has ended.

    All else is the backend's own, whatever it offers beside the protocol too.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.is_closed = False

    def submit(self, call: Call) -> Reply:
        """As the backend's own."""
        reply = self._backend.submit(call)
        error = reply.error() if reply.done() else None
        is_replaced = isinstance(error, EngineDied) and error.is_replaced
        if isinstance(error, BackendClosed) and not is_replaced:
            self.is_closed = True
        return reply

    def cancel(self, reply: Reply) -> None:
        """As the backend's own."""
        self._backend.cancel(reply)

    def info(self) -> BackendInfo:
        """As the backend's own. hint_errors: errors in hints of this process, which cost time."""
        info = self._backend.info()
        return replace(info, counters={**info.counters, "hint_errors": hint_errors.total})

    def close(self) -> None:
        """Close it for all its users; its name gives a new backend afterwards."""
        self.is_closed = True
        self._backend.close()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """As the backend's own: what comes out is not lent."""
        return self._backend.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


class Shared:
    """The connections of a process: by backend as long as they are referenced, by name for good.

    start: makes a backend, as `connect` does.
    """

    def __init__(self, start: Callable[..., Backend] = connect) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._of: WeakValueDictionary[int, Connection] = WeakValueDictionary()
        self._named: dict[tuple[str, ...], _SharedEntry] = {}

    def of(self, backend: Backend) -> Connection:
        """The connection of this very backend."""
        with self._lock:
            found = self._of.get(id(backend))
            if found is None:
                found = self._of[id(backend)] = Connection(backend, Prefixes(backend))
            return found

    def named(self, model: str | Path, settings: Mapping[str, Any]) -> Connection:
        """The connection of this name with these settings."""
        with self._lock:
            entry = self._named.setdefault(_key(model, settings), _SharedEntry())
        with entry.lock:
            if entry.connection is not None and entry.lent.is_closed:
                entry.lent.close()  # it may have ended by itself
                entry.connection = None
            if entry.connection is None:
                entry.lent = Lent(self._start(model, **settings))
                close_at_exit(entry.lent)
                entry.connection = self.of(entry.lent)
            return entry.connection


@dataclass(slots=True, eq=False)
class _SharedEntry:
    """Where one named connection is kept; its lock is held while it is started."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    lent: Lent = field(init=False)


def _key(model: str | Path, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What names a backend: a folder by its resolved path, anything else as it is written."""
    name = str(model)
    if is_url(name):
        name = name.rstrip("/")
    elif not is_dummy(name) and Path(name).is_dir():
        name = str(Path(name).resolve())
    return name, *(f"{key}={value!r}" for key, value in sorted(settings.items()))


_shared = Shared()
