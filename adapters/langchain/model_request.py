"""One call of a model: submitted, awaited, retried.

An exception or a cancelled task while it is awaited cancels the call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from ...core.api.protocol import Call, Chunk, Completion, ForkrootError, Reply
from ..common.retries import pause_before
from ..common.spelling import located
from ..connection import Connection
from .errors import as_langchain, is_retryable
from .hints.batcher import cancel_result
from .hints.call_context import CallContext


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A call, its connection and its context. max_retries: of errors that are temporary. reply: to
    the first try, if it was submitted already. schemas: those of its constraint, by field; errors
    name the place in them."""

    connection: Connection
    call: Call
    context: CallContext
    max_retries: int = 0
    reply: Reply | None = None
    schemas: Mapping[str, Any] = field(default_factory=dict)

    def submit(self) -> Reply:
        """Submit the call, together with the others of its batch."""
        prefixes, context = self.connection.prefixes, self.context
        if context.batcher is None:
            return prefixes.submit(self.call)
        return context.batcher.submit(context.member, self.call, prefixes.submit_all)

    async def asubmit(self) -> Reply:
        """As `submit`, for a task: blocking work runs in a thread."""
        prefixes, context = self.connection.prefixes, self.context
        if context.batcher is not None:
            return await context.batcher.asubmit(context.member, self.call, prefixes.submit_all)
        work = asyncio.ensure_future(asyncio.to_thread(prefixes.submit, self.call))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(cancel_result)
            raise

    def completion(self) -> tuple[Completion, list[Chunk]]:
        """The answer, and its chunks where the call streams. Raises the call's error."""
        return _parted([*self.answer()])

    async def acompletion(self) -> tuple[Completion, list[Chunk]]:
        """As `completion`, for a task."""
        return _parted([item async for item in self.aanswer()])

    def answer(self) -> Generator[Chunk | Completion, None, None]:
        """The answer as it comes in, and its end. Raises the call's error."""
        given = self.reply
        for num_retries in count():
            reply, given = self.context.follow(given or self.submit()), None
            is_started = False
            try:
                if self.call.stream:
                    for chunk in reply:
                        is_started = True
                        yield chunk
                yield reply.result()
                return
            except ForkrootError as error:
                pause = self._pause(error, num_retries, is_started)
            finally:
                reply.cancel()
            time.sleep(pause)

    async def aanswer(self) -> AsyncGenerator[Chunk | Completion, None]:
        """As `answer`, for a task."""
        given = self.reply
        for num_retries in count():
            reply, given = self.context.follow(given or await self.asubmit()), None
            is_started = False
            try:
                if self.call.stream:
                    async for chunk in reply:
                        is_started = True
                        yield chunk
                yield await reply
                return
            except ForkrootError as error:
                pause = await asyncio.to_thread(self._pause, error, num_retries, is_started)
            finally:
                reply.cancel()
            await asyncio.sleep(pause)

    def _pause(self, error: ForkrootError, num_retries: int, is_started: bool) -> float:
        """Seconds to wait before the next try. Raises the error, with its place in a schema, where
        there is none."""
        error = located(error, self.schemas, self.connection.backend.submit)
        if is_started or num_retries == self.max_retries or not is_retryable(error):
            raise as_langchain(error) from error
        return pause_before(num_retries, error)


def _parted(items: Sequence[Chunk | Completion]) -> tuple[Completion, list[Chunk]]:
    """The end of an answer, and what came before."""
    *chunks, end = items
    return cast(Completion, end), cast(list[Chunk], chunks)
