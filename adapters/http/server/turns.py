"""Requests that come at once begin a few at a time, those of several clients in turn.

Else the event loop would begin hundreds of one client before it reads the next one of another. It
knows nothing of requests.
"""

from __future__ import annotations

import asyncio
from collections import deque

_AT_A_TIME = 4  # in one round of the event loop


class Turns:
    """The turns of the clients of one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # the first is next
        self._num_left = _AT_A_TIME
        self._is_due = False

    async def wait(self, client: str) -> None:
        """Return when it is this client's turn: at once where few have begun in this round."""
        loop = asyncio.get_running_loop()
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._begin_round, loop)
        if self._num_left and not self._waiting:
            self._num_left -= 1
            return
        turn = loop.create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        await turn

    def _begin_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._num_left = _AT_A_TIME
        while self._waiting and self._num_left:
            client = next(iter(self._waiting))
            queue = self._waiting.pop(client)
            turn = queue.popleft()
            if queue:
                self._waiting[client] = queue
            if not turn.done():  # else it was cancelled
                turn.set_result(None)
                self._num_left -= 1
        self._is_due = bool(self._waiting) or self._num_left < _AT_A_TIME
        if self._is_due:
            loop.call_soon(self._begin_round, loop)
