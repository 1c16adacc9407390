"""The embedded model where adapters must be able to meet it: here, in a child, behind a server."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import forkroot
from forkroot.adapters.http.runtime import Runtime
from forkroot.adapters.http.serve import server_of
from forkroot.adapters.http.settings import Settings
from forkroot.core.local import LocalBackend
from forkroot.core.protocol import Backend

SETTINGS = {"dtype": "float32", "num_slots": 20_000}


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
        is_remote = request.param == "remote"
        where = request.getfixturevalue("server") if is_remote else "tiny"
        settings = {} if is_remote else {"process": True, **SETTINGS}
        found = forkroot.connect(where, **settings)
        stack.callback(found.close)
        yield found


@contextmanager
def serving(runtime: Runtime, settings: Settings | None = None) -> Iterator[str]:
    """A server in a thread of this process; gives its URL."""
    told: queue.Queue[str] = queue.Queue()
    server = server_of(runtime, settings or Settings(), "127.0.0.1", 0, told.put)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield told.get(timeout=30)
    finally:
        server.should_exit = True
        thread.join()
