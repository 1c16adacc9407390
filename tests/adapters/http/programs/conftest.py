"""Servers of a scripted backend, and programs for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from forkroot import connect
from forkroot.adapters.http.server.runtime import Limits, ProgramLimits, Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.native import CompiledProgram, assistant, function, gen, select, user
from forkroot.adapters.testing import ScriptedBackend

from ....serving import serving
from ..conftest import Letters


@function
def judge(s: Any, essay: str) -> dict[str, Any]:
    s += f"Essay: {essay}\n"
    s += "On topic? " + select("topic", choices=["yes", "no"])
    group = s.fork(3)
    for branch, name in zip(group, ("style", "facts", "form"), strict=True):
        branch += f"\n{name}: " + gen("verdict", max_tokens=8)
    group.join()
    s += "\nGrade: " + gen("grade", max_tokens=4, stop="\n")
    return {"grade": s["grade"], "essay": essay}


@function
def talk(s: Any, topic: str) -> None:
    s += user(f"Tell me about {topic}.") + assistant("Well, " + gen("answer", max_tokens=16))
    s += user("And?") + assistant(gen("more", max_tokens=16, return_logprob=True))


@function
def ask(s: Any, question: str) -> None:
    s += question + gen("answer", max_tokens=8)


@pytest.fixture(scope="session")
def programs() -> dict[str, CompiledProgram]:
    """Compiled once: tests do not change them."""
    return {"judge": judge.compile(), "talk": talk.compile(), "ask": ask.compile()}


Served = Callable[..., str]


@pytest.fixture
def served() -> Iterator[Served]:
    """Makes a server of a backend and gives its URL; it is there until the test ends."""
    with ExitStack() as at_end:

        def serve(
            backend: Any, limits: Limits | None = None, settings: Settings | None = None
        ) -> str:
            runtime = Runtime(backend, Letters(), ("scripted",), limits or Limits())
            return at_end.enter_context(serving(runtime, settings))

        yield serve


@pytest.fixture
def client() -> Iterator[Callable[..., Any]]:
    """Makes a client of a URL, closed when the test ends."""
    with ExitStack() as at_end:

        def make(url: str, **settings: Any) -> Any:
            backend = connect(url, **settings)
            at_end.callback(backend.close)
            return backend

        yield make


def answering(call: Any) -> str:
    """An answer that depends on the prompt."""
    from forkroot.adapters.testing import prompt_text

    text = prompt_text(call.prompt)
    if call.options:
        return str(call.options[len(text) % len(call.options)])
    return f"<{len(text)}>"


@pytest.fixture
def scripted() -> ScriptedBackend:
    return ScriptedBackend(answering)


@pytest.fixture(scope="session")
def shared() -> Iterator[tuple[str, ScriptedBackend]]:
    """A server for tests whose programs never run, and its backend; at most 100 nodes a program."""
    backend = ScriptedBackend(answering)
    limits = Limits(programs=ProgramLimits(max_nodes=100))
    with serving(Runtime(backend, Letters(), ("scripted",), limits)) as url:
        yield url, backend
