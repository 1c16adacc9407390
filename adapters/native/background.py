"""Blocking work for asyncio, each in a thread of its own so that no pool's size limits it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ...core.api.protocol import ProgramError

T = TypeVar("T")


async def in_thread(work: Callable[[], T], abort: Callable[[BaseException], object]) -> T:
    """The result of `work()`. If the waiting task is cancelled, calls `abort` with an error that
    shall end the work."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            set_outcome(outcome)

    def body() -> None:
        try:
            outcome: Any = work()
            set_outcome: Callable[[Any], None] = future.set_result
        except BaseException as error:
            outcome, set_outcome = error, future.set_exception
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, set_outcome, outcome)

    threading.Thread(target=body, name="forkroot-program", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        abort(ProgramError("the run was cancelled"))
        raise
