"""A server for tests, in a thread of their own process."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from forkroot.adapters.http.serve import server_of
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings


@contextmanager
def serving(runtime: Runtime, settings: Settings | None = None) -> Iterator[str]:
    """A server in a thread of this process; gives its URL."""
    announced: queue.Queue[str] = queue.Queue()
    server = server_of(runtime, settings or Settings(), "127.0.0.1", 0, announced.put)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield announced.get(timeout=60)
    finally:
        server.should_exit = True
        thread.join(60)
        if thread.is_alive():
            tasks = asyncio.all_tasks(server.servers[0].get_loop())
            raise TimeoutError(f"a server did not end; its tasks are {tasks}")
