"""What a request leaves is freed as it ends: a busy server has no garbage to search for."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from forkroot import connect, function, gen
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.testing import ScriptedBackend

from ..conftest import Letters, serving

NUM_REQUESTS = 5
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}


@function
def forks(s: Any, word: str) -> None:
    s += f"{word}: " + gen("first", max_tokens=2)
    group = s.fork(3)
    group += gen("each", max_tokens=2)
    group.join()


def left_by(action: Callable[[], object]) -> Counter[str]:
    """The objects of this package, by type, that only a garbage collection finds."""
    action()  # what is made once
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(NUM_REQUESTS):
            action()
        gc.collect()
        names = [f"{type(it).__module__}.{type(it).__qualname__}" for it in gc.garbage]
        return Counter(name for name in names if "forkroot" in name or "uvicorn" in name)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_request_leaves_nothing_that_refers_to_itself(path: str, is_streamed: bool) -> None:
    asked = CHAT if "chat" in path else {"prompt": "Hello"}
    runtime = Runtime(ScriptedBackend("ok"), Letters(), ("scripted",))
    with serving(runtime) as url, httpx.Client(base_url=url) as client:

        def ask() -> None:
            answer = client.post(path, json=asked | {"stream": is_streamed})
            assert answer.status_code == 200

        assert not left_by(ask)


def test_a_program_leaves_nothing_that_refers_to_itself(server: str) -> None:
    compiled = forks.compile()
    with connect(server) as backend:

        def run() -> None:
            assert len(compiled.run(word="x", backend=backend, remote=True)["each"]) == 3

        assert not left_by(run)


def test_a_program_that_runs_here_leaves_nothing_that_refers_to_itself() -> None:
    backend = ScriptedBackend("ok")
    assert not left_by(lambda: forks.run(word="x", backend=backend))
