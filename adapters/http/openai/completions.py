"""`/v1/completions`: prompts go on, as text or as token ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from ....core.api.protocol import (
    Call,
    Completion,
    ForkrootError,
    Output,
    Segment,
    Text,
    Tokens,
    UnsupportedCall,
    Usage,
)
from ..requests.bodies import BodyRoute
from ..requests.reading import at_most, check_model, constraint_of, sampling_of
from ..requests.work import Work, as_request_error, call_of, complete, names_of, submit
from ..server.runtime import Limits, Runtime
from ..server.sse import Arrival, Event, Frame, Last, Line, arrivals, stream
from ..wire.wire import CompletionRequest
from .envelope import Answer, Envelope
from .grammars import settled
from .logprobs import TokenScore, completion_logprobs, scores_of
from .usage import Tally, tally_of, usage_body

_KIND = "text_completion"
_MAX_TOKENS = 16  # where a request names none, as OpenAI has it


def routes(runtime: Runtime) -> APIRouter:
    """The route of completions."""
    router = APIRouter(route_class=BodyRoute)

    @router.post("/v1/completions")
    async def completions(request: CompletionRequest) -> Response:
        check_model(runtime, request.model)
        request = settled(request)
        work = _work(request, runtime.limits)
        echoes = await _echoes(runtime, request, work)
        envelope = Envelope.new("cmpl", runtime.name)
        is_scored = bool(echoes) and request.logprobs is not None
        if request.stream:
            if is_scored:
                prompt_completions = await complete(runtime, _without_answers(_scored(work)))
                echoes = [*map(_Echo.after, echoes, prompt_completions)]
            shape = _Shape(runtime, request, envelope, echoes)
            tally = await tally_of(runtime, request.stream_options, work.calls)
            replies = await submit(runtime, work.calls)
            return await shape.stream(arrivals(replies), tally, work)
        found = await complete(runtime, _scored(work) if is_scored else work)
        if is_scored:
            echoes = [*map(_Echo.after, echoes, found)]
        return Answer(_Shape(runtime, request, envelope, echoes).whole(found))

    return router


@dataclass(frozen=True, slots=True)
class _Echo:
    """What is repeated of a prompt. scores: of its tokens, where they are wanted."""

    text: str
    ids: tuple[int, ...]
    scores: tuple[TokenScore, ...] = ()

    def after(self, completion: Completion) -> _Echo:
        """The same, with the completion's scores of the prompt's tokens; nothing comes before the
        first one."""
        first = [TokenScore(token, None) for token in self.ids[:1]]
        return replace(self, scores=(*first, *scores_of(completion.prompt_logprobs)))


@dataclass(frozen=True, slots=True)
class _Shape:
    """The bodies of one request's answer. echoes: of each prompt; none without echo."""

    runtime: Runtime
    request: CompletionRequest
    envelope: Envelope
    echoes: Sequence[_Echo]

    def whole(self, completions: Sequence[Completion]) -> dict[str, Any]:
        """The answer in one piece."""
        choices = []
        for source, completion in enumerate(completions):
            outputs = completion.outputs or (_NOTHING,) * self._num
            for index, output in enumerate(outputs):
                scores = scores_of(output.logprobs)
                ending = output.finish_reason
                choices.append(self._choice(source, index, output.text, scores, ending))
        usage = sum((it.usage for it in completions), Usage())
        return self.envelope.body(_KIND, choices, usage=usage_body(usage))

    async def stream(
        self, batches: AsyncIterator[list[Arrival]], tally: Tally, work: Work
    ) -> Response:
        """The answer in pieces. An error before the first is raised."""
        try:
            return await stream(self._events(batches, tally), work.names)
        except ForkrootError as error:
            raise await as_request_error(self.runtime, work, error) from error

    async def _events(
        self, batches: AsyncIterator[list[Arrival]], tally: Tally
    ) -> AsyncIterator[list[Event | Line]]:
        shown: dict[tuple[int, int], int] = {}
        frames: dict[tuple[int, int], Frame] = {}
        async for batch in batches:
            events = [
                event for it in batch for event in self._chunk_events(it, shown, frames, tally)
            ]
            if not isinstance(batch, Last):
                yield events
                continue
            if tally.include_usage:
                events.append(self.envelope.body(_KIND, [], usage=tally.total()))
            yield Last(events)

    def _chunk_events(
        self,
        arrival: Arrival,
        shown: dict[tuple[int, int], int],
        frames: dict[tuple[int, int], Frame],
        tally: Tally,
    ) -> list[Event | Line]:
        """The events of an arrival. frames: of the choices that have started, where their events
        differ in their text only."""
        source, chunk = arrival.source, arrival.chunk
        if chunk is not None and (frame := frames.get((source, chunk.index))) is not None:
            return [frame.line(chunk.text)]
        tally.add(arrival)
        events: list[Event | Line]
        events = [self._event(choice, tally) for choice in self._pieces(arrival, shown)]
        if chunk is not None and self.request.logprobs is None and not tally.is_continuous:
            frames[source, chunk.index] = self._frame(source, chunk.index, tally)
        return events

    def _event(self, choice: dict[str, Any], tally: Tally) -> Event:
        return self.envelope.body(_KIND, [choice], **tally.fields())

    def _frame(self, source: int, index: int, tally: Tally) -> Frame:
        def shape(text: str) -> Event:
            return self._event(self._choice(source, index, text, [], None, 0), tally)

        return Frame(shape)

    def _pieces(self, arrival: Arrival, shown: dict[tuple[int, int], int]) -> list[dict[str, Any]]:
        """The choices of one event each. shown: characters of each choice that has started."""
        source, chunk = arrival.source, arrival.chunk
        if chunk is not None:
            offset = shown.get((source, chunk.index))
            scores = scores_of(chunk.logprobs)
            choice = self._choice(source, chunk.index, chunk.text, scores, None, offset)
            shown[source, chunk.index] = (offset or 0) + len(choice["text"])
            return [choice]
        assert arrival.completion is not None
        outputs = arrival.completion.outputs or (_NOTHING,) * self._num
        return [
            self._choice(source, index, "", [], output.finish_reason, shown.get((source, index)))
            for index, output in enumerate(outputs)
        ]

    @property
    def _num(self) -> int:
        return self.request.n or 1

    def _choice(
        self,
        source: int,
        index: int,
        text: str,
        scores: list[TokenScore],
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


_NOTHING = Output("", finish_reason="length")


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


def _prompts(prompt: str | list[int] | list[str] | list[list[int]]) -> list[Segment]:
    if isinstance(prompt, str):
        return [Text(prompt)]
    if all(isinstance(part, int) for part in prompt):
        return [Tokens(tuple(part for part in prompt if isinstance(part, int)))]
    return [Text(part) if isinstance(part, str) else Tokens(tuple(part)) for part in prompt]  # type: ignore[arg-type]


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
    if not request.echo:
        return []
    return await asyncio.to_thread(lambda: [_echo(runtime, call) for call in work.calls])


def _echo(runtime: Runtime, call: Call) -> _Echo:
    call.check()
    assert isinstance(call.prompt, tuple)
    texts, (segment,) = runtime.texts, call.prompt
    ids = tuple(texts.encode_prompt(call.prompt))
    return _Echo(segment.text if isinstance(segment, Text) else texts.decode(ids), ids)
