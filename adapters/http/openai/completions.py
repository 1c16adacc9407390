"""`/v1/completions`: prompts go on, as text or as token ids."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ....core.api.protocol import (
    Call,
    Completion,
    InvalidCall,
    Segment,
    Text,
    TokenLogprob,
    Tokens,
    UnsupportedCall,
    Usage,
)
from ..requests.bodies import BodyRoute, prepared
from ..requests.large_answers import answer
from ..requests.reading import (
    at_most,
    check_model,
    check_stream_options,
    constraint_of,
    sampling_of,
)
from ..requests.work import Work, call_of, complete, names_of, streamed
from ..server.runtime import Limits, Runtime
from ..server.sse import Arrival, Event, Frame, Line, events_of
from ..wire.wire import CompletionRequest
from .answers import (
    Envelope,
    Tally,
    completion_logprobs,
    outputs_of,
    tally_of,
    usage_body,
)
from .grammars import settled

_KIND = "text_completion"
_MAX_TOKENS = 16  # where a request names none, as OpenAI has it


def routes(runtime: Runtime) -> APIRouter:
    """The route of completions."""
    router = APIRouter(route_class=BodyRoute.of(runtime))

    @router.post("/v1/completions")
    async def completions(given: CompletionRequest, http: Request) -> Response:
        """OpenAI's completions: text that continues one or several prompts."""
        check_model(runtime, given.model)
        check_stream_options(given)
        request = settled(given)
        work = await prepared(runtime, http, partial(_work, request, runtime.limits))
        echoes = await _echoes(runtime, request, work)
        envelope = Envelope.new("cmpl", runtime.name)
        is_scored = bool(echoes) and request.logprobs is not None
        if request.stream:
            if is_scored:
                prompt_completions = await complete(runtime, _without_answers(_scored(work)))
                echoes = [*map(_Echo.after, echoes, prompt_completions)]
            shape = _Shape(runtime, request, echoes)
            options = request.stream_options
            tally = await tally_of(runtime, envelope, _KIND, options, work.calls)
            events = partial(shape.events, tally)
            return await streamed(runtime, work, lambda it: events_of(it, events, tally.at_end))
        found = await complete(runtime, _scored(work) if is_scored else work)
        if is_scored:
            echoes = [*map(_Echo.after, echoes, found)]
        shape, usage = _Shape(runtime, request, echoes), sum((it.usage for it in found), Usage())

        def body() -> dict[str, Any]:
            return envelope.body(_KIND, shape.whole(found), usage=usage_body(usage))

        return await answer(runtime.workers, found, body)

    return router


@dataclass(frozen=True, slots=True)
class _Echo:
    """What is repeated of a prompt. scores: of its tokens, where they are wanted."""

    text: str
    ids: tuple[int, ...]
    scores: tuple[TokenLogprob, ...] = ()

    def after(self, completion: Completion) -> _Echo:
        """The same, with the completion's scores of the prompt's tokens; nothing comes before the
        first one."""
        first = [TokenLogprob(token, math.nan) for token in self.ids[:1]]
        return replace(self, scores=(*first, *completion.prompt_logprobs))


