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
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, TypeAdapter, ValidationError

from ...core.protocol import InvalidCall
from ..classes import differs, schema_of

METHODS = ("function_calling", "json_schema", "json_mode")
_CONVERTED = ("properties", "parameters", "input_schema", "function", "toolSpec")
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
    """A model and a parser of its answers. strict: says nothing, as answers always are; the rest as
    in `ChatForkroot.with_structured_output`. Raises InvalidCall."""
    if kwargs:
        name, value = next(iter(kwargs.items()))
        raise InvalidCall(name, value, "schema, include_raw, method, strict")
    if method not in METHODS:
        raise InvalidCall("method", method, " | ".join(METHODS))
    if schema is None and method != "json_mode":
        raise InvalidCall("schema", schema, "a schema or a class; None with json_mode only")
    told = {"kwargs": {"method": method, "strict": strict}, "schema": schema}
    held = _held(schema)
    if schema is not None and method == "function_calling":
        found = _json_schema(held)
        if found.get("type", "object") != "object" or not found.keys() & {"type", *_CONVERTED}:
            raise InvalidCall("schema", schema, _OBJECTS)
        name = convert_to_openai_tool(held)["function"]["name"]
        bound = model.bind_tools(
            [held],
            tool_choice=name,
            parallel_tool_calls=False,
            ls_structured_output_format=told,
        )
        return _parsed(bound, _tool_parser(schema, name), include_raw)
    asked: dict[str, Any] = {"type": "json_object"}  # json_mode without a schema: any object
    if schema is not None:
        body = {"name": "answer", "schema": _json_schema(held), "strict": True}
        asked = {"type": "json_schema", "json_schema": body}
    bound = model.bind(response_format=asked, ls_structured_output_format=told)
    return _parsed(bound, _text_parser(schema), include_raw)


def _held(schema: Any) -> Any:
    """What LangChain is given to convert: the class, but where Pydantic's schema of it takes texts
    that it does not."""
    is_model = isinstance(schema, type) and issubclass(schema, BaseModel)
    return schema_of(schema) if is_model and differs(schema) else schema


def _json_schema(schema: dict[str, Any] | type) -> dict[str, Any]:
    """What answers are held to. LangChain's own conversion knows objects alone: of other schemas it
    would leave the title."""
    if isinstance(schema, Mapping) and not any(key in schema for key in _CONVERTED):
        return dict(schema)
    if isinstance(schema, type) and issubclass(schema, Enum):
        return TypeAdapter(schema).json_schema()
    return convert_to_json_schema(schema)


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
            told = f"{text!r:.100} is no value of {self.kind.__name__}"
            raise OutputParserException(told, llm_output=text) from error
