"""Plugins: found by their entry points, named when they are broken, imported no sooner than used.

The built-in plugins are registered as a third party's are. It knows no framework.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from itertools import chain, count
from typing import Any

import pluggy

from ..core.api.config import PARTS
from ..core.api.protocol import Backend, ForkrootError, InvalidCall
from ..core.common.suggestions import did_you_mean
from . import hookspecs
from .hookspecs import GROUP

_log = logging.getLogger("forkroot.plugins")
_PACKAGE = __name__.rpartition(".")[0]
_MODULES = {
    **dict.fromkeys(("native", "http", "dspy", "langchain", "guidance"), "builtin"),
    "api": "api.plugin",
    "ray": "ray.plugin",
}
BUILT_IN = tuple(
    EntryPoint(name, f"{_PACKAGE}.{module}:{name}", GROUP) for name, module in _MODULES.items()
)


@dataclass(frozen=True, slots=True)
class Adapter:
    """A registered adapter. factory: "module:attribute". needs: modules that it imports."""

    name: str
    factory: str
    needs: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Which of these are not installed."""
        return [name for name in self.needs if find_spec(name) is None]

    def load(self) -> Any:
        """The factory itself, imported now."""
        return EntryPoint(self.name, self.factory, GROUP).load()


@dataclass(frozen=True, slots=True)
class Part:
    """A registered part of a runtime. available: whether it can work on this machine."""

    kind: str
    name: str
    factory: str
    available: Callable[[], bool]


@dataclass(slots=True)
class Plugin:
    """What is known of one plugin.

    version: of what was installed with it, or where else it is from. hooks: that it implements.
    model_prefixes: with which all names of its models begin; ("",) if it does not say.
    needs: modules that it imports when it is used. fault: what went wrong with it last; None:
      nothing did.
    """

    name: str
    version: str
    hooks: tuple[str, ...] = ()
    adapters: list[Adapter] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    model_prefixes: tuple[str, ...] = ("",)
    needs: tuple[str, ...] = ()
    fault: str | None = None

    def missing(self) -> list[str]:
        """Which modules that it or its adapters import are not installed."""
        own = [name for name in self.needs if find_spec(name) is None]
        return sorted({*own, *(name for it in self.adapters for name in it.missing())})

    def may_load(self, ref: str) -> bool:
        """Whether it may know a model of this name."""
        return "load_model" in self.hooks and ref.startswith(self.model_prefixes)