@dataclass(frozen=True, slots=True)
class _Shape:
    """The choices of one request's answer. Mutable in what has been sent of it.

    echoes: of each prompt; none without echo. shown: characters of each choice that has started, by
    its prompt and its number. frames: of these, where their events differ in their text only.
    """

    runtime: Runtime
    request: CompletionRequest
    echoes: Sequence[_Echo]
    shown: dict[tuple[int, int], int] = field(default_factory=dict)
    frames: dict[tuple[int, int], Frame] = field(default_factory=dict)

    def whole(self, completions: Sequence[Completion]) -> list[dict[str, Any]]:
        """The choices in one piece each."""
        return [
            self._choice(source, index, output.text, output.logprobs, output.finish_reason)
            for source, completion in enumerate(completions)
            for index, output in enumerate(outputs_of(completion, self._num))
        ]

    def events(self, tally: Tally, arrival: Arrival) -> Sequence[Event | Line]:
        """The pieces of the answer that follow from an arrival."""
        source, chunk = arrival.source, arrival.chunk
        if chunk is not None and (frame := self.frames.get((source, chunk.index))) is not None:
            return [frame.line(chunk.text)]
        tally.add(arrival)
        if chunk is None:
            return list(map(tally.event, self._last(arrival)))
        index = chunk.index
        offset = self.shown.get((source, index))
        choice = self._choice(source, index, chunk.text, chunk.logprobs, None, offset)
        self.shown[source, index] = (offset or 0) + len(choice["text"])
        if self.request.logprobs is None and not tally.is_continuous:
            self.frames[source, index] = Frame(
                lambda text: tally.event(self._choice(source, index, text, (), None, 0))
            )
        return [tally.event(choice)]

    def _last(self, arrival: Arrival) -> Iterator[dict[str, Any]]:
        source = arrival.source
        assert arrival.completion is not None
        for index, output in enumerate(outputs_of(arrival.completion, self._num)):
            shown = self.shown.get((source, index))
            yield self._choice(source, index, "", (), output.finish_reason, shown)

    @property
    def _num(self) -> int:
        return self.request.n or 1

    def _choice(
        self,
        source: int,
        index: int,
        text: str,
        scores: Sequence[TokenLogprob],
        ending: str | None,
        shown: int | None = None,
    ) -> dict[str, Any]:
        """shown: characters of it that went before; None: it begins here, with the prompt."""
        if self.echoes and shown is None:
            echo = self.echoes[source]
            text, scores = echo.text + text, [*echo.scores, *scores]
        logprobs = None
        if self.request.logprobs is not None and scores:
            logprobs = completion_logprobs(self.runtime.texts, scores, shown or 0)
        return {
            "index": source * self._num + index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": ending,
        }


def _work(request: CompletionRequest, limits: Limits) -> Work:
    """The calls of a request: one for each prompt. Raises InvalidCall."""
    if request.suffix:
        raise UnsupportedCall("suffix", request.suffix, "null (text is not inserted)")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise UnsupportedCall("best_of", request.best_of, f"n={request.n or 1}, or null")
    prompts = tuple(_prompts(request.prompt))
    at_most(prompts, "prompt", limits.max_prompts, "prompts")
    max_tokens = _MAX_TOKENS if request.max_tokens is None else request.max_tokens
    sampling = sampling_of(request, limits, max_tokens, request.logprobs)
    at_most(prompts * sampling.n, "n", limits.max_answers, "answers (prompts times n)")
    requested = constraint_of(request, limits)
    calls = tuple(call_of(request, (prompt,), sampling, requested) for prompt in prompts)
    return Work(calls, names_of(requested), {} if requested is None else requested.schemas)


def _prompts(prompt: str | list[int] | list[str] | list[list[int]]) -> Iterator[Segment]:
    """The prompts of a request. Raises InvalidCall for an empty list of tokens, or of prompts."""
    is_one = isinstance(prompt, str) or not prompt or isinstance(prompt[0], int)
    given: Any = [prompt] if is_one else prompt
    for one in given:
        if one == []:
            raise InvalidCall("prompt", [], "at least one token")
        yield Text(one) if isinstance(one, str) else Tokens(tuple(one))


def _scored(work: Work) -> Work:
    """The same calls, which also score their prompts' tokens."""
    return work._replace(calls=tuple(replace(call, scored_from=1) for call in work.calls))


def _without_answers(work: Work) -> Work:
    """The same prompts, with nothing written after them."""
    calls = (
        replace(call, sampling=replace(call.sampling, max_tokens=0, n=1), stream=False)
        for call in work.calls
    )
    return work._replace(calls=tuple(calls))


async def _echoes(runtime: Runtime, request: CompletionRequest, work: Work) -> list[_Echo]:
    texts = runtime.texts

    def echo(call: Call) -> _Echo:
        call.check()
        assert isinstance(call.prompt, tuple)
        (segment,) = call.prompt
        ids = tuple(texts.encode_prompt(call.prompt))
        return _Echo(segment.text if isinstance(segment, Text) else texts.decode(ids), ids)

    calls = work.calls if request.echo else ()
    return await asyncio.to_thread(lambda: list(map(echo, calls))) if calls else []
