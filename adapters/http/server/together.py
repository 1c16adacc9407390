"""Several calls of one request: begun off the loop that serves the others, and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from ....core.api.protocol import Completion, Reply

T = TypeVar("T")


async def begun(begin: Callable[[], Sequence[Reply]]) -> Sequence[Reply]:
    """The replies of the calls that `begin` prepares and submits, in another thread; if nobody
    waits for them any longer they are cancelled as soon as they are there."""
    task = asyncio.ensure_future(asyncio.to_thread(begin))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_cancel_found)
        raise


async def completed(replies: Sequence[Reply]) -> list[Completion]:
    """What all these calls ended in. If one fails, or nobody waits any longer, the rest are
    cancelled. Raises the error of the first that failed."""
    try:
        return list(await asyncio.gather(*map(_result, replies)))
    finally:
        cancel_all(replies)


def cancel_all(replies: Iterable[Reply]) -> None:
    """End these calls early, as far as they are open."""
    for reply in replies:
        reply.cancel()


async def _result(reply: Awaitable[T]) -> T:
    return await reply


def _cancel_found(task: asyncio.Future[Sequence[Reply]]) -> None:
    if not task.cancelled() and task.exception() is None:
        cancel_all(task.result())
