"""What a chat request's `tools` and `tool_choice` mean: which tools the template shows, which
constraint makes their calls valid, and how the answer is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.protocol import InvalidCall, JsonSchema
from .reading import Asked, check_size, constraint_of
from .runtime import Limits
from .toolformat import ToolFormat, check_tools
from .wire import ChatRequest, Tool

_CHOICES = "none, auto, required, or {'type': 'function', 'function': {'name': NAME}}"


@dataclass(frozen=True, slots=True)
class Toolbox:
    """tools: that the model is shown. asked: the constraint of the answer. callable: names that
    count as calls in the answer; none: the answer is plain text."""

    tools: tuple[Tool, ...] = ()
    asked: Asked | None = None
    callable: frozenset[str] = frozenset()


def toolbox_of(request: ChatRequest, form: ToolFormat, limits: Limits) -> Toolbox:
    """The tools of a request. Raises InvalidCall."""
    tools, asked = tuple(request.tools or ()), constraint_of(request, limits)
    check_tools(tools)
    choice = request.tool_choice if request.tool_choice is not None else "auto"
    if not tools:
        if choice not in ("none", "auto"):
            raise InvalidCall("tool_choice", choice, "none or auto, where there are no tools")
        return Toolbox((), asked)
    if choice == "none":
        return Toolbox((), asked)
    if choice == "auto":
        asked = _where_free(request, tools, form, asked)
    else:
        if asked is not None:
            allowed = "no other constraint beside a tool_choice that forces a call"
            raise InvalidCall(asked.field, choice, allowed)
        chosen = tools if choice == "required" else (_named(choice, tools),)
        is_parallel = choice == "required" and request.parallel_tool_calls is not False
        asked = Asked("tools", form.grammar(chosen, is_parallel=is_parallel))
    if asked is not None:
        check_size(asked, limits)
    return Toolbox(tools, asked, frozenset(tool.function.name for tool in tools))


def _where_free(
    request: ChatRequest, tools: Sequence[Tool], form: ToolFormat, asked: Asked | None
) -> Asked | None:
    """The constraint where the model may call or answer. An answer by a schema may instead be
    calls; with a strict tool all calls are held to their schemas; otherwise what the request asks
    for itself."""
    is_parallel = request.parallel_tool_calls is not False
    if asked is not None and asked.field == "response_format":
        assert isinstance(asked.constraint, JsonSchema)
        schema = f"%json {json.dumps(asked.constraint.schema)}"
        grammar = form.grammar(tools, is_parallel=is_parallel, instead=schema)
        return Asked("response_format", grammar)
    if asked is None and any(tool.function.strict for tool in tools):
        return Asked("tools", form.grammar(tools, is_parallel=is_parallel, has_text=True))
    return asked


def _named(choice: str | Mapping[str, Any], tools: Sequence[Tool]) -> Tool:
    match choice:
        case {"type": "function", "function": {"name": str(name)}} | {
            "type": "function",
            "name": str(name),
        }:
            for tool in tools:
                if tool.function.name == name:
                    return tool
            names = ", ".join(tool.function.name for tool in tools)
            raise InvalidCall("tool_choice", name, f"one of the tools: {names}")
    raise InvalidCall("tool_choice", choice, _CHOICES)
