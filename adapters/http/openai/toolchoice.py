"""What a chat request's `tools` and `tool_choice` mean: which tools the template shows, which
constraint makes their calls valid, and how the answer is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....core.api.protocol import SPACED, InvalidCall, JsonSchema
from ...common.tools import ToolFormat, ToolSpec
from ..requests.annotations import check_strict
from ..requests.reading import Asked, check_size, constraint_of
from ..server.runtime import Limits
from ..wire.wire import ChatRequest, Tool
from .toolformat import specs_of
from .toolschemas import check_schemas

_CHOICES = "none, auto, required, or {'type': 'function', 'function': {'name': NAME}}"


@dataclass(frozen=True, slots=True)
class Toolbox:
    """tools: that the model is shown. asked: the constraint of the answer. callable: names that
    count as calls in the answer; none: the answer is plain text. schemas: that the constraint is
    made of, by their places in the request."""

    tools: tuple[Tool, ...] = ()
    asked: Asked | None = None
    callable: frozenset[str] = frozenset()
    schemas: Mapping[str, Any] = field(default_factory=dict)


def toolbox_of(
    request: ChatRequest, form: ToolFormat, limits: Limits, within: str = "function."
) -> Toolbox:
    """The tools of a request. within: what the fields of one lie in. Raises InvalidCall."""
    tools, asked = tuple(request.tools or ()), constraint_of(request, limits)
    specs = specs_of(tools, within)
    schemas = {} if asked is None else asked.schemas
    choice = request.tool_choice if request.tool_choice is not None else "auto"
    if not tools:
        if choice not in ("none", "auto"):
            raise InvalidCall("tool_choice", choice, "none or auto, where there are no tools")
        return Toolbox((), asked, schemas=schemas)
    if choice == "none":
        return Toolbox((), asked, schemas=schemas)
    check_strict(tools, within)
    if choice == "auto":
        check_schemas(specs, within)
        asked = _where_free(request, specs, form, asked)
    else:
        # response_format says how a text is written, and a forced call is none.
        if asked is not None and asked.field != "response_format":
            allowed = "null beside a tool_choice that forces a call"
            raise InvalidCall(asked.field, "(a constraint)", allowed)
        chosen = specs if choice == "required" else (_named(choice, specs),)
        is_parallel = choice == "required" and request.parallel_tool_calls is not False
        asked = Asked("tools", form.grammar(chosen, is_parallel=is_parallel))
    if asked is not None:
        check_size(asked, limits)
    of_tools = {f"tools[{place}].{within}parameters": it.schema() for place, it in enumerate(specs)}
    return Toolbox(tools, asked, frozenset(it.name for it in specs), {**of_tools, **schemas})


def _where_free(
    request: ChatRequest, tools: Sequence[ToolSpec], form: ToolFormat, asked: Asked | None
) -> Asked | None:
    """The constraint where the model may call or answer. An answer by a schema may instead be
    calls; with a strict tool all calls are held to their schemas; otherwise what the request asks
    for itself."""
    is_parallel = request.parallel_tool_calls is not False
    if asked is not None and asked.field == "response_format":
        assert isinstance(asked.constraint, JsonSchema)
        instead = _embedded(asked.constraint)
        grammar = form.grammar(tools, is_parallel=is_parallel, instead=instead)
        return Asked("response_format", grammar)
    if asked is None and any(tool.function.strict for tool in request.tools or ()):
        return Asked("tools", form.grammar(tools, is_parallel=is_parallel, has_text=True))
    return asked


def _embedded(asked: JsonSchema) -> Mapping[str, Any] | bool:
    """The schema for a grammar, which takes its separators from the schema itself."""
    if asked.schema is False:
        return False
    comma, colon = asked.separators
    told = {"x-guidance": {"item_separator": comma, "key_separator": colon}}
    plain: Mapping[str, Any] = {} if asked.schema is True else asked.schema
    return {**told, **plain} if asked.separators == SPACED else {**plain, **told}


def _named(choice: str | Mapping[str, Any], tools: Sequence[ToolSpec]) -> ToolSpec:
    match choice:
        case {"type": "function", "function": {"name": str(name)}} | {
            "type": "function",
            "name": str(name),
        }:
            for tool in tools:
                if tool.name == name:
                    return tool
            names = ", ".join(tool.name for tool in tools)
            raise InvalidCall("tool_choice", name, f"one of the tools: {names}")
    raise InvalidCall("tool_choice", choice, _CHOICES)
