"""`with_structured_output`: answers that are valid because the model can write no others."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from operator import itemgetter
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.output_parsers import BaseOutputParser, JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.openai_tools import (
    JsonOutputKeyToolsParser,
    PydanticToolsParser,
)
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, TypeAdapter, ValidationError

from ...core.api.dialects import TYPES, type_suggestion
from ...core.api.protocol import InvalidCall
from ..common.classes import differs, schema_of
from .toolbox import WRAPPED, reason, shown_tool

METHODS = ("function_calling", "json_schema", "json_mode")
_SCHEMAS = "a Pydantic class, a TypedDict, an enum, or a JSON schema"
_OBJECTS = (
    "a schema of objects, as these are a tool's arguments; method='json_schema' holds to any schema"
)


def structured(
    model: BaseChatModel,
    schema: dict[str, Any] | type | None,
    *,
    include_raw: bool = False,
    method: str = "function_calling",
    strict: bool | None = None,
    **kwargs: Any,
) -> Runnable[LanguageModelInput, Any]:
    """A model and a parser of its answers. strict: has no effect, as answers always are; the rest
    as in `ChatForkroot.with_structured_output`. Raises InvalidCall."""
    if kwargs:
        name, value = next(iter(kwargs.items()))
        raise InvalidCall(name, value, "schema, include_raw, method, strict")
    if method not in METHODS:
        raise InvalidCall("method", method, " | ".join(METHODS))
    if schema is None and method != "json_mode":
        raise InvalidCall("schema", schema, "a schema or a class; None with json_mode only")
    tracing = {"kwargs": {"method": method, "strict": strict}, "schema": schema}
    if schema is not None and method == "function_calling":
        _check_object(schema)
        tool = shown_tool(schema, "schema")
        name = tool["function"]["name"]
        bound = model.bind_tools(
            [tool],
            tool_choice=name,
            parallel_tool_calls=False,
            ls_structured_output_format=tracing,
        )
        return _parsed(bound, _tool_parser(schema, name), include_raw)
    # json_mode without a schema: any object
    response_format: dict[str, Any] = {"type": "json_object"}
    if schema is not None:
        body = {"name": "answer", "schema": _json_schema(schema), "strict": True}
        response_format = {"type": "json_schema", "json_schema": body}
    bound = model.bind(response_format=response_format, ls_structured_output_format=tracing)
    return _parsed(bound, _text_parser(schema), include_raw)


def _check_object(schema: dict[str, Any] | type) -> None:
    """Raise InvalidCall for a schema of anything but objects."""
    found = _json_schema(schema)
    kind = found.get("type", "object")
    for given in kind if isinstance(kind, list) else [kind]:
        if given not in TYPES:
            raise InvalidCall("schema.type", given, " | ".join(TYPES) + type_suggestion(given))
    if kind != "object" or not found.keys() & {"type", "properties", *WRAPPED}:
        raise InvalidCall("schema", schema, _OBJECTS)


def _json_schema(schema: dict[str, Any] | type) -> dict[str, Any]:
    """What answers are held to. LangChain's own conversion knows objects alone: of other schemas it
    would leave the title."""
    if isinstance(schema, Mapping) and not any(key in schema for key in WRAPPED):
        return dict(schema)
    if isinstance(schema, type) and issubclass(schema, Enum):
        return TypeAdapter(schema).json_schema()
    if isinstance(schema, type) and issubclass(schema, BaseModel) and differs(schema):
        return schema_of(schema)
    try:
        return convert_to_json_schema(schema)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidCall("schema", schema, f"{_SCHEMAS} ({reason(error)})") from error


def _parsed(model: Runnable[Any, Any], parser: Any, include_raw: bool) -> Runnable[Any, Any]:
    if not include_raw:
        answer: Runnable[Any, Any] = model | parser
        return answer
    right: Runnable[Any, Any] = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    wrong: Runnable[Any, Any] = RunnablePassthrough.assign(parsed=lambda _: None)
    raw: Runnable[Any, Any] = RunnableMap(raw=RunnablePassthrough())  # a model inside has no batch
    return model | raw | right.with_fallbacks([wrong], exception_key="parsing_error")


def _tool_parser(schema: dict[str, Any] | type, name: str) -> BaseOutputParser[Any]:
    if isinstance(schema, type) and is_basemodel_subclass(schema):
        return PydanticToolsParser(tools=[schema], first_tool_only=True)
    return JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)


def _text_parser(schema: dict[str, Any] | type | None) -> BaseOutputParser[Any]:
    if isinstance(schema, type) and is_basemodel_subclass(schema):
        return PydanticOutputParser(pydantic_object=schema)
    if isinstance(schema, type) and issubclass(schema, Enum):
        return MemberParser(kind=schema)
    return JsonOutputParser()


class MemberParser(BaseOutputParser[Enum]):
    """The member of an enum whose value an answer is, as JSON."""

    kind: type[Enum]

    def parse(self, text: str) -> Enum:
        """Raises OutputParserException where an answer was cut."""
        try:
            return TypeAdapter[Enum](self.kind).validate_json(text)
        except ValidationError as error:
            message = f"{text!r:.100} is not a value of {self.kind.__name__}"
            raise OutputParserException(message, llm_output=text) from error
