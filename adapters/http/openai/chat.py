"""`/v1/chat/completions`: chats, with tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from ....core.api.protocol import Completion, ForkrootError, Output, TokenLogprob
from ...common.toolreader import ArgumentsPiece, CallStart, Piece, TextPiece, ToolReader, is_calling
from ...common.tools import ToolFormat
from ..requests.bodies import BodyRoute
from ..requests.reading import check_model, sampling_of
from ..requests.work import Work, as_request_error, call_of, complete, names_of, submit
from ..server.runtime import Runtime
from ..server.sse import Arrival, Event, Frame, Last, Line, arrivals, stream
from ..wire.names import new_name
from ..wire.wire import ChatRequest
from .envelope import Answer, Envelope
from .grammars import settled
from .logprobs import chat_logprobs
from .messages import chat_of
from .toolchoice import Toolbox, toolbox_of
from .toolformat import format_of
from .usage import Tally, tally_of, usage_body

_KIND, _PIECE_KIND = "chat.completion", "chat.completion.chunk"


def routes(runtime: Runtime) -> APIRouter:
    """The route of chats."""
    router = APIRouter(route_class=BodyRoute)
    form = format_of(runtime.texts)

    @router.post("/v1/chat/completions")
    async def chat_completions(request: ChatRequest) -> Response:
        check_model(runtime, request.model)
        request = settled(request)
        toolbox = toolbox_of(request, form, runtime.limits)
        work = chat_work(runtime, request, toolbox, form)
        envelope = Envelope.new("chatcmpl", runtime.name)
        shape = _Shape(runtime, toolbox, envelope, has_logprobs(request))
        if not request.stream:
            (completion,) = await complete(runtime, work)
            return Answer(shape.whole(completion))
        try:
            tally = await tally_of(runtime, request.stream_options, work.calls)
            replies = await submit(runtime, work.calls)
            return await stream(shape.events(arrivals(replies), tally), work.names)
        except ForkrootError as error:
            raise await as_request_error(runtime, work, error) from error

    return router


def has_logprobs(request: ChatRequest) -> bool:
    """Whether log-probabilities are wanted."""
    if request.logprobs is None:
        return bool(request.top_logprobs)
    return request.logprobs


def chat_work(runtime: Runtime, request: ChatRequest, toolbox: Toolbox, form: ToolFormat) -> Work:
    """The one call of a chat request. Raises InvalidCall."""
    limit_field = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    limit = request.max_completion_tokens
    limit = request.max_tokens if limit is None else limit
    num_top = (request.top_logprobs or 0) if has_logprobs(request) else None
    sampling = sampling_of(request, runtime.limits, limit, num_top, "top_logprobs")
    is_open = bool(request.continue_final_message)
    chat = chat_of(request.messages, toolbox.tools, form, open_last=is_open)
    call = call_of(request, chat, sampling, toolbox.requested)
    names = names_of(
        toolbox.requested, prompt="messages", max_tokens=limit_field, logprobs="top_logprobs"
    )
    return Work((call,), names, toolbox.schemas, [it.function.name for it in request.tools or ()])


@dataclass(slots=True)
class ChoiceState:
    """One answer as it grows. Mutable. reader: None where no tools are called. held: text whose
    log-probabilities are still to come. frame: of its events, once they differ in their text
    only."""

    reader: ToolReader | None
    held: str = ""
    frame: Frame | None = None
    is_started: bool = False
    num_calls: int = 0

    def pieces(self, text: str, is_last: bool = False) -> list[Piece]:
        """Text and calls in these further characters."""
        if self.reader is None:
            return [TextPiece(text)] if text else []
        found = self.reader.push(text, is_last)
        self.num_calls = self.reader.num_calls
        return found


@dataclass(slots=True)
class _Message:
    """A whole answer, put together from its pieces."""

    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        match piece:
            case TextPiece(text):
                self.text += text
            case CallStart(name=name):
                function = {"name": name, "arguments": ""}
                self.calls.append({"id": call_id(), "type": "function", "function": function})
            case ArgumentsPiece(index, text):
                self.calls[index]["function"]["arguments"] += text

    def body(self) -> dict[str, Any]:
        content = self.text if self.text or not self.calls else None
        body: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        return body | {"tool_calls": self.calls} if self.calls else body


@dataclass(frozen=True, slots=True)
class _Shape:
    """The bodies of one request's answer."""

    runtime: Runtime
    toolbox: Toolbox
    envelope: Envelope
    has_logprobs: bool

    def whole(self, completion: Completion) -> dict[str, Any]:
        """The answer in one piece."""
        outputs = completion.outputs or (_NOTHING,)
        choices = [self._choice(index, output) for index, output in enumerate(outputs)]
        return self.envelope.body(_KIND, choices, usage=usage_body(completion.usage))

    async def events(
        self, batches: AsyncIterator[list[Arrival]], tally: Tally
    ) -> AsyncIterator[list[Event | Line]]:
        """The answer in pieces."""
        states: dict[int, ChoiceState] = {}
        async for batch in batches:
            events = [event for it in batch for event in self._events(it, states, tally)]
            if not isinstance(batch, Last):
                yield events
                continue
            if tally.include_usage:
                events.append(self.envelope.body(_PIECE_KIND, [], usage=tally.total()))
            yield Last(events)

    def _events(
        self, arrival: Arrival, states: dict[int, ChoiceState], tally: Tally
    ) -> list[Event | Line]:
        chunk = arrival.chunk
        state = None if chunk is None else states.get(chunk.index)
        if chunk is not None and state is not None and state.frame is not None:
            return [state.frame.line(chunk.text)] if chunk.text else []
        tally.add(arrival)
        choices = self._pieces(arrival, states)
        if chunk is not None and not (self.toolbox.callable or self.has_logprobs):
            states[chunk.index].frame = self._frame(chunk.index, tally)
        return [self._event(choice, tally) for choice in choices]

    def _event(self, choice: dict[str, Any], tally: Tally) -> Event:
        return self.envelope.body(_PIECE_KIND, [choice], **tally.fields())

    def _frame(self, index: int, tally: Tally) -> Frame | None:
        if tally.is_continuous:
            return None
        return Frame(lambda text: self._event(_delta(index, {"content": text}), tally))

    def _choice(self, index: int, output: Output) -> dict[str, Any]:
        states, message = self._new_state(), _Message()
        for piece in states.pieces(output.text, is_last=True):
            message.add(piece)
        return {
            "index": index,
            "message": message.body(),
            "logprobs": self._logprobs(output.logprobs),
            "finish_reason": finish_reason(output, states.num_calls),
        }

    def _pieces(self, arrival: Arrival, states: dict[int, ChoiceState]) -> list[dict[str, Any]]:
        """The choices of one event each."""
        chunk = arrival.chunk
        if chunk is not None:
            state = states.setdefault(chunk.index, self._new_state())
            state.held += chunk.text
            is_early = self.has_logprobs and not chunk.logprobs
            text, state.held = ("", state.held) if is_early else (state.held, "")
            deltas = _deltas(state, state.pieces(text))
            if chunk.logprobs and not deltas:
                deltas = [{"content": ""}]
            choices = [_delta(chunk.index, delta) for delta in deltas]
            if choices:
                choices[-1]["logprobs"] = self._logprobs(chunk.logprobs)
            return choices
        assert arrival.completion is not None
        outputs = arrival.completion.outputs or (_NOTHING,)
        return [
            choice
            for index, output in enumerate(outputs)
            for choice in self._last(index, output, states.setdefault(index, self._new_state()))
        ]

    def _last(self, index: int, output: Output, state: ChoiceState) -> list[dict[str, Any]]:
        rest, state.held = state.held, ""
        choices = [_delta(index, delta) for delta in _deltas(state, state.pieces(rest, True))]
        ending = finish_reason(output, state.num_calls)
        return [*choices, {**_delta(index, {}), "finish_reason": ending}]

    def _new_state(self) -> ChoiceState:
        return ChoiceState(ToolReader(self.toolbox.callable) if self.toolbox.callable else None)

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        return chat_logprobs(self.runtime.texts, logprobs) if self.has_logprobs else None


_NOTHING = Output("", finish_reason="length")


def call_id() -> str:
    """The id of a tool call."""
    return f"call_{new_name()[:24]}"


def finish_reason(output: Output, num_calls: int) -> str:
    """Why an answer ended, in OpenAI's words."""
    return "tool_calls" if is_calling(output, num_calls) else output.finish_reason


def _delta(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _deltas(state: ChoiceState, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """The role first, then the content."""
    deltas: list[dict[str, Any]] = []
    if not state.is_started:
        deltas.append({"role": "assistant", "content": ""})
        state.is_started = True
    return deltas + [_delta_of(piece) for piece in pieces]


def _delta_of(piece: Piece) -> dict[str, Any]:
    match piece:
        case TextPiece(text):
            return {"content": text}
        case CallStart(index, name):
            function = {"name": name, "arguments": ""}
            call = {"index": index, "id": call_id(), "type": "function", "function": function}
            return {"tool_calls": [call]}
        case ArgumentsPiece(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
