"""Tools: what the calls may be that an answer names in its fields.

`dspy.ReAct` asks for a tool's name and a `dict` of arguments, and calls the tool with whatever that
holds; an output of the type `dspy.ToolCalls` is for its program to call. Which tools there are, and
what they take, is read from the module that asks, and from the inputs of the prompt.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import dspy

from .fields import Arguments

NAME, ARGUMENTS = "next_tool_name", "next_tool_args"


class Named(NamedTuple):
    """A tool that an answer may name. schema: of its arguments, as JSON text."""

    name: str
    schema: str


def agent_in(signature: type[dspy.Signature], modules: Sequence[Any]) -> dspy.ReAct | None:
    """The innermost of these modules that is an agent, if the signature asks for one of its tools:
    for its name, and right behind that for its arguments."""
    agent = next((it for it in reversed(modules) if isinstance(it, dspy.ReAct)), None)
    names = list(signature.output_fields)
    if agent is None or NAME not in names[:-1] or names[names.index(NAME) + 1] != ARGUMENTS:
        return None
    is_its = set(get_args(signature.output_fields[NAME].annotation)) == set(agent.tools)
    return agent if is_its else None


def tools_of(agent: dspy.ReAct | None) -> tuple[Named, ...]:
    """Its tools."""
    return tuple(Named(name, _schema(it)) for name, it in agent.tools.items()) if agent else ()


def calls_of(tools: Sequence[Named]) -> tuple[dict[str, Any], ...]:
    """The two fields of each tool, by name and annotation."""
    return tuple(
        {NAME: Literal[tool.name], ARGUMENTS: Arguments(json.loads(tool.schema))} for tool in tools
    )


def tools_in(signature: type[dspy.Signature], inputs: Mapping[str, Any]) -> tuple[Named, ...]:
    """The tools among a prompt's inputs, where an output is to name calls of them."""
    if not any(it.annotation is dspy.ToolCalls for it in signature.output_fields.values()):
        return ()
    lists = (value if isinstance(value, list | tuple) else (value,) for value in inputs.values())
    tools = (it for values in lists for it in values if isinstance(it, dspy.Tool))
    return tuple(dict.fromkeys(Named(it.name, _schema(it)) for it in tools))


def chosen(tools: tuple[Named, ...], choice: Any) -> tuple[tuple[Named, ...], bool]:
    """Of these tools, those that a `tool_choice` leaves, and whether it demands a call."""
    if isinstance(choice, Mapping):
        name = (choice.get("function") or choice).get("name")
        named = tuple(tool for tool in tools if tool.name == name)
        return named or tools, bool(named)
    return tools, choice in ("required", "any")


def with_calls(
    fields: Mapping[str, Any], given: Sequence[Named], is_demanded: bool = False
) -> dict[str, Any]:
    """These output fields, by name and annotation; calls in them are of these tools, if there are
    any. is_demanded: there is one at least."""
    if not given:
        return dict(fields)
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "args": json.loads(schema)},
            "required": ["name", "args"],
        }
        for name, schema in given
    ]
    least = {"minItems": 1} if is_demanded else {}
    listed = {"tool_calls": {"type": "array", "items": {"anyOf": calls}, **least}}
    arguments = Arguments({"type": "object", "properties": listed, "required": ["tool_calls"]})
    return {name: arguments if it is dspy.ToolCalls else it for name, it in fields.items()}


def _schema(tool: dspy.Tool) -> str:
    """An object of all arguments that the tool declares; of one that takes any and declares none,
    any. `**kwargs` is not an argument, though DSPy lists it."""
    properties = dict(tool.args or {})
    if tool.has_kwargs:
        function = tool.func if inspect.isroutine(tool.func) else type(tool.func).__call__
        for it in inspect.signature(function).parameters.values():
            if it.kind == it.VAR_KEYWORD:
                properties.pop(it.name, None)
    takes_any = tool.has_kwargs and not properties
    schema = {"type": "object", "properties": properties, "additionalProperties": takes_any}
    return json.dumps(schema, default=str)
