"""What a chat request's `tools` and `tool_choice` mean: which tools the template shows, in which
format it makes the model write calls, which constraint makes these valid, and how the answer is
read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ....core.api.protocol import SPACED, Chat, InvalidCall, JsonSchema, Message, Text
from ...common.tools import OPEN, ToolFormat, ToolSpec, check_keywords, check_tools
from ..requests.reading import RequestedConstraint, check_size, constraint_of
from ..server.runtime import Limits, Texts
from ..wire.wire import ChatRequest, Tool
from .toolschemas import check_schemas

_CHOICES = "none, auto, required, or {'type': 'function', 'function': {'name': NAME}}"

_UNKNOWN = ToolFormat("\n")
_GAP = re.compile(re.escape(OPEN) + r"(\s*)\{")


def format_of(texts: Texts) -> ToolFormat:
    """The format that the model's chat template shows where there are tools."""
    function = {"name": "f", "description": "f", "parameters": {"type": "object"}}
    tools = ({"type": "function", "function": function},)
    chat = Chat((Message("user", (Text("?"),)),), tools=tools)
    try:
        shown = texts.decode(texts.encode_prompt(chat))
    except InvalidCall:  # it has no template, or one that knows no tools
        return _UNKNOWN
    found = _GAP.search(shown)
    return ToolFormat(found[1]) if found else _UNKNOWN


def specs_of(tools: Sequence[Tool], within: str) -> tuple[ToolSpec, ...]:
    """The tools of a request. within: as in `check_tools`. Raises InvalidCall for one that cannot
    be called."""
    functions = [tool.function for tool in tools]
    specs = tuple(ToolSpec(it.name, it.description or "", it.parameters) for it in functions)
    check_tools(specs, within)
    return specs


@dataclass(frozen=True, slots=True)
class Toolbox:
    """tools: that the model is shown. requested: the constraint of the answer. callable: names that
    count as calls in the answer; none: the answer is plain text. schemas: that the constraint is
    made of, by their places in the request."""

    tools: tuple[Tool, ...] = ()
    requested: RequestedConstraint | None = None
    callable: frozenset[str] = frozenset()
    schemas: Mapping[str, Any] = field(default_factory=dict)


def toolbox_of(
    request: ChatRequest, form: ToolFormat, limits: Limits, within: str = "function."
) -> Toolbox:
    """The tools of a request. within: what the fields of one lie in. Raises InvalidCall."""
    tools, requested = tuple(request.tools or ()), constraint_of(request, limits)
    specs = specs_of(tools, within)
    schemas = {} if requested is None else requested.schemas
    choice = request.tool_choice if request.tool_choice is not None else "auto"
    if not tools and choice not in ("none", "auto"):
        raise InvalidCall("tool_choice", choice, "none or auto, where there are no tools")
    if not tools or choice == "none":
        return Toolbox((), requested, schemas=schemas)
    for index, tool in enumerate(tools):
        if tool.function.strict:
            check_keywords(tool.function.parameters, f"tools[{index}].{within}parameters")
    if choice == "auto":
        check_schemas(specs, within)
        requested = _where_free(request, specs, form, requested)
    else:
        # response_format applies to text, and a forced call is not text.
        if requested is not None and requested.field != "response_format":
            allowed = "null beside a tool_choice that forces a call"
            raise InvalidCall(requested.field, "(a constraint)", allowed)
        chosen = specs if choice == "required" else (_named(choice, specs),)
        is_parallel = choice == "required" and request.parallel_tool_calls is not False
        requested = RequestedConstraint("tools", form.grammar(chosen, is_parallel=is_parallel))
    if requested is not None:
        check_size(requested, limits)
    of_tools = {f"tools[{index}].{within}parameters": it.schema() for index, it in enumerate(specs)}
    return Toolbox(tools, requested, frozenset(it.name for it in specs), {**of_tools, **schemas})


def _where_free(
    request: ChatRequest,
    tools: Sequence[ToolSpec],
    form: ToolFormat,
    requested: RequestedConstraint | None,
) -> RequestedConstraint | None:
    """The constraint where the model may call or answer. An answer by a schema may instead be
    calls; with a strict tool all calls are held to their schemas; otherwise the request's own
    constraint."""
    grammar = partial(form.grammar, tools, is_parallel=request.parallel_tool_calls is not False)
    if requested is not None and requested.field == "response_format":
        assert isinstance(requested.constraint, JsonSchema)
        instead = _embedded(requested.constraint)
        return RequestedConstraint("response_format", grammar(instead=instead))
    if requested is None and any(tool.function.strict for tool in request.tools or ()):
        return RequestedConstraint("tools", grammar(has_text=True))
    return requested


def _embedded(requested: JsonSchema) -> Mapping[str, Any] | bool:
    """The schema for a grammar, which takes its separators from the schema itself."""
    if requested.schema is False:
        return False
    comma, colon = requested.separators
    separators = {"x-guidance": {"item_separator": comma, "key_separator": colon}}
    plain: Mapping[str, Any] = {} if requested.schema is True else requested.schema
    return {**separators, **plain} if requested.separators == SPACED else {**plain, **separators}


def _named(choice: str | Mapping[str, Any], tools: Sequence[ToolSpec]) -> ToolSpec:
    match choice:
        case {"type": "function", "function": {"name": str() as name}} | {
            "type": "function",
            "name": str() as name,
        }:
            by_name = {tool.name: tool for tool in tools}
            if name not in by_name:
                raise InvalidCall("tool_choice", name, f"one of the tools: {', '.join(by_name)}")
            return by_name[name]
    raise InvalidCall("tool_choice", choice, _CHOICES)
