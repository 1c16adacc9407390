"""Token usage of a request, reported at its end or with every event."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ....core.api.protocol import Call, Usage
from ..server.runtime import Runtime
from ..server.sse import Arrival
from ..wire.wire import StreamOptions


def usage_body(usage: Usage) -> dict[str, Any]:
    """Tokens in OpenAI's shape."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class Tally:
    """Counts the tokens of a stream as they come. Mutable.

    include_usage: the client wants the usage at the end. is_continuous: and with every event.
    """

    def __init__(self, options: StreamOptions | None, num_prompt: int = 0) -> None:
        options = options or StreamOptions()
        self.is_continuous = bool(options.continuous_usage_stats)
        self.include_usage = bool(options.include_usage)
        self._running = Usage(prompt_tokens=num_prompt)
        self._ended = Usage()

    def add(self, arrival: Arrival) -> None:
        """Count what came in."""
        if arrival.chunk is not None:
            self._running += Usage(completion_tokens=len(arrival.chunk.ids))
        if arrival.completion is not None:
            self._ended += arrival.completion.usage

    def fields(self) -> dict[str, Any]:
        """The usage in an event of a stream: prompt tokens are all counted from the start,
        and what was cached is known at the end."""
        if self.is_continuous:
            return {"usage": usage_body(self._running)}
        return {"usage": None} if self.include_usage else {}

    def total(self) -> dict[str, Any]:
        """Of all calls, once they have ended."""
        return usage_body(self._ended)


async def tally_of(runtime: Runtime, options: StreamOptions | None, calls: Sequence[Call]) -> Tally:
    """The tally of a stream. Counts the prompts, if they are reported from the start; raises
    InvalidCall for one that is not allowed."""
    if options is None or not options.continuous_usage_stats:
        return Tally(options)
    encode = runtime.texts.encode_prompt
    count = await asyncio.to_thread(lambda: sum(len(encode(call.prompt)) for call in calls))
    return Tally(options, count)
