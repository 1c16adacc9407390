"""One function gives every backend, and one engine serves a whole process."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import forkroot
from forkroot.adapters.connection import Connection, Shared, connect, shared
from forkroot.adapters.http.client import RemoteBackend
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    Call,
    EngineDied,
    InvalidCall,
    InvalidModel,
    NotPicklable,
    Sampling,
    Text,
)
from forkroot.core.api.reply import Mailbox
from forkroot.core.process.client import ProcessBackend

from ..quiet import unexpected

HELLO = Call((Text("Hello"),), Sampling(max_tokens=2))
HELLO_GREEDY = Call((Text("Hello"),), Sampling(max_tokens=2, temperature=0))


class Starts:
    """Starts scripted backends, and remembers of what."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.backends: list[ScriptedBackend] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, model: str | Path, **settings: Any) -> Backend:
        self.requests.append((str(model), settings))
        assert self.gate.wait(60)
        self.backends.append(ScriptedBackend("a"))
        return self.backends[-1]


@pytest.fixture
def starts() -> Iterator[Starts]:
    starts = Starts()
    yield starts
    for backend in starts.backends:
        backend.close()


def test_the_face_has_the_same_connect() -> None:
    assert forkroot.connect is connect


def test_a_backend_has_one_connection_while_somebody_holds_it() -> None:
    backend = ScriptedBackend("a")
    first = shared(backend)
    assert first.backend is backend
    assert shared(backend) is first
    assert shared(ScriptedBackend("a")) is not first
    gone, known = weakref.ref(first), weakref.ref(backend)
    del first, backend
    gc.collect()
    assert gone() is None
    assert known() is None


def test_one_name_with_the_same_settings_is_one_backend(starts: Starts) -> None:
    own = Shared(starts)
    first = own.named("tiny", {"num_slots": 5})
    assert own.named("tiny", {"num_slots": 5}) is first
    assert own.named("tiny", {"num_slots": 6}) is not first
    assert own.named("tiny", {}) is not first
    assert own.of(first.backend) is first
    assert starts.requests == [("tiny", {"num_slots": n}) for n in (5, 6)] + [("tiny", {})]


def test_a_folder_is_one_backend_however_it_is_written(starts: Starts, tmp_path: Path) -> None:
    own = Shared(starts)
    (tmp_path / "a").mkdir()
    first = own.named(tmp_path / "a", {})
    assert own.named(str(tmp_path / "a" / ".." / "a"), {}) is first
    assert own.named("http://host:1", {}) is own.named("http://host:1/", {})


def test_threads_that_ask_at_once_get_one_backend(starts: Starts) -> None:
    own = Shared(starts)
    starts.gate.clear()
    found: list[Connection] = []
    ask = [threading.Thread(target=lambda: found.append(own.named("tiny", {}))) for _ in range(8)]
    for thread in ask:
        thread.start()
    starts.gate.set()
    for thread in ask:
        thread.join()
    assert len(starts.backends) == 1
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_a_backend_that_starts_keeps_no_other_name_waiting(starts: Starts) -> None:
    own = Shared(starts)
    starts.gate.clear()
    slow = threading.Thread(target=lambda: own.named("slow", {}))
    slow.start()
    backend = ScriptedBackend("a")
    assert own.of(backend).backend is backend
    starts.gate.set()
    slow.join()


def test_a_closed_backend_is_replaced_at_its_next_use(starts: Starts) -> None:
    own = Shared(starts)
    first = own.named("tiny", {})
    first.backend.close()
    second = own.named("tiny", {})
    assert second is not first
    assert second.backend.submit(HELLO).result(60).text == "a"
    assert own.named("tiny", {}) is second


def test_a_backend_that_died_is_replaced_once_a_call_found_out(starts: Starts) -> None:
    own = Shared(starts)
    first = own.named("tiny", {})
    starts.backends[0].close()  # behind the connection's back
    with pytest.raises(BackendClosed):
        first.prefixes.submit(HELLO).result(60)
    assert own.named("tiny", {}) is not first


def test_a_backend_that_restarts_its_engine_is_kept(starts: Starts) -> None:
    own = Shared(starts)
    first = own.named("tiny", {})
    died = [EngineDied("it died", is_replaced=True), EngineDied("it died")]
    starts.backends[0].submit = lambda call: failed(call, died.pop(0))  # type: ignore[method-assign]
    first.prefixes.submit(HELLO)
    assert own.named("tiny", {}) is first
    first.prefixes.submit(HELLO)
    assert own.named("tiny", {}) is not first


def failed(call: Call, error: Exception) -> Mailbox:
    mailbox = Mailbox(call)
    mailbox.fail(error)
    return mailbox


@pytest.mark.usefixtures("preloaded")
def test_an_engine_that_is_killed_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engines: list[ProcessBackend] = []

    class Noted(ProcessBackend):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            engines.append(self)

    monkeypatch.setattr("forkroot.core.process.supervisor.ProcessBackend", Noted)
    with closing(connect(process=True, restart=True, num_slots=2000)) as backend:
        expected = backend.submit(HELLO_GREEDY).result(30).text
        opened = backend.submit(Call((Text("a"),), Sampling(max_tokens=300, ignore_eos=True)))
        os.kill(engines[0].pid, signal.SIGKILL)
        with pytest.raises(EngineDied) as caught:
            opened.result(30)
        assert caught.value.is_replaced

        @forkroot.function
        def hello(s: Any) -> None:
            s += "Hello" + forkroot.gen("answer", max_tokens=2)

        (state,) = hello.run_batch([{}], backend=backend, temperature=0, max_retries=8)
        assert state["answer"] == expected
        assert state.num_retries > 0
        assert backend.info().counters["restarts"] == 1
        assert len(engines) == 2


