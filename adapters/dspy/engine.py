"""The engines of `dspy.LM`: one request in, one response out, whole or as a stream.

As DSPy wants it, they keep no cache, no history and no retries of their own. Both borrow the one
runtime of the process and end with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from dspy import lm15

from ...core.api.protocol import Backend, ForkrootError
from .errors import as_dspy_error, translate_errors
from .hints.returning import current_run
from .judgment import Judging
from .options import CARRIED
from .runtime import RequestContext, Runtime

PARAMS = (CARRIED | {"temperature", "max_tokens", "stream"}) - {"reasoning_effort"}


class _Base:
    """What the two have in common. where, settings: as in `Runtime`, or one that is there."""

    supports_function_calling = True
    supports_reasoning = False
    supports_response_schema = True
    supported_params = PARAMS

    def __init__(self, where: Backend | str | Path | Runtime = "tiny", **settings: Any) -> None:
        if isinstance(where, Runtime):
            self.runtime = where
            return
        with translate_errors():
            self.runtime = Runtime(where, **settings)

    def dump_state(self) -> dict[str, Any]:
        """What `load_state` needs, without secrets. Raises TypeError for a backend object."""
        return self.runtime.state()

    @classmethod
    def load_state(cls, state: dict[str, Any]) -> Self:
        """An engine like the one that was saved."""
        return cls(**state)

    @contextmanager
    def _answering(self, context: RequestContext) -> Iterator[None]:
        """Raise our errors from within as DSPy's, none where the request is to be repeated. The
        call ends with it, if it has not ended."""
        try:
            yield
        except ForkrootError as error:
            if not self.runtime.recover(context, error):
                raise as_dspy_error(error, context.call) from error
        finally:
            context.reply.cancel()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """The engine itself: copies of a program share its runtime."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).load_state, (self.dump_state(),)


class Engine(_Base):
    """`complete` and `stream` in the caller's thread; may be called from many at once."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        """The answer. Raises errors of `dspy.lm15`."""
        while True:
            with translate_errors():
                judging = Judging.of(self.runtime, request)
                if judging is not None:
                    return judging.response()
                context = self.runtime.ask(request)
            with self._answering(context):
                result = context.reply.result()
                self.runtime.note_answer(context)
                return context.reading.response(result)

    def stream(self, request: lm15.Request) -> Iterator[Any]:
        """The answer as events: a start, deltas, and an end with the usage. Closing it early ends
        the call. Raises errors of `dspy.lm15`."""
        yield lm15.StreamStartEvent(model=request.model)
        while True:
            with translate_errors():
                context = self.runtime.ask(request, stream=True)
            with self._answering(context):
                for chunk in context.reply:
                    yield from context.reading.events(chunk)
                result = context.reply.result()
                self.runtime.note_answer(context)
                yield from context.reading.end(result)
                return

    def close(self) -> None:
        """Nothing: the runtime is the process's, and others may use it."""


class AsyncEngine(_Base):
    """The same on an event loop, which never waits for the runtime."""

    async def complete(self, request: lm15.Request) -> lm15.Response:
        """The answer. Cancelling the task ends the call. Raises errors of `dspy.lm15`."""
        while True:
            with translate_errors():
                judging = Judging.of(self.runtime, request)
                if judging is not None:
                    return await asyncio.to_thread(judging.response)
                context = await asyncio.to_thread(self.runtime.ask, request)
            with self._answering(context):
                result = await context.reply
                if current_run() is not None:
                    await asyncio.to_thread(self.runtime.note_answer, context)
                return context.reading.response(result)

    async def stream(self, request: lm15.Request) -> AsyncIterator[Any]:
        """As `Engine.stream`."""
        yield lm15.StreamStartEvent(model=request.model)
        while True:
            with translate_errors():
                context = await asyncio.to_thread(self.runtime.ask, request, stream=True)
            with self._answering(context):
                async for chunk in context.reply:
                    for event in context.reading.events(chunk):
                        yield event
                result = await context.reply
                if current_run() is not None:
                    await asyncio.to_thread(self.runtime.note_answer, context)
                for event in context.reading.end(result):
                    yield event
                return

    async def aclose(self) -> None:
        """Nothing, as `Engine.close`."""
