"""Plugins: found, called once, named when they are broken, and never in anybody's way."""

from __future__ import annotations

import gc
import io
import logging
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from rich.console import Console

from forkroot.__main__ import main
from forkroot.adapters import connection
from forkroot.adapters.hookspecs import GROUP, hookimpl
from forkroot.adapters.http.app import build_app
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.plugin_table import plugins_table
from forkroot.adapters.registry import BUILT_IN, Registry, registry
from forkroot.adapters.testing import ScriptedBackend
from forkroot.benchmarks.common.fake_runner import byte_tokenizer
from forkroot.core.api.protocol import BackendClosed, InvalidModel


class Listener:
    """Remembers which backends started."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @hookimpl
    def runtime_started(self, runtime: Any) -> None:
        self.heard.append(runtime)


class Loader:
    """Knows the models whose names begin with `prefix`."""

    def __init__(self, prefix: str, found: Any) -> None:
        self.prefix = prefix
        self.found = found
        self.requests: list[tuple[str, dict[str, Any]]] = []

    @hookimpl
    def load_model(self, ref: str, config: dict[str, Any]) -> Any:
        self.requests.append((ref, config))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found if ref.startswith(self.prefix) else None


class Misspelt:
    @hookimpl
    def runtime_startet(self, runtime: Any) -> None:
        """No hook has this name."""


class Greedy:
    @hookimpl
    def runtime_started(self, runtime: Any, pool: Any) -> None:
        """Asks for what the hook does not give."""


class Rude:
    @hookimpl
    def register_adapters(self, register: Any) -> None:
        raise RuntimeError("I do not register")


class Quitter:
    @hookimpl
    def register_adapters(self, register: Any) -> None:
        sys.exit("I quit")


class Deaf:
    @hookimpl
    def runtime_started(self, runtime: Any) -> None:
        raise RuntimeError("I did not listen")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_what_is_in_the_box_is_registered_as_any_plugin_is() -> None:
    own = Registry(BUILT_IN)
    assert [plugin.name for plugin in own.plugins] == [
        *("native", "http", "dspy", "langchain", "guidance", "api", "ray")
    ]
    assert [plugin.fault for plugin in own.plugins] == [None] * 7
    assert sorted(own.adapters) == [
        *("dspy", "guidance", "http", "langchain", "langchain-llm", "native")
    ]


def test_no_framework_is_imported_before_its_adapter_is() -> None:
    program = """
import sys
from forkroot.adapters.registry import registry
assert len(registry().adapters) >= 6
print(*sorted({name.split(".")[0] for name in sys.modules} & {
    "torch", "dspy", "langchain_core", "guidance", "fastapi", "httpx", "pydantic", "rich"}))
