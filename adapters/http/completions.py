"""`/v1/completions`: prompts go on, as text or as token ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from ...core.protocol import (
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
from .envelope import Answer, Envelope
from .errors import as_request_names
from .grammars import settled
from .logprobs import TokenScore, completion_logprobs, scores_of
from .reading import at_most, check_model, constraint_of, sampling_of
from .runtime import Limits, Runtime
from .scoring import prompt_scores
from .sse import Arrival, Event, arrivals, stream
from .usage import Tally, tally_of, usage_body
from .wire import CompletionRequest
from .work import Work, call_of, complete, names_of, submit

_KIND = "text_completion"
_MAX_TOKENS = 16  # where a request names none, as OpenAI has it


def routes(runtime: Runtime) -> APIRouter:
    """The route of completions."""
    router = APIRouter()

    @router.post("/v1/completions")
    async def completions(request: CompletionRequest) -> Response:
        check_model(runtime, request.model)
        request = settled(request)
        work = _work(request, runtime.limits)
        echoes = await _echoes(runtime, request, work)
        envelope = Envelope.new("cmpl", runtime.name)
        shape = _Shape(runtime, request, envelope, echoes)
        if request.stream:
            tally = await tally_of(runtime, request.stream_options, work.calls)
            replies = await submit(runtime, work.calls)
            return await shape.stream(arrivals(replies), tally, work)
        is_scoring = request.max_tokens == 0 and echoes and echoes[0].scores
        if is_scoring:
            return Answer(shape.scored())
        return Answer(shape.whole(await complete(runtime, work)))

    return router


@dataclass(frozen=True, slots=True)
class _Echo:
    """What is repeated of a prompt. scores: of its tokens, where they are wanted."""

    text: str
    num_tokens: int = 0
    scores: tuple[TokenScore, ...] = ()


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

    def scored(self) -> dict[str, Any]:
        """The answer to a request that wants its prompts scored, and nothing more."""
        choices = [
            self._choice(source, index, "", [], "length")
            for source in range(len(self.echoes))
            for index in range(self._num)
        ]
        usage = Usage(prompt_tokens=sum(echo.num_tokens for echo in self.echoes))
        return self.envelope.body(_KIND, choices, usage=usage_body(usage))

    async def stream(
        self, batches: AsyncIterator[list[Arrival]], tally: Tally, work: Work
    ) -> Response:
        """The answer in pieces. An error before the first is raised."""
        try:
            return await stream(self._events(batches, tally), work.names)
        except ForkrootError as error:
            raise as_request_names(error, work.names) from error

    async def _events(
        self, batches: AsyncIterator[list[Arrival]], tally: Tally
    ) -> AsyncIterator[list[Event]]:
        shown: dict[tuple[int, int], int] = {}
        async for batch in batches:
            events: list[Event] = []
            for arrival in batch:
                tally.add(arrival)
                for choice in self._pieces(arrival, shown):
                    events.append(self.envelope.body(_KIND, [choice], **tally.fields()))
            yield events
        if tally.is_told:
            yield [self.envelope.body(_KIND, [], usage=tally.total())]

    def _pieces(self, arrival: Arrival, shown: dict[tuple[int, int], int]) -> list[dict[str, Any]]:
        """The choices of one event each. shown: characters of each choice that has begun."""
        source, chunk = arrival.source, arrival.chunk
        if chunk is not None:
            place = shown.get((source, chunk.index))
            scores = scores_of(chunk.logprobs)
            choice = self._choice(source, chunk.index, chunk.text, scores, None, place)
            shown[source, chunk.index] = (place or 0) + len(choice["text"])
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
    asked = constraint_of(request, limits)
    calls = tuple(call_of(request, (prompt,), sampling, asked) for prompt in prompts)
    return Work(calls, names_of(asked))


def _prompts(prompt: str | list[int] | list[str] | list[list[int]]) -> list[Segment]:
    if isinstance(prompt, str):
        return [Text(prompt)]
    if all(isinstance(part, int) for part in prompt):
        return [Tokens(tuple(part for part in prompt if isinstance(part, int)))]
    return [Text(part) if isinstance(part, str) else Tokens(tuple(part)) for part in prompt]  # type: ignore[arg-type]


async def _echoes(runtime: Runtime, request: CompletionRequest, work: Work) -> list[_Echo]:
    return [await _echo(runtime, request, call) for call in work.calls] if request.echo else []


async def _echo(runtime: Runtime, request: CompletionRequest, call: Call) -> _Echo:
    call.check()
    assert isinstance(call.prompt, tuple)
    texts, (segment,) = runtime.texts, call.prompt
    text = segment.text if isinstance(segment, Text) else None
    ids = await asyncio.to_thread(texts.encode_prompt, call.prompt)
    if text is None:
        text = texts.decode(ids)
    if request.logprobs is None or not ids:
        return _Echo(text, len(ids))
    scores = await prompt_scores(runtime, ids, request.logprobs, call.namespace)
    return _Echo(text, len(ids), tuple(scores))
