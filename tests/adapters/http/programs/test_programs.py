"""Programs on the server: a run there reads as a run here, and takes one request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from forkroot import connect
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.native import CompiledProgram, function, gen, image
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import (
    BackendClosed,
    CallFailed,
    DeadlineExceeded,
    InvalidCall,
    Overloaded,
)

from ....serving import serving
from ..conftest import Letters
from .conftest import Served, answering

pytestmark = pytest.mark.timeout(180)
Client = Callable[..., Any]
ITEMS = {
    "judge": ({"essay": "The sun is hot."}, ("topic", "verdict", "grade")),
    "talk": ({"topic": "tea"}, ("answer", "more")),
}


def reading(state: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "text": state.text(),
        "messages": state.messages(),
        "values": {name: state[name] for name in names},
        "meta": {name: state.get_meta_info(name) for name in names},
        "totals": state.get_meta_info(),
        "ret_value": state.ret_value,
        "pieces": "".join(state.text_iter()),
        "first": list(state.text_iter(names[-1])),
    }


@pytest.mark.parametrize("name", sorted(ITEMS))
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0, "max_tokens": 3, "hints": False}])
def test_a_run_on_the_server_reads_as_a_run_here(
    programs: dict[str, CompiledProgram],
    served: Served,
    client: Client,
    name: str,
    settings: dict[str, Any],
) -> None:
    arguments, names = ITEMS[name]
    here, there = ScriptedBackend(answering), ScriptedBackend(answering)
    program, remote = programs[name], client(served(there))
    own = program.run(backend=here, **arguments, **settings)
    mine = program.run(backend=remote, remote=True, **arguments, **settings)
    assert reading(mine, names) == reading(own, names)
    key = lambda call: (prompt_text(call.prompt), call.sampling)  # noqa: E731
    assert sorted(map(key, there.calls), key=str) == sorted(map(key, here.calls), key=str)
    assert type(mine) is type(own)


def test_a_streamed_run_gives_pieces_while_it_goes_on(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    there = ScriptedBackend(answering, is_held=True, chunk_len=2)
    state = programs["talk"].stream(backend=client(served(there)), remote=True, topic="tea")
    there.wait_for(1)
    there.release()
    assert state["answer"] == "".join(state.text_iter("answer"))
    there.wait_for(2)
    assert not there.replies[1].done()  # it was there before the end
    there.release()
    text = "".join(state.text_iter())
    assert text == state.text()
    assert "".join(state.text_iter("more")) == state["more"]


def test_async_and_batch_runs_go_to_the_server(
    programs: dict[str, CompiledProgram], served: Served, client: Client, tmp_path: Path
) -> None:
    backend = client(served(ScriptedBackend(answering)))
    items = [{"question": "?" * num} for num in range(20)]
    states = programs["ask"].run_batch(items, backend=backend, remote=True)
    assert [state["answer"] for state in states] == [f"<{num}>" for num in range(20)]
    state = asyncio.run(programs["ask"].arun(question="??", backend=backend, remote=True))
    assert state["answer"] == "<2>"
    for _ in range(2):
        states = programs["ask"].run_batch(
            items, backend=backend, checkpoint=tmp_path / "batch.jsonl", remote=True
        )
        assert [state["answer"] for state in states] == [f"<{num}>" for num in range(20)]


def test_a_program_is_sent_once_and_again_to_a_server_that_does_not_know_it(
    programs: dict[str, CompiledProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[tuple[str, str, int]] = []

    def note(line: Any) -> None:
        lines.append((line["method"], line["route"][-4:], line["status"]))

    monkeypatch.setattr("forkroot.adapters.http.server.audit.note", note)
    runtime = Runtime(ScriptedBackend(answering), Letters(), ("scripted",))
    with ExitStack() as at_end:
        with serving(runtime) as url:
            port = int(url.rpartition(":")[2])
            backend = connect(url)
            at_end.callback(backend.close)
            items = [{"question": str(num)} for num in range(10)]
            programs["ask"].run_batch(items, backend=backend)
            assert sum(line[0] == "PUT" for line in lines) == 1
            assert sum(line[1] == "/run" for line in lines) == 10
        lines.clear()
        with serving_at(runtime, port):
            states = programs["ask"].run_batch(items, backend=backend)
            assert [state["answer"] for state in states] == ["<1>"] * 10
        assert sum(line[0] == "PUT" for line in lines) == 1
        with pytest.raises(BackendClosed, match="cannot be reached"):
            programs["ask"].run(question="a", backend=backend)


def serving_at(runtime: Runtime, port: int) -> Any:
    """A server at the port of one that has ended."""
    import queue
    import threading
    from contextlib import contextmanager

    from forkroot.adapters.http.serve import server_of
    from forkroot.adapters.http.server.settings import Settings

    @contextmanager
    def run() -> Any:
        announced: queue.Queue[str] = queue.Queue()
        server = server_of(runtime, Settings(), "127.0.0.1", port, announced.put)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        announced.get(timeout=60)
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(60)

    return run()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CallFailed("it broke"), CallFailed),
        (InvalidCall("json_schema", {"a": 1}, "another"), InvalidCall),
        (DeadlineExceeded("late"), DeadlineExceeded),
        (Overloaded("full"), Overloaded),
    ],
)
def test_errors_are_those_of_a_run_here(
    programs: dict[str, CompiledProgram],
    served: Served,
    client: Client,
    error: Exception,
    kind: type[Exception],
) -> None:
    def failing(call: Any) -> Any:
        return error if "\nGrade" in prompt_text(call.prompt) else answering(call)

    found = []
    for backend in (ScriptedBackend(failing), client(served(ScriptedBackend(failing)))):
        with pytest.raises(kind) as caught:
            programs["judge"].run(essay="tea", backend=backend)
        (state,) = programs["judge"].run_batch([{"essay": "tea"}], backend=backend)
        with pytest.raises(kind):
            state["grade"]
        notes = getattr(caught.value, "__notes__", [])
        message = str(caught.value) if kind is not CallFailed else ""  # a server keeps its own
        found.append((message, notes[:1], state["topic"], state["verdict"]))
    assert found[0] == found[1]


def test_wrong_arguments_are_the_errors_of_a_run_here(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    there = ScriptedBackend(answering)
    backend = client(served(there))
    for keywords in ({}, {"essay": "a", "temperature": -1.0}, {"esay": "a"}):
        found = []
        for one in (ScriptedBackend(answering), backend):
            with pytest.raises((TypeError, InvalidCall)) as caught:
                programs["judge"].run(backend=one, **keywords)
            found.append((type(caught.value), str(caught.value)))
        assert found[0] == found[1]
    assert there.calls == []


@function
def padded(s: Any, topic: Any) -> None:
    s += f"{topic:>9}" + gen("answer", max_tokens=3)


@function
def as_number(s: Any, topic: Any) -> None:
    s += topic + gen("answer", max_tokens=3)
    s += f"{s['answer']:d}"


@pytest.mark.parametrize(
    ("program", "topic", "message"),
    [
        (padded, None, r"arguments.topic=None: .*'>9'"),
        (as_number, 5, r"arguments.topic=5: expected text"),
        (as_number, "tea", r"answer='.*': .*'d'"),
    ],
)
def test_a_value_that_its_format_does_not_take_is_the_error_of_a_run_here(
    served: Served, client: Client, program: Any, topic: Any, message: str
) -> None:
    found = []
    for backend in (ScriptedBackend(answering), client(served(ScriptedBackend(answering)))):
        with pytest.raises(InvalidCall, match=message) as caught:
            program.compile().run(backend=backend, topic=topic)
        found.append(str(caught.value))
    assert found[0] == found[1]


class Odd:
    """An argument that is no plain data."""

    def __format__(self, spec: str) -> str:
        return "odd"


def test_what_a_server_cannot_run_is_run_call_by_call(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    there = ScriptedBackend(answering)
    backend = client(served(there))

    @function
    def odd(s: Any, thing: Any) -> None:
        s += f"{thing}: " + gen("answer")

    program = odd.compile()
    assert program.run(thing=Odd(), backend=backend)["answer"] == "<5>"
    with pytest.raises(InvalidCall, match=r"arguments\.thing"):
        program.run(thing=Odd(), backend=backend, remote=True)
    for settings in ({"speculate": 8}, {"backends": {"other": backend}}):
        assert program.run(thing="a", backend=backend, **settings)["answer"] == "<3>"
        with pytest.raises(InvalidCall, match="remote=True: expected None or False"):
            program.run(thing="a", backend=backend, remote=True, **settings)
    with pytest.raises(InvalidCall, match="is no server that runs programs"):
        program.run(thing="a", backend=there, remote=True)


def test_an_older_server_is_asked_call_by_call(
    programs: dict[str, CompiledProgram],
    served: Served,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forkroot.adapters.http.forkroot.calls.FEATURE", "hints")
    there = ScriptedBackend(answering)
    backend = client(served(there))
    assert programs["ask"].run(question="a", backend=backend)["answer"] == "<1>"
    with pytest.raises(InvalidCall, match="its forkroot is older"):
        programs["ask"].run(question="a", backend=backend, remote=True)


def test_pictures_are_sent_as_data_and_never_read_there(
    served: Served, client: Client, tmp_path: Path
) -> None:
    @function
    def look(s: Any, picture: Any) -> None:
        s += "A picture: " + image(picture) + gen("answer")

    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG")
    there = ScriptedBackend("red")
    program = look.compile(unknown=("picture",))
    state = program.run(picture=str(path), backend=client(served(there)), remote=True)
    own = program.run(picture=str(path), backend=ScriptedBackend("red"))
    assert state["answer"] == own["answer"] == "red"
    assert there.calls[-1].prompt[1].data == b"\x89PNG"


def test_a_closed_client_ends_its_runs_in_backend_closed(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    there = ScriptedBackend(answering, is_held=True)
    backend = client(served(there))
    state = programs["ask"].stream(question="a", backend=backend)
    there.wait_for(1)
    backend.close()
    with pytest.raises(BackendClosed):
        state["answer"]
    with pytest.raises(BackendClosed):
        programs["ask"].run(question="a", backend=backend)
    there.replies[0].result(60)  # it was cancelled there
