"""What `bind_tools`, `response_format` and our own constraints mean for an answer.

Tools in any form that LangChain takes become those of OpenAI's API. LangChain converts them, but
for two things that it would lose: keywords of a schema that it does not look for, as misspelled
ones, and that not every text is a `Decimal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from langchain_core.tools import BaseTool, create_schema_from_function
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from ...core.api.protocol import (
    SPACED,
    Choices,
    Constraint,
    Grammar,
    InvalidCall,
    JsonSchema,
    Regex,
)
from ...core.common.suggestions import did_you_mean
from ..common.classes import differs, schema_of
from ..common.surrogates import check_texts
from ..common.tools import ToolFormat, ToolSpec, check_keywords, check_tools

_CHOICES = "None, 'auto', 'none', 'any', 'required', True, the name of a tool, or a dict of it"
_NO_TOOLS = "none or auto, where there are no tools"
_FORMATS = "{'type': 'text'}, {'type': 'json_object'}, or {'type': 'json_schema', ...}"
_KINDS = {
    "regex": "a regular expression as text",
    "choices": "a list of at least one non-empty text",
    "grammar": "a Lark grammar as text, or a Grammar",
}
CONSTRAINTS = tuple(_KINDS)
WRAPPED = ("name", "parameters", "input_schema", "function", "toolSpec")  # a schema, in a dict
_FORMS = (
    "a function, a tool, a Pydantic class, a TypedDict, a JSON schema with a title, or a dict in"
    " OpenAI's form"
)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """tools: that the model is shown. constraint: of the answer. callable: names that count as
    calls in the answer; none: the answer is plain text. schemas: that the constraint was made of,
    by the fields they came in."""

    tools: tuple[ToolSpec, ...] = ()
    constraint: Constraint | None = None
    callable: frozenset[str] = frozenset()
    schemas: Mapping[str, Any] = field(default_factory=dict)


def choice_of(tool_choice: Any, names: Sequence[str]) -> str:
    """A `tool_choice`: "auto", "none", "required", or "=NAME" for one tool. Raises InvalidCall."""
    match tool_choice:
        case None | "auto" | False:
            return "auto"
        case "none":
            return "none"
        case "any" | "required" | True:
            return "required"
        case (str() as name) | {"function": {"name": str() as name}} | {"name": str() as name}:
            if name not in names:
                expected = f"one of the tools: {', '.join(names)}" if names else _NO_TOOLS
                raise InvalidCall("tool_choice", name, f"{expected}{did_you_mean(name, names)}")
            return f"={name}"
    raise InvalidCall("tool_choice", tool_choice, _CHOICES)


def specs_of(tools: Any) -> tuple[ToolSpec, ...]:
    """Tools in any form that LangChain takes, each one once. Raises InvalidCall."""
    specs = [spec_of(tool, index) for index, tool in enumerate(shown_tools(tools))]
    found = tuple(spec for index, spec in enumerate(specs) if spec not in specs[:index])
    check_tools(found)
    return found


def spec_of(tool: Mapping[str, Any], index: int) -> ToolSpec:
    """A tool in OpenAI's form, and its place among others. Raises InvalidCall."""
    function, field = tool.get("function"), f"tools[{index}]"
    if tool.get("type") != "function":
        raise InvalidCall(f"{field}.type", tool.get("type"), "function")
    if not isinstance(function, Mapping):
        raise InvalidCall(f"{field}.function", function, "a dict of name, description, parameters")
    if not isinstance(function.get("name"), str):
        raise InvalidCall(f"{field}.name", function.get("name"), "a text")
    check_texts(function, field)
    given = function.get("parameters")
    return ToolSpec(function["name"], function.get("description") or "", given)


def shown_tools(tools: Any) -> list[dict[str, Any]]:
    """All of them. Raises InvalidCall."""
    if not isinstance(tools, Iterable) or isinstance(tools, str | Mapping):
        raise InvalidCall("tools", tools, f"a list, each {_FORMS}")
    return [shown_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]