"""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_an_adapter_is_loaded_from_where_its_plugin_says() -> None:
    from forkroot.adapters.http.client import RemoteBackend

    assert registry().adapters["http"].load() is RemoteBackend
    assert registry().adapters["http"].missing() == []


def test_a_plugin_that_cannot_be_imported_is_named_and_harms_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sources = [EntryPoint("lost", "no_such_module_anywhere", GROUP), *BUILT_IN]
    own = Registry(sources)
    lost = own.plugins[0]
    assert lost.name == "lost"
    assert "no_such_module_anywhere" in str(lost.fault)
    assert len(own.adapters) == 6
    (warning,) = warnings_of(caplog)
    assert warning.startswith("the plugin lost is broken: ModuleNotFoundError")


@pytest.mark.parametrize(
    ("plugin", "fault"),
    [
        (Misspelt(), "unknown hook 'runtime_startet'"),
        (Greedy(), "{'pool'} are declared in the hookimpl"),
        (Rude(), "I do not register"),
        (Quitter(), "SystemExit: I quit"),
    ],
    ids=["misspelt", "greedy", "rude", "quitter"],
)
def test_a_broken_plugin_is_named_dropped_and_harms_no_other(
    plugin: object, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = Registry()
    own.register(plugin, "broken")
    listener = Listener()
    own.register(listener, "listener")
    backend = ScriptedBackend("a")
    own.started(backend)
    assert listener.heard == [backend]
    assert fault in str(own.plugins[0].fault)
    assert own.plugins[0].hooks == ()
    assert own.plugins[1].fault is None
    assert [fault in warning and "broken" in warning for warning in warnings_of(caplog)] == [True]


def test_a_hook_that_fails_is_passed_over_and_its_plugin_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = Registry()
    early, late = Listener(), Listener()
    for name, plugin in (("early", early), ("deaf", Deaf()), ("late", late)):
        own.register(plugin, name)
    backend = ScriptedBackend("a")
    own.started(backend)
    assert early.heard == late.heard == [backend]
    assert warnings_of(caplog) == ["the plugin deaf is broken: RuntimeError: I did not listen"]
    assert [plugin.fault is None for plugin in own.plugins] == [True, False, True]


def test_a_plugin_is_notified_once_of_each_runtime_also_of_earlier_ones() -> None:
    own = Registry()
    first, second = ScriptedBackend("a"), ScriptedBackend("b")
    own.started(first)
    listener = Listener()
    own.register(listener, "listener")
    own.started(second)
    own.started(second)
    assert listener.heard == [first, second]


def test_a_runtime_that_started_is_not_kept_alive() -> None:
    own = Registry()
    own.started(ScriptedBackend("a"))
    gc.collect()
    listener = Listener()
    own.register(listener, "listener")
    assert listener.heard == []


def test_a_runtime_without_weak_references_is_announced_too() -> None:
    class Slotted:
        __slots__ = ()

    own, listener = Registry(), Listener()
    own.register(listener, "listener")
    runtime: Any = Slotted()
    own.started(runtime)
    assert listener.heard == [runtime]


def test_a_plugin_may_ask_for_the_plugins_while_it_is_loaded() -> None:
    class Curious:
        @hookimpl
        def register_adapters(self, register: Any) -> None:
            found.append(own.plugins)

    found: list[Any] = []
    own = Registry(BUILT_IN)
    own.register(Curious(), "curious")
    assert [plugin.name for plugin in found[0]][-1] == "curious"
    assert own.plugins[-1].fault is None


def test_a_name_that_is_taken_goes_to_nobody_else() -> None:
    class Twin:
        @hookimpl
        def register_adapters(self, register: Any) -> None:
            register("http", "twin:Twin")

    own = Registry(BUILT_IN)
    own.register(Twin(), "twin")
    assert "the plugin http has an adapter 'http' already" in str(own.plugins[-1].fault)
    assert own.adapters["http"].factory == "forkroot.adapters.http.client:RemoteBackend"
    own.register(Listener(), "http")
    assert own.plugins[-1].name == "http-2"
    assert own.plugins[-1].fault is None


@pytest.mark.parametrize("place", ["module", "module:", ":name", ""])
def test_a_factory_that_is_nowhere_is_refused(place: str) -> None:
    class Vague:
        @hookimpl
        def register_adapters(self, register: Any) -> None:
            register("vague", place)

    own = Registry()
    own.register(Vague(), "vague")
    assert "expected 'module:attribute'" in str(own.plugins[0].fault)
    assert own.adapters == {}


def test_parts_of_a_runtime_are_kept_by_their_kind() -> None:
    class Parts:
        @hookimpl
        def register_backends(self, register: Any) -> None:
            register("attention", "fast", "string:ascii_letters", lambda: True)
            register("sampling", "slow", "string:digits", lambda: False)

    class Odd:
        @hookimpl
        def register_backends(self, register: Any) -> None:
            register("wheel", "round", "string:digits", lambda: True)

    own = Registry()
    own.register(Parts(), "parts")
    own.register(Odd(), "odd")
    (part,) = own.parts("attention")
    assert (part.name, part.available()) == ("fast", True)
    assert own.parts("constraint") == ()
    assert "invalid kind='wheel'" in str(own.plugins[1].fault)


def test_the_first_plugin_that_knows_a_model_gives_it() -> None:
    own = Registry()
    a, b = ScriptedBackend("a"), ScriptedBackend("b")
    older, newer = Loader("lab/", a), Loader("lab/new", b)
    own.register(older, "older")
    own.register(newer, "newer")
    assert own.load_model("lab/new", {}) is b
    assert older.requests == []
    assert own.load_model("lab/old", {"num_slots": 5}) is a
    assert older.requests == [("lab/old", {"num_slots": 5})]
    assert own.load_model("other", {}) is None


def test_connect_calls_plugins_for_unknown_names_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = Registry()
    backend = ScriptedBackend("a")
    loader, listener = Loader("lab/", backend), Listener()
    own.register(loader, "loader")
    own.register(listener, "listener")
    monkeypatch.setattr("forkroot.adapters.registry.registry", lambda: own)
    assert connection.connect("lab/model", num_slots=5) is backend
    assert loader.requests == [("lab/model", {"num_slots": 5, "process": False})]
    assert listener.heard == [backend]
    with pytest.raises(InvalidModel, match="nonesuch"):
        connection.connect("nonesuch")
    with pytest.raises(InvalidModel):
        connection.connect(tmp_path)  # a folder, if not a checkpoint
    with pytest.raises(BackendClosed, match="cannot be reached"):
        connection.connect("http://127.0.0.1:1")
    assert [ref for ref, _ in loader.requests] == ["lab/model", "nonesuch"]


def test_a_model_that_a_plugin_cannot_load_is_the_callers_to_know(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = Registry()
    own.register(Loader("", ScriptedBackend("a")), "good")
    own.register(Loader("", ZeroDivisionError("oops")), "bad")
    assert own.load_model("any", {}).info().model == "scripted"  # type: ignore[union-attr]
    assert warnings_of(caplog) == ["the plugin bad is broken: ZeroDivisionError: oops"]
    own.register(Loader("", InvalidModel("the file is cut off")), "strict")
    with pytest.raises(InvalidModel, match="the file is cut off"):
        own.load_model("any", {})


def test_a_server_has_the_routes_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    class Routes:
        @hookimpl
        def register_routes(self, app: Any, runtime: Runtime) -> None:
            @app.get("/lab/name")
            def name() -> str:
                return runtime.name

    class Broken:
        @hookimpl
        def register_routes(self, app: Any, runtime: Runtime) -> None:
            raise InvalidModel("no routes today")

    own, listener = Registry(), Listener()
    for plugin_name, plugin in (("a", Routes()), ("b", Broken()), ("c", listener)):
        own.register(plugin, plugin_name)
    monkeypatch.setattr("forkroot.adapters.http.app.registry", lambda: own)
    backend = ScriptedBackend("a")
    app = build_app(Runtime(backend, byte_tokenizer(), ("lab-model",)))
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/lab/name").json() == "lab-model"
        assert client.get("/health").status_code == 200
    assert listener.heard == [backend]
    assert "no routes today" in str(own.plugins[1].fault)


def test_the_table_says_what_each_plugin_brings_and_which_is_broken() -> None:
    class Needy:
        @hookimpl
        def register_adapters(self, register: Any) -> None:
            register("needy", "needy:Needy", needs=("no_such_module_anywhere",))

    own = Registry([EntryPoint("lost", "no_such_module", GROUP), *BUILT_IN[:1]])
    own.register(Needy(), "needy")
    own.register(Loader("", None), "[bold]loader")
    console = Console(width=200, file=io.StringIO())
    with console.capture() as capture:
        console.print(plugins_table(own.plugins))
    lines = capture.get().splitlines()
    rows = [[part.strip() for part in line.split("  ") if part.strip()] for line in lines]
    assert rows[0] == ["plugin", "version", "brings", "status"]
    assert rows[1][0] == "lost"
    assert rows[1][-1].startswith("broken: ModuleNotFoundError: No module named 'no_such_module'")
    assert rows[2] == ["native", "built in", "adapter native", "ready"]
    assert rows[3][2:] == ["adapter needy", "not installed: no_such_module_anywhere"]
    assert rows[4] == ["[bold]loader", "by hand", "load_model", "ready"]


def test_the_command_lists_the_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    out = capsys.readouterr().out
    for name in ("native", "http", "dspy", "langchain", "guidance"):
        assert name in out
