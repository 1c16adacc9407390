"""`/v1/chat/completions`: chats, with tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ....core.api.protocol import Chunk, Completion, ForkrootError, Output, TokenLogprob
from ...common.toolreader import ArgumentsPiece, CallStart, Piece, TextPiece, ToolReader, is_calling
from ...common.tools import ToolFormat
from ..requests.bodies import BodyRoute, prepared
from ..requests.large_answers import answer
from ..requests.media import MediaParts, media_parts
from ..requests.reading import check_model, check_stream_options, sampling_of
from ..requests.work import Work, as_request_error, call_of, complete, names_of, streamed
from ..server.runtime import Runtime
from ..server.sse import Arrival, Event, Frame, Line, events_of
from ..wire.names import new_name
from ..wire.wire import ChatRequest
from .answers import Envelope, Tally, chat_logprobs, outputs_of, tally_of, usage_body
from .grammars import settled
from .messages import chat_of
from .toolchoice import Toolbox, format_of, toolbox_of

_KIND, _PIECE_KIND = "chat.completion", "chat.completion.chunk"


def routes(runtime: Runtime) -> APIRouter:
    """The route of chats."""
    router = APIRouter(route_class=BodyRoute.of(runtime))
    form = format_of(runtime.texts)

    @router.post("/v1/chat/completions")
    async def chat_completions(given: ChatRequest, http: Request) -> Response:
        """OpenAI's chat completions."""
        check_model(runtime, given.model)
        check_stream_options(given)
        contents = (
            (f"messages[{index}].content", it.content) for index, it in enumerate(given.messages)
        )
        media = await media_parts(runtime, contents)
        prepare = partial(_prepared, runtime, given, form, media)
        request, toolbox, work = await prepared(runtime, http, prepare)
        envelope = Envelope.new("chatcmpl", runtime.name)
        shape = _Shape(runtime, toolbox, has_logprobs(request))
        if not request.stream:
            (completion,) = await complete(runtime, work)

            def body() -> dict[str, Any]:
                choices = shape.whole(completion)
                return envelope.body(_KIND, choices, usage=usage_body(completion.usage))

            return await answer(runtime.workers, [completion], body)
        try:
            options = request.stream_options
            tally = await tally_of(runtime, envelope, _PIECE_KIND, options, work.calls)
        except ForkrootError as error:
            raise await as_request_error(runtime, work, error) from error
        events = partial(shape.events, tally)
        return await streamed(runtime, work, lambda it: events_of(it, events, tally.at_end))

    return router


def _prepared(
    runtime: Runtime, request: ChatRequest, form: ToolFormat, media: MediaParts
) -> tuple[ChatRequest, Toolbox, Work]:
    """The request with its settings, its tools and its call."""
    request = settled(request)
    toolbox = toolbox_of(request, form, runtime.limits)
    return request, toolbox, chat_work(runtime, request, toolbox, form, media)


def has_logprobs(request: ChatRequest) -> bool:
    """Whether log-probabilities are wanted."""
    if request.logprobs is None:
        return bool(request.top_logprobs)
    return request.logprobs


def chat_work(
    runtime: Runtime,
    request: ChatRequest,
    toolbox: Toolbox,
    form: ToolFormat,
    media: MediaParts,
    fields: Sequence[str] = (),
) -> Work:
    """The one call of a chat request. media, fields: as `chat_of` has them. Raises InvalidCall."""
    limit_field = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    limit: int | None = getattr(request, limit_field)
    num_top = (request.top_logprobs or 0) if has_logprobs(request) else None
    sampling = sampling_of(request, runtime.limits, limit, num_top, "top_logprobs")
    is_open, tools = bool(request.continue_final_message), toolbox.tools
    chat = chat_of(request.messages, tools, form, open_last=is_open, media=media, fields=fields)
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

    @classmethod
    def of(cls, toolbox: Toolbox) -> ChoiceState:
        """An answer to a request with these tools."""
        return cls(ToolReader(toolbox.callable) if toolbox.callable else None)

    @property
    def num_calls(self) -> int:
        """Calls that have started."""
        return 0 if self.reader is None else self.reader.num_calls

    def pieces(self, text: str, is_last: bool = False) -> list[Piece]:
        """Text and calls in these further characters."""
        if self.reader is None:
            return [TextPiece(text)] if text else []
        return self.reader.push(text, is_last)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The choices of one request's answer. states: of those that have started."""

    runtime: Runtime
    toolbox: Toolbox
    has_logprobs: bool
    states: dict[int, ChoiceState] = field(default_factory=dict)

    def whole(self, completion: Completion) -> list[dict[str, Any]]:
        """The choices in one piece each."""
        return [self._choice(*pair) for pair in enumerate(outputs_of(completion))]

    def events(self, tally: Tally, arrival: Arrival) -> Sequence[Event | Line]:
        """The pieces of the answer that follow from an arrival."""
        chunk = arrival.chunk
        state = None if chunk is None else self.states.get(chunk.index)
        if chunk is not None and state is not None and state.frame is not None:
            return [state.frame.line(chunk.text)] if chunk.text else []
        tally.add(arrival)
        if chunk is None:
            assert arrival.completion is not None
            outputs = enumerate(outputs_of(arrival.completion))
            return [tally.event(choice) for pair in outputs for choice in self._last(*pair)]
        choices, index = self._pieces(chunk), chunk.index
        if not (self.toolbox.callable or self.has_logprobs or tally.is_continuous):
            self.states[index].frame = Frame(
                lambda text: tally.event(_delta(index, {"content": text}))
            )
        return list(map(tally.event, choices))

    def _choice(self, index: int, output: Output) -> dict[str, Any]:
        state = ChoiceState.of(self.toolbox)
        message = _message(state.pieces(output.text, is_last=True))
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(output.logprobs),
            "finish_reason": finish_reason(output, state.num_calls),
        }

    def _pieces(self, chunk: Chunk) -> list[dict[str, Any]]:
        """The choices of one event each."""
        state = self.states.setdefault(chunk.index, ChoiceState.of(self.toolbox))
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

    def _last(self, index: int, output: Output) -> list[dict[str, Any]]:
        state = self.states.setdefault(index, ChoiceState.of(self.toolbox))
        choices = [_delta(index, delta) for delta in _deltas(state, state.pieces(state.held, True))]
        ending = finish_reason(output, state.num_calls)
        return [*choices, {**_delta(index, {}), "finish_reason": ending}]

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        return chat_logprobs(self.runtime.texts, logprobs) if self.has_logprobs else None


def _message(pieces: Sequence[Piece]) -> dict[str, Any]:
    """A whole answer of these pieces."""
    text = "".join(it.text for it in pieces if isinstance(it, TextPiece))
    calls = [_call(it.name) for it in pieces if isinstance(it, CallStart)]
    for it in pieces:
        if isinstance(it, ArgumentsPiece):
            calls[it.number]["function"]["arguments"] += it.text
    content = text if text or not calls else None
    body: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    return body | {"tool_calls": calls} if calls else body


def _call(name: str) -> dict[str, Any]:
    """A tool call whose arguments are still to come."""
    function = {"name": name, "arguments": ""}
    return {"id": f"call_{new_name()[:24]}", "type": "function", "function": function}


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
        case TextPiece(text=text):
            return {"content": text}
        case CallStart(number=index, name=name):
            return {"tool_calls": [{"index": index, **_call(name)}]}
        case ArgumentsPiece(number=index, text=text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
