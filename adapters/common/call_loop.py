"""One thread with one event loop that carries the calls of a backend. It knows no wire."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ...core.api.owner import Owner
from ...core.api.protocol import BackendClosed, Reply
from ...core.api.reply import Mailbox


class Carried(Protocol):
    """A call, or another exchange, on its way."""

    @property
    def task(self) -> asyncio.Task[Any]:
        """Ends with it."""

    def cancel(self) -> object:
        """End it early."""


class CallLoop:
    """Carries exchanges until it is closed. name: of the thread. at_end: closes the connections, in
    the loop, once all exchanges have ended. Its methods may be called in any thread, and do nothing
    in a fork of this process, unless they say otherwise."""

    def __init__(self, name: str, at_end: Callable[[], Awaitable[object]]) -> None:
        self._owner = Owner()
        self._at_end = at_end
        self._of_reply: dict[Reply, Carried] = {}
        self._carried: set[Carried] = set()
        self._gate = threading.Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._is_closed

    @property
    def num_open(self) -> int:
        """Exchanges on their way."""
        return len(self._carried)

    def post(self, action: Callable[[], object]) -> bool:
        """Call `action` soon in the loop's thread; False: it never will be."""
        if not self._owner.is_here:
            return False
        with self._gate:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(action)
            return not self._is_closed

    def submit(self, mailbox: Mailbox, begin: Callable[[], Carried]) -> None:
        """Carry a call, whose exchange `begin` begins in the loop's thread; it ends in
        BackendClosed where nothing is taken any more."""

        def start() -> None:
            carried = self._of_reply[mailbox] = begin()
            carried.task.add_done_callback(lambda _: self._of_reply.pop(mailbox, None))
            self.carry(carried)

        if not self.post(start):
            mailbox.fail(BackendClosed.before())

    def carry(self, carried: Carried) -> None:
        """End an exchange when the loop ends. In the loop's thread only."""
        self._carried.add(carried)
        carried.task.add_done_callback(lambda _: self._carried.discard(carried))

    def cancel(self, reply: Reply) -> None:
        """End a call early."""
        self.post(lambda: self._cancel(reply))

    def close(self) -> None:
        """Take nothing more, end all that is open, and wait until the thread has ended."""
        if not self._owner.is_here:
            return
        with self._gate:
            is_first, self._is_closed = not self._is_closed, True
            if is_first:
                self._ending = asyncio.run_coroutine_threadsafe(self._shut(), self._loop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # --- in the loop's thread ------------------------------------------------------------------

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _cancel(self, reply: Reply) -> None:
        if reply in self._of_reply:
            self._of_reply[reply].cancel()

    async def _shut(self) -> None:
        try:
            tasks = [carried.task for carried in self._carried]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._at_end()
        finally:
            self._loop.stop()
