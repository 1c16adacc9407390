"""`/v1/responses`: answers as lists of items. Nothing is stored: each request is complete."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ....core.api.protocol import Completion, ForkrootError, Usage
from ...common.toolreader import is_calling
from ...common.tools import ToolFormat
from ..requests.bodies import BodyRoute, prepared
from ..requests.large_answers import answer
from ..requests.media import MediaParts, media_parts
from ..requests.reading import check_model
from ..requests.work import CONSTRAINTS, Work, complete, streamed
from ..server.errors import as_request_names, failed_body
from ..server.runtime import Runtime
from ..server.sse import Arrival, Event, Last, events_of
from ..wire.names import new_name
from .answers import outputs_of
from .chat import ChoiceState, chat_work
from .responses_items import Items
from .responses_wire import ResponsesRequest, chat_request_of, contents_of
from .toolchoice import Toolbox, format_of, toolbox_of

_NAMES = {
    "prompt": "input",
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "response_format.type": "text.format.type",
    "response_format.json_schema": "text.format",
    "response_format.json_schema.schema": "text.format.schema",
    **dict.fromkeys(CONSTRAINTS, "text.format"),
}


def routes(runtime: Runtime) -> APIRouter:
    """The route of responses."""
    router = APIRouter(route_class=BodyRoute.of(runtime))
    form = format_of(runtime.texts)

    @router.post("/v1/responses")
    async def responses(request: ResponsesRequest, http: Request) -> Response:
        """OpenAI's responses, without stored state."""
        check_model(runtime, request.model)
        try:
            media = await media_parts(runtime, contents_of(request))
            prepare = partial(_prepared, runtime, request, form, media)
            toolbox, work = await prepared(runtime, http, prepare)
            shape = _Shape(runtime, request, toolbox)
            if not request.stream:
                (completion,) = await complete(runtime, work)
                return await answer(runtime.workers, [completion], lambda: shape.whole(completion))
            names = {name: _NAMES.get(field, field) for name, field in work.names.items()}
            return await streamed(runtime, work, partial(shape.events, names), end=b"")
        except ForkrootError as error:
            raise as_request_names(error, _NAMES) from error

    return router


def _prepared(
    runtime: Runtime, request: ResponsesRequest, form: ToolFormat, media: MediaParts
) -> tuple[Toolbox, Work]:
    """The request's tools and its call."""
    chat, fields = chat_request_of(request)
    toolbox = toolbox_of(chat, form, runtime.limits, within="")
    return toolbox, chat_work(runtime, chat, toolbox, form, media, fields)


@dataclass(slots=True)
class _Shape:
    """The bodies of one request's answer. Mutable: it grows with the answer."""

    runtime: Runtime
    request: ResponsesRequest
    toolbox: Toolbox
    id: str = field(default_factory=lambda: f"resp_{new_name()}")
    created: float = field(default_factory=lambda: float(int(time.time())))
    items: Items = field(default_factory=Items)

    def whole(self, completion: Completion) -> dict[str, Any]:
        """The answer in one piece."""
        state = ChoiceState.of(self.toolbox)
        for piece in state.pieces(outputs_of(completion)[0].text, is_last=True):
            self.items.take(piece)
        status = _status(completion, state.num_calls)
        self.items.close(status)
        return self._body(status, completion)

    async def events(
        self, names: Mapping[str, str], batches: AsyncIterator[list[Arrival]]
    ) -> AsyncIterator[list[Event]]:
        """The answer in pieces, numbered. An error after the first is the last event. names: fields
        of the protocol as the request calls them."""
        state, count = ChoiceState.of(self.toolbox), 0

        def numbered(arrival: Arrival) -> Iterator[Event]:
            nonlocal count
            for event in self._events_of(arrival, state, is_first=not count):
                yield {**event, "sequence_number": count}
                count += 1

        try:
            async for events in events_of(batches, numbered):
                yield events
        except ForkrootError as error:
            if not count:
                raise
            yield Last([_failed(as_request_names(error, names), count)])

    def _events_of(self, arrival: Arrival, state: ChoiceState, is_first: bool) -> Iterator[Event]:
        if is_first:
            body = self._body("in_progress")
            yield {"type": "response.created", "response": body}
            yield {"type": "response.in_progress", "response": body}
        chunk, completion = arrival.chunk, arrival.completion
        for piece in state.pieces("" if chunk is None else chunk.text, is_last=chunk is None):
            yield from self.items.take(piece)
        if completion is not None:
            status = _status(completion, state.num_calls)
            yield from self.items.close(status)
            yield {"type": f"response.{status}", "response": self._body(status, completion)}

    def _body(self, status: str, completion: Completion | None = None) -> dict[str, Any]:
        request = self.request
        is_incomplete = status == "incomplete"
        fields = ("instructions", "max_output_tokens", "temperature", "top_p", "metadata", "user")
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_incomplete else None,
            "model": self.runtime.name,
            "output": [] if completion is None else self.items.output,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "tool_choice": request.tool_choice or "auto",
            "tools": request.tools or [],
            "text": request.text or {"format": {"type": "text"}},
            "usage": None if completion is None else _usage(completion.usage),
            "previous_response_id": None,
            "store": False,
            "truncation": "disabled",
            **{name: getattr(request, name) for name in fields},
        }


def _failed(error: ForkrootError, number: int) -> Event:
    """The event of an error: its fields by themselves, as they are documented, and in one object,
    which is what OpenAI's clients raise."""
    body = failed_body(error)
    fields = {name: body["error"][name] for name in ("code", "message", "param")}
    return {"type": "error", **fields, **body, "sequence_number": number}


def _status(completion: Completion, num_calls: int) -> str:
    output = outputs_of(completion)[0]
    is_whole = output.finish_reason == "stop" or is_calling(output, num_calls)
    return "completed" if is_whole else "incomplete"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
