"""What every body of an answer has: its identity, and the tokens used."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastapi.responses import JSONResponse

from ....core.api.protocol import Call, Completion, Output, Usage
from ..server.runtime import Runtime
from ..server.sse import Arrival, Event
from ..wire.names import new_name
from ..wire.wire import StreamOptions


class Answer(JSONResponse):
    """A body in ASCII: it can also hold what a client sent that is not text."""

    def render(self, content: Any) -> bytes:
        """The body's bytes."""
        return json.dumps(content, separators=(",", ":")).encode("ascii")


class Envelope(NamedTuple):
    """The identity of one answer, the same in all its pieces."""

    id: str
    model: str
    created: int

    @classmethod
    def new(cls, prefix: str, model: str) -> Envelope:
        """Of an answer that begins now."""
        return cls(f"{prefix}-{new_name()}", model, int(time.time()))

    def body(self, kind: str, choices: Sequence[Any], **more: Any) -> dict[str, Any]:
        """A body with these choices."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }


def outputs_of(completion: Completion, num: int = 1) -> Sequence[Output]:
    """The outputs; empty ones of a call that has only planted its prompt."""
    return completion.outputs or (Output("", finish_reason="length"),) * num


def usage_body(usage: Usage) -> dict[str, Any]:
    """Tokens in OpenAI's shape."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class Tally:
    """Makes the events of a stream, and counts its tokens as they come. Mutable.

    kind: of its events. options: whether the client wants the usage at the end, and
    (is_continuous) with every event. num_prompt: tokens of all prompts.
    """

    def __init__(
        self, envelope: Envelope, kind: str, options: StreamOptions | None, num_prompt: int = 0
    ) -> None:
        options = options or StreamOptions()
        self.is_continuous = bool(options.continuous_usage_stats)
        self._include_usage = bool(options.include_usage)
        self._envelope = envelope
        self._kind = kind
        self._running = Usage(prompt_tokens=num_prompt)
        self._ended = Usage()

    def add(self, arrival: Arrival) -> None:
        """Count what came in."""
        if arrival.chunk is not None:
            self._running += Usage(completion_tokens=len(arrival.chunk.ids))
        if arrival.completion is not None:
            self._ended += arrival.completion.usage

    def event(self, choice: dict[str, Any]) -> Event:
        """The event of a choice. Prompt tokens are all counted from the start, and what was cached
        is known at the end."""
        usage: dict[str, Any] = {"usage": None} if self._include_usage else {}
        if self.is_continuous:
            usage = {"usage": usage_body(self._running)}
        return self._envelope.body(self._kind, [choice], **usage)

    def at_end(self) -> list[Event]:
        """The event of the usage of all calls, which have ended; none if it is not wanted."""
        if not self._include_usage:
            return []
        return [self._envelope.body(self._kind, [], usage=usage_body(self._ended))]


async def tally_of(
    runtime: Runtime,
    envelope: Envelope,
    kind: str,
    options: StreamOptions | None,
    calls: Sequence[Call],
) -> Tally:
    """The tally of a stream. Counts the prompts, if they are reported from the start; raises
    InvalidCall for one that is not allowed."""
    if options is None or not options.continuous_usage_stats:
        return Tally(envelope, kind, options)
    encode = runtime.texts.encode_prompt
    count = await asyncio.to_thread(lambda: sum(len(encode(call.prompt)) for call in calls))
    return Tally(envelope, kind, options, count)
