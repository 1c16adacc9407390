"""The embedded model where adapters must be able to meet it: here, in a child, behind a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import forkroot
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.core.api.protocol import Backend
from forkroot.core.local import LocalBackend

from ..preloaded import forking
from ..serving import serving

SETTINGS = {"dtype": "float32", "num_slots": 20_000}


@pytest.fixture
def fresh_dspy_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of DSPy that no other run has written."""
    import dspy
    from dspy.clients.cache import Cache

    cache = Cache(enable_disk_cache=False, enable_memory_cache=True, disk_cache_dir="")
    monkeypatch.setattr(dspy, "cache", cache)


@pytest.fixture(scope="session")
def local() -> Iterator[LocalBackend]:
    """The embedded model in this process."""
    with LocalBackend.from_folder("tiny", **SETTINGS) as backend:
        yield backend


@pytest.fixture(scope="session")
def server(local: LocalBackend) -> Iterator[str]:
    """The URL of a server of that model."""
    with serving(Runtime(local, local.tokenizer, ("tiny",))) as url:
        yield url


@pytest.fixture(scope="session", params=["in process", "child process", "remote"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """The embedded model, in each of these places in turn."""
    with ExitStack() as stack:
        if request.param == "in process":
            yield request.getfixturevalue("local")
            return
        if request.param == "remote":
            found = forkroot.connect(request.getfixturevalue("server"))
        else:
            with forking(request.getfixturevalue("forks")):
                found = forkroot.connect("tiny", process=True, **SETTINGS)
        stack.callback(found.close)
        yield found
