"""Several calls of one request: submitted in a thread, gathered, cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from ....core.api.protocol import Completion, Reply


async def submit_in_thread(begin: Callable[[], Sequence[Reply]]) -> Sequence[Reply]:
    """Run `begin`, which prepares and submits calls, in a thread; returns their replies. If this is
    cancelled, the replies are cancelled as soon as they exist."""
    task = asyncio.ensure_future(asyncio.to_thread(begin))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_cancel_submitted)
        raise


async def gather_completions(replies: Sequence[Reply]) -> list[Completion]:
    """The completions of all replies. If one fails, or this is cancelled, the others are cancelled.
    Raises the error of the first that failed."""
    try:
        return list(await asyncio.gather(*replies))
    finally:
        cancel_all(replies)


def cancel_all(replies: Iterable[Reply]) -> None:
    """Cancel those of these calls that are open."""
    for reply in replies:
        reply.cancel()


def _cancel_submitted(task: asyncio.Future[Sequence[Reply]]) -> None:
    if not task.cancelled() and task.exception() is None:
        cancel_all(task.result())
