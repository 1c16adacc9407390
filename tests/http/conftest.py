"""One model for all tests of the server: in this process, and behind a server on a free port."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forkroot.adapters.http.runtime import Runtime
from forkroot.adapters.http.serve import server_of
from forkroot.adapters.http.settings import Settings
from forkroot.core.local import LocalBackend


@pytest.fixture(scope="session")
def backend() -> Iterator[LocalBackend]:
    """The embedded model in this process."""
    with LocalBackend.from_folder("tiny", dtype="float32", num_slots=20_000) as backend:
        yield backend


@pytest.fixture(scope="session")
def runtime(backend: LocalBackend) -> Runtime:
    """That model, as a server sees it."""
    return Runtime(backend, backend.tokenizer, ("tiny", "alias"))


@pytest.fixture(scope="session")
def server(runtime: Runtime) -> Iterator[str]:
    """The URL of a server of that model which everybody may ask."""
    with serving(runtime) as url:
        yield url


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
