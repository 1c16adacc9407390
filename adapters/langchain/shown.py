"""Tools in any form that LangChain takes, in the form of OpenAI's API.

LangChain converts them, but for two things that it would lose: keywords of a schema that it does
not look for, as misspelled ones, and that not every text is a `Decimal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

from langchain_core.tools import BaseTool, create_schema_from_function
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from ...core.api.protocol import InvalidCall
from ..common.classes import differs, schema_of

WRAPPED = ("name", "parameters", "input_schema", "function", "toolSpec")  # a schema, in a dict
_FORMS = (
    "a function, a tool, a Pydantic class, a TypedDict, a JSON schema with a title, or a dict in"
    " OpenAI's form"
)


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
