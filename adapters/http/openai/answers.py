"""What the bodies of answers have in OpenAI's shapes: identity, tokens used, log-probabilities."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fastapi.responses import JSONResponse

from ....core.api.protocol import Call, Completion, Output, TokenLogprob, Usage
from ..server.runtime import Runtime, Texts
from ..server.sse import Arrival, Event
from ..wire.names import new_name
from ..wire.wire import StreamOptions

LEAST = -9999.0  # what OpenAI writes for minus infinity


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
    """Tokens in OpenAI's shape; those of pictures in its details, if there are any."""
    images = {"image_tokens": usage.image_tokens} if usage.image_tokens else {}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, **images},
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


def chat_logprobs(texts: Texts, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Of a chat's answer; tokens that add no text, such as the one that ends it, are left out."""
    content = [
        {
            **_chat_token(texts, it.id, it.logprob),
            "top_logprobs": [_chat_token(texts, *candidate) for candidate in it.top],
        }
        for it in logprobs
        if _bytes(texts, it.id)
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    texts: Texts, scores: Sequence[TokenLogprob], offset: int = 0
) -> dict[str, Any]:
    """Of a completion. offset: where the first token's text begins. The logarithm of a prompt's
    first token is NaN: nothing comes before it."""
    offsets = []
    for score in scores:
        offsets.append(offset)
        offset += len(_bytes(texts, score.id).decode("utf-8", "ignore"))
    return {
        "tokens": [token_text(texts, score.id) for score in scores],
        "token_logprobs": [_finite(score.logprob) for score in scores],
        "top_logprobs": [_top_logprobs(texts, score) for score in scores],
        "text_offset": offsets,
    }


def token_text(texts: Texts, token: int) -> str:
    """A token's text; its id if it has none, its bytes if these are not UTF-8."""
    data = _bytes(texts, token)
    if not data:
        return f"token_id:{token}"
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _chat_token(texts: Texts, token: int, logprob: float) -> dict[str, Any]:
    data = _bytes(texts, token)
    return {"token": token_text(texts, token), "logprob": _finite(logprob), "bytes": [*data]}


def _top_logprobs(texts: Texts, score: TokenLogprob) -> dict[str, float | None] | None:
    """The likeliest tokens, and the token itself; None for a first token."""
    if math.isnan(score.logprob):
        return None
    top = {token_text(texts, token): _finite(logprob) for token, logprob in score.top}
    return top | {token_text(texts, score.id): _finite(score.logprob)}


def _finite(logprob: float) -> float | None:
    if math.isnan(logprob):
        return None
    return logprob if math.isfinite(logprob) else LEAST


def _bytes(texts: Texts, token: int) -> bytes:
    return texts.token_bytes[token] if token < len(texts.token_bytes) else b""
