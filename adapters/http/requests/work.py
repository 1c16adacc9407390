"""Calls of one request: submitted, awaited together, ended together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ....core.api.protocol import (
    Call,
    Chat,
    Completion,
    ForkrootError,
    InvalidCall,
    Prompt,
    Reply,
    Sampling,
    Text,
)
from ...common.spelling import located
from ..server.concurrent_calls import gather_completions, submit_in_thread
from ..server.errors import as_request_names
from ..server.runtime import Runtime
from ..server.sse import DONE, Arrival, Event, EventStream, Line, arrivals, stream
from ..server.texts import CheckedTexts
from ..wire.hints import hint_of
from ..wire.wire import Generation
from .reading import RequestedConstraint

_SMALL = 16_384  # characters
_TOOL = re.compile(r"tools\[(\d+)\]")
CONSTRAINTS = ("constraint", "regex", "json_schema", "choices", "grammar")


class Work(NamedTuple):
    """The calls of a request. names: fields of the protocol, as the request names them. schemas:
    that the constraint is made of, by their places in the request. tools: the names of its
    tools."""

    calls: tuple[Call, ...]
    names: Mapping[str, str]
    schemas: Mapping[str, Any] = MappingProxyType({})
    tools: Sequence[str] = ()


def call_of(
    request: Generation, prompt: Prompt, sampling: Sampling, requested: RequestedConstraint | None
) -> Call:
    """One call of a request. Raises InvalidCall for a hint that is none."""
    return Call(
        prompt=prompt,
        sampling=sampling,
        constraint=None if requested is None else requested.constraint,
        hint=hint_of(request.forkroot),
        stream=bool(request.stream),
        namespace=request.cache_salt or "",
        priority=request.priority or 0,
        deadline=request.deadline,
    )


def names_of(requested: RequestedConstraint | None, **others: str) -> dict[str, str]:
    """Fields of the protocol, as a request names them."""
    names = {"namespace": "cache_salt", "hint": "forkroot", **others}
    return names if requested is None else names | dict.fromkeys(CONSTRAINTS, requested.field)


async def submit(runtime: Runtime, calls: Sequence[Call]) -> list[Reply]:
    """Submit calls: in another thread, so that a long prompt delays no other request, unless they
    are small and only passed on."""

    def begin() -> list[Reply]:
        return [runtime.backend.submit(call) for call in calls]

    def checked() -> list[Reply]:
        if isinstance(runtime.texts, CheckedTexts):
            for call in calls:
                has_new = call.sampling.max_tokens != 0 and not call.options
                runtime.texts.check_len(call.prompt, int(has_new))
        return begin()

    if runtime.passes_on and len(calls) == 1 and _is_small(calls[0]):
        return begin()
    return list(await submit_in_thread(checked))


def _is_small(call: Call) -> bool:
    """Whether sending it takes less than going to another thread."""
    prompt = call.prompt
    if call.constraint is not None or call.options or (isinstance(prompt, Chat) and prompt.tools):
        return False
    contents = [it.content for it in prompt.messages] if isinstance(prompt, Chat) else [prompt]
    segments = [segment for content in contents for segment in content]
    return sum(len(it.text) if isinstance(it, Text) else _SMALL + 1 for it in segments) <= _SMALL


async def complete(runtime: Runtime, work: Work) -> list[Completion]:
    """All completions. The first error cancels the other calls, and is raised with the request's
    own names."""
    replies = await submit(runtime, work.calls)
    try:
        return await gather_completions(replies)
    except ForkrootError as error:
        raise await as_request_error(runtime, work, error) from error


async def streamed(
    runtime: Runtime,
    work: Work,
    shape: Callable[[AsyncIterator[list[Arrival]]], AsyncIterator[Sequence[Event | Line]]],
    end: bytes = DONE,
) -> EventStream:
    """The answer in pieces: the events that `shape` makes of what arrives, as `sse.stream` has
    them. An error before the first is raised with the request's own names."""
    try:
        replies = await submit(runtime, work.calls)
        return await stream(shape(arrivals(replies)), work.names, end)
    except ForkrootError as error:
        raise await as_request_error(runtime, work, error) from error


async def as_request_error(runtime: Runtime, work: Work, error: ForkrootError) -> ForkrootError:
    """The error with the request's own names; one in a schema with its place in there, and the name
    of the tool whose schema it is."""
    if not work.schemas or not isinstance(error, InvalidCall):
        return as_request_names(error, work.names)
    schema = dict.fromkeys(("json_schema",) * (len(work.schemas) == 1), next(iter(work.schemas)))
    named = as_request_names(error, schema)
    found = await asyncio.to_thread(located, named, work.schemas, runtime.backend.submit)
    if found is named or not isinstance(found, InvalidCall):
        return as_request_names(error, work.names)
    tool = _TOOL.match(found.field)
    if tool is not None:
        allowed = f"{found.allowed} (of the tool {work.tools[int(tool[1])]!r})"
        found = type(found)(found.field, found.value, allowed)
    return found