@pytest.mark.parametrize("given", [{"restart": True}, {"process": True, "restart": 1}])
def test_only_an_engine_of_another_process_can_be_restarted(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall, match=r"restart=.*beside process=True"):
        connect(**given)


def test_a_start_that_fails_leaves_nothing_behind() -> None:
    outcomes: Iterator[Any] = iter([InvalidModel("not yet"), ScriptedBackend("a")])

    def start(model: str | Path, **settings: Any) -> Backend:
        found = next(outcomes)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    own = Shared(start)
    with pytest.raises(InvalidModel, match="not yet"):
        own.named("tiny", {})
    assert own.named("tiny", {}).backend.submit(HELLO).result(60).text == "a"


def test_what_is_shared_still_is_the_backend_itself(starts: Starts) -> None:
    backend = Shared(starts).named("tiny", {}).backend
    assert isinstance(backend, Backend)
    assert backend.info().model == "scripted"
    reply = backend.submit(HELLO)
    backend.cancel(reply)
    assert backend.calls == [HELLO]  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="nonsense"):
        backend.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_what_is_neither_a_backend_nor_a_name_is_refused() -> None:
    with pytest.raises(InvalidCall, match=r"backend=7: .* a name, path, URL"):
        shared(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="num_slots=5"):
        shared(ScriptedBackend("a"), num_slots=5)
    with pytest.raises(InvalidModel, match="nonesuch"):
        shared("nonesuch")
    with pytest.raises(InvalidCall, match=r"num_slots=5: .* api_key"):
        shared("http://127.0.0.1:1", num_slots=5)


def test_a_shared_engine_ends_with_python(tmp_path: Path) -> None:
    program = """
from forkroot.adapters.connection import shared
from forkroot.core.api.protocol import Call, Sampling, Text
where = shared("tiny", num_slots=2000)
assert shared("tiny", num_slots=2000) is where
print(where.backend.submit(Call((Text("Hello"),), Sampling(max_tokens=2))).result(60).usage)
where.backend.submit(Call((Text("Hello"),), Sampling(max_tokens=1000, ignore_eos=True)))
"""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, unexpected(done.stderr)) == (0, "")
    assert "completion_tokens=2" in done.stdout


@pytest.mark.parametrize("model", [None, "", " ", 5])
@pytest.mark.parametrize("process", [False, True])
def test_what_is_not_a_name_of_a_model_is_reported(model: Any, process: bool) -> None:
    with pytest.raises(InvalidModel, match="is not a name; expected one of: a checkpoint folder"):
        connect(model, process=process)


@pytest.mark.parametrize(
    ("model", "suggested"),
    [
        ("tinny", "tiny"),
        ("Tiny", "tiny"),
        ("127.0.0.1:30000", "http://127.0.0.1:30000"),
        ("localhost:30000/v1", "http://localhost:30000/v1"),
        ("https//host:443", "https://host:443"),
        ("[::1]:30000", "http://[::1]:30000"),
        ("./checkpoints/lama", "checkpoints/llama"),
    ],
)
def test_a_model_that_is_not_there_gets_a_suggestion(
    model: str, suggested: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoints" / "llama").mkdir(parents=True)
    (tmp_path / "checkpoints" / "llama" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidModel) as caught:
        connect(model)
    assert str(caught.value) == (
        f"model={model!r} is not a folder here; expected one of: a checkpoint folder, a hub model"
        " ('org/name'), 'tiny' (the embedded model), 'tiny-vision' (it sees), 'dummy:SHAPE', the"
        " URL of a server, 'openai:MODEL' or 'anthropic:MODEL' (an API), a name that a plugin"
        f" knows; did you mean '{suggested}'?"
    )


@pytest.mark.parametrize("model", ["gpt2", "a\0b", "./nonesuch/x", "file.gguf"])
def test_nothing_is_guessed_where_nothing_is_like_it(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file.gguf").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidModel, match=r"a name that a plugin knows$") as caught:
        connect(model)
    assert ("is a file, not a folder" in str(caught.value)) == (model == "file.gguf")


def test_copies_of_what_holds_a_backend_hold_the_same_one(starts: Starts) -> None:
    held = Shared(starts).named("tiny", {})
    assert copy.deepcopy([held])[0] is held
    assert copy.deepcopy({"lent": held.backend})["lent"] is held.backend


def test_a_connection_to_a_server_can_be_sent_to_another_process_and_no_other_can() -> None:
    remote = shared(RemoteBackend("http://127.0.0.1:9", silence=3.0))
    for thing in (remote, remote.backend):
        sent = pickle.loads(pickle.dumps(thing))
        backend = sent.backend if isinstance(sent, Connection) else sent
        assert isinstance(backend, RemoteBackend)
        backend.close()
    remote.backend.close()
    own = shared("tiny", num_slots=512)
    for thing in (own, own.backend):
        with pytest.raises(NotPicklable, match="a LocalBackend belongs to its process"):
            pickle.dumps(thing)
    own.backend.close()