def shown_tool(tool: Any, field: str) -> dict[str, Any]:
    """One tool. field: where it was given. Raises InvalidCall for what is none."""
    try:
        converted = convert_to_openai_tool(tool)
        model = _model_of(tool)
        if model is not None and differs(model):
            exact = convert_to_openai_tool(_answered(model))
            converted["function"]["parameters"] = exact["function"]["parameters"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidCall(field, tool, f"{_FORMS} ({reason(error)})") from error
    if isinstance(tool, Mapping) and "title" in tool and not any(map(tool.__contains__, WRAPPED)):
        rest = {key: it for key, it in tool.items() if key not in ("title", "description")}
        if rest.keys() - {"type"}:
            converted["function"]["parameters"] = rest
    return converted


def _model_of(tool: Any) -> type[BaseModel] | None:
    """The class of a tool's arguments, where it has one."""
    if isinstance(tool, BaseTool):
        tool = tool.tool_call_schema
    elif callable(tool) and (not isinstance(tool, type) or is_dataclass(tool)):
        tool = create_schema_from_function(
            getattr(tool, "__name__", "tool"),
            tool,
            filter_args=(),
            parse_docstring=True,
            error_on_invalid_docstring=False,
            include_injected=False,
        )
    return tool if isinstance(tool, type) and issubclass(tool, BaseModel) else None


def _answered(model: type[BaseModel]) -> type[BaseModel]:
    """The same class, of whose schema every answer is one."""

    def model_json_schema(_: type[BaseModel]) -> dict[str, Any]:
        return schema_of(model)

    names = {"__module__": model.__module__, "__doc__": model.__doc__}
    return type(
        model.__name__, (model,), {**names, "model_json_schema": classmethod(model_json_schema)}
    )


def reason(error: Exception) -> str:
    """The last line of LangChain's error for an unsupported value."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].rstrip(".")


def toolbox_of(options: Mapping[str, Any], form: ToolFormat) -> Toolbox:
    """The toolbox of a call's options. form: how the model writes calls. Raises InvalidCall."""
    tools = specs_of(options.get("tools") or ())
    requested = _requested_constraint(options)
    choice = choice_of(options.get("tool_choice"), [tool.name for tool in tools])
    if not tools and choice not in ("auto", "none"):
        raise InvalidCall("tool_choice", options["tool_choice"], _NO_TOOLS)
    schemas: dict[str, Any] = {
        f"tools[{index}].parameters": tool.schema() for index, tool in enumerate(tools)
    }
    if options.get("strict") is True:
        for name, schema in schemas.items():
            check_keywords(schema, name)
    if isinstance(requested, JsonSchema):
        schemas["json_schema"] = requested.schema
    if not tools or choice == "none":
        return Toolbox((), requested, schemas=schemas)
    is_parallel = options.get("parallel_tool_calls") is not False
    names = frozenset(tool.name for tool in tools)
    if choice == "auto":
        # calls are held to their schemas, and an answer to the requested one
        if isinstance(requested, JsonSchema):
            requested = form.grammar(tools, is_parallel=is_parallel, instead=requested.schema)
        elif requested is None and options.get("strict") is not False:
            requested = form.grammar(tools, is_parallel=is_parallel, has_text=True)
        return Toolbox(tools, requested, names, schemas)
    if requested is not None:
        raise InvalidCall("tool_choice", choice, "auto or none beside another constraint")
    chosen = tools if choice == "required" else [it for it in tools if it.name == choice[1:]]
    is_parallel = is_parallel and choice == "required"
    return Toolbox(tools, form.grammar(chosen, is_parallel=is_parallel), names, schemas)


def _requested_constraint(options: Mapping[str, Any]) -> Constraint | None:
    """The constraint of an answer that is not a tool call."""
    given = [name for name in (*CONSTRAINTS, "response_format") if options.get(name) is not None]
    if len(given) > 1:
        raise InvalidCall(
            given[1], options[given[1]], f"at most one constraint; {given[0]} is set too"
        )
    if not given:
        return None
    name, value = given[0], options[given[0]]
    check_texts(value, name)
    match name, value:
        case "response_format", _:
            return _formatted(value)
        case "choices", [_, *_] if all(it and isinstance(it, str) for it in value):
            return Choices(tuple(value))
        case "regex", str():
            return Regex(value)
        case "grammar", Grammar():
            return value
        case "grammar", str():
            return Grammar(value)
    raise InvalidCall(name, value, _KINDS[name])


def _formatted(value: Any) -> JsonSchema | None:
    match value:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return JsonSchema({"type": "object"}, SPACED)
        case {"type": "json_schema", "json_schema": {"schema": Mapping() as schema}}:
            return JsonSchema(schema, SPACED)
    raise InvalidCall("response_format", value, _FORMATS)