class Registry:
    """The plugins of a process. A broken one is logged by its name, and harms nothing.

    sources: entry points to load, in this order; hooks of later ones run first.
    """

    def __init__(self, sources: Iterable[EntryPoint] = ()) -> None:
        self._manager = pluggy.PluginManager("forkroot")
        self._manager.add_hookspecs(hookspecs)
        self._plugins: dict[str, Plugin] = {}
        self._started: list[weakref.ref[Backend]] = []
        self._lock = threading.RLock()
        self.load(sources)

    def load(self, sources: Iterable[EntryPoint]) -> None:
        """Take in the plugins of these entry points."""
        for source in sources:
            version = "built in" if source.dist is None else source.dist.version
            self._add(source.name, version, source.load)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """All that were found, broken ones too."""
        return tuple(self._plugins.values())

    @property
    def adapters(self) -> dict[str, Adapter]:
        """The adapters by their names."""
        return {found.name: found for plugin in self.plugins for found in plugin.adapters}

    def parts(self, kind: str) -> tuple[Part, ...]:
        """The registered parts of a runtime of one kind."""
        return tuple(p for plugin in self.plugins for p in plugin.parts if p.kind == kind)

    def resolved(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of a runtime in which parts of plugins are replaced by the paths of
        their factories: other processes find them by these. Raises InvalidCall for a name that is
        nobody's, or is not available here."""
        found = dict(settings)
        for kind, own in PARTS.items():
            name = found.get(kind)
            if isinstance(name, str) and name not in own and ":" not in name:
                found[kind] = self._part(kind, name, own).factory
        return found

    def _part(self, kind: str, name: str, own: Sequence[str]) -> Part:
        here = {
            part.name: part
            for plugin in self.plugins
            for part in plugin.parts
            if part.kind == kind and self._is_available(plugin, part)
        }
        if name not in here:
            known = (*own, *here)
            raise InvalidCall(kind, name, ", ".join(known) + did_you_mean(name, known))
        return here[name]

    def _is_available(self, plugin: Plugin, part: Part) -> bool:
        try:
            return bool(part.available())
        except Exception as error:
            self._report(plugin, error)
            return False

    def register(self, plugin: object, name: str) -> None:
        """Take in a plugin that no entry point names, as from a test or a notebook."""
        self._add(name, "by hand", lambda: plugin)

    def may_load(self, ref: object) -> bool:
        """Whether any plugin may know a model of this name."""
        return any(plugin.may_load(str(ref)) for plugin in self.plugins)

    def load_model(self, ref: str, config: Mapping[str, Any]) -> Backend | None:
        """The backend of the first plugin that knows this name. Raises a plugin's ForkrootError."""
        known = [plugin for plugin in self.plugins if plugin.may_load(ref)]
        given = self._each("load_model", (ForkrootError,), known, ref=ref, config=config)
        found: Backend | None = next((backend for backend in given if backend is not None), None)
        return found

    def add_routes(self, app: Any, runtime: Any) -> None:
        """Let every plugin add its routes to a server."""
        for _ in self._each("register_routes", app=app, runtime=runtime):
            continue

    def started(self, runtime: Backend) -> None:
        """Notify every plugin, also later ones, once of a backend that has started."""
        with self._lock:
            alive = [backend for known in self._started if (backend := known()) is not None]
            if any(backend is runtime for backend in alive):
                return
            self._started = list(map(weakref.ref, alive))
            with suppress(TypeError):  # without weak references, later plugins are not notified
                self._started.append(weakref.ref(runtime))
        for _ in self._each("runtime_started", runtime=runtime):
            continue

    # --- taking plugins in -------------------------------------------------------------------

    def _add(self, name: str, version: str, load: Callable[[], object]) -> None:
        with self._lock:
            names = chain([name], (f"{name}-{number}" for number in count(2)))
            entry = Plugin(next(free for free in names if free not in self._plugins), version)
            self._plugins[entry.name] = entry
            try:
                self._take(entry, load())
            except (Exception, SystemExit) as error:
                self._report(entry, error)
                entry.hooks, entry.adapters, entry.parts = (), [], []
                if self._manager.has_plugin(entry.name):
                    self._manager.unregister(name=entry.name)

    def _take(self, entry: Plugin, plugin: object) -> None:
        """Check a plugin, collect its parts, and announce the runtimes that exist already."""
        self._manager.register(plugin, entry.name)
        self._manager.check_pending()
        callers = self._manager.get_hookcallers(plugin) or []
        entry.hooks = tuple(sorted(caller.name for caller in callers))
        entry.model_prefixes = tuple(getattr(plugin, "model_prefixes", ("",)))
        entry.needs = tuple(getattr(plugin, "needs", ()))
        self._call_hook(entry, "register_adapters", register=self._adapter_of(entry))
        self._call_hook(entry, "register_backends", register=self._part_of(entry))
        for known in self._started:
            if (backend := known()) is not None:
                self._call_hook(entry, "runtime_started", runtime=backend)

    def _adapter_of(self, entry: Plugin) -> hookspecs.RegisterAdapter:
        def register(name: str, factory: str, needs: Sequence[str] = ()) -> None:
            for plugin in self.plugins:
                if any(adapter.name == name for adapter in plugin.adapters):
                    raise ValueError(f"the plugin {plugin.name} has an adapter {name!r} already")
            _check_factory_path(factory)
            entry.adapters.append(Adapter(name, factory, tuple(needs)))

        return register

    def _part_of(self, entry: Plugin) -> hookspecs.RegisterBackend:
        def register(kind: str, name: str, factory: str, available: Callable[[], bool]) -> None:
            if kind not in PARTS:
                raise ValueError(f"invalid kind={kind!r}: expected {', '.join(PARTS)}")
            if ":" in name or name in (*PARTS[kind], *(p.name for p in self.parts(kind))):
                raise ValueError(f"the {kind} {name!r} is registered already or has a colon")
            _check_factory_path(factory)
            entry.parts.append(Part(kind, name, factory, available))

        return register

    # --- asking them -------------------------------------------------------------------------

    def _each(
        self,
        hook: str,
        passed: tuple[type[Exception], ...] = (),
        plugins: Sequence[Plugin] | None = None,
        **values: Any,
    ) -> Iterator[Any]:
        """What each of these plugins (all, if None) gives, the latest first; one that fails is
        reported and passed over. Raises errors of the kinds that are to be passed on."""
        found = self.plugins if plugins is None else plugins
        for entry in reversed([plugin for plugin in found if hook in plugin.hooks]):
            try:
                result = self._call_hook(entry, hook, **values)
            except passed:
                raise
            except Exception as error:
                self._report(entry, error)
            else:
                yield result

    def _call_hook(self, entry: Plugin, hook: str, **values: Any) -> Any:
        """What the hook of this plugin alone gives; nothing where it has none."""
        named = self._manager.list_name_plugin()
        others = [plugin for name, plugin in named if name != entry.name and plugin is not None]
        return self._manager.subset_hook_caller(hook, others)(**values)

    def _report(self, entry: Plugin, error: BaseException) -> None:
        entry.fault = f"{type(error).__name__}: {error}"
        _log.warning("the plugin %s is broken: %s", entry.name, entry.fault)


def registry() -> Registry:
    """The plugins of this process: the built-in ones, then those that are installed, found at the
    first use. A plugin that calls this while it is imported gets those so far."""
    with _filling:
        if not _filled:
            _filled.append(Registry())
            _filled[0].load([*BUILT_IN, *entry_points(group=GROUP)])
        return _filled[0]


def _check_factory_path(factory: str) -> None:
    module, _, attribute = factory.partition(":")
    if not module or not attribute:
        raise ValueError(f"invalid factory={factory!r}: expected 'module:attribute'")


_filling = threading.RLock()
_filled: list[Registry] = []
