"""From the arguments of `gen` to its constraint.

JSON has a blank after each comma and colon, as most of the JSON has that models have read, unless a
`JsonSchema` sets others.

What is accepted as a JSON schema: a mapping, its JSON text, a `JsonSchema`, a Pydantic model, and
with Pydantic installed a dataclass or TypedDict. Pydantic itself is imported only when such a class
is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, TypeAlias

from ....core.api.protocol import (
    SPACED,
    Call,
    Constraint,
    ForkrootError,
    Grammar,
    InvalidCall,
    JsonSchema,
    Regex,
    Reply,
)
from ...common.spelling import located

Schema: TypeAlias = Mapping[str, Any] | str | bool | type | JsonSchema

_DTYPES = {
    "int": r"[+-]?[0-9]+",
    "float": r"[+-]?[0-9]+(\.[0-9]+)?",
    "bool": r"(True|False)",
    "str": r'"[^"\\\n]*"',
}
_CLASSES = "a Pydantic model, a dataclass, a TypedDict"


def constraint_of(
    *,
    dtype: type | str | None = None,
    regex: str | None = None,
    json_schema: Schema | None = None,
    grammar: str | Grammar | None = None,
) -> Constraint | None:
    """The one constraint among these arguments, None if all are None. Raises InvalidCall."""
    if regex is not None:
        return Regex(_checked(regex, "regex", "a regular expression as text"))
    if isinstance(json_schema, JsonSchema):
        json_schema.check()
        return json_schema
    if json_schema is not None:
        return JsonSchema(_schema(json_schema), SPACED)
    if isinstance(grammar, Grammar):
        return grammar
    if grammar is not None:
        return Grammar(_checked(grammar, "grammar", "a grammar as text, or a Grammar"))
    return None if dtype is None else _of_dtype(dtype)


def error_of(reply: Reply) -> BaseException | None:
    """The error that a call ended in; one in a JSON schema with the value there."""
    error, constraint = reply.error(), reply.call.constraint
    if not isinstance(error, ForkrootError) or not isinstance(constraint, JsonSchema):
        return error
    return located(error, {"json_schema": constraint.schema}, _no_reply)


def _no_reply(call: Call) -> Reply:
    raise AssertionError("a call with this schema already has its pointers")


def _of_dtype(dtype: type | str) -> Constraint:
    if _has_schema(dtype):
        return JsonSchema(_class_schema(dtype, "dtype"), SPACED)
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "")
    if name not in _DTYPES:
        raise InvalidCall("dtype", dtype, " | ".join((*_DTYPES, _CLASSES)))
    return Regex(_DTYPES[name])


def _schema(schema: Mapping[str, Any] | str | bool | type) -> Mapping[str, Any] | bool:
    allowed = f"a schema (a mapping), its JSON text, {_CLASSES}, a JsonSchema"
    if _has_schema(schema):
        return _class_schema(schema, "json_schema")
    parsed: Any = schema
    if isinstance(schema, str):
        try:
            parsed = json.loads(schema)
        except (ValueError, RecursionError) as error:
            expected = f"{allowed}; this text is not JSON ({error})"
            raise InvalidCall("json_schema", schema, expected) from error
    if not isinstance(parsed, Mapping | bool):
        raise InvalidCall("json_schema", schema, allowed)
    return parsed


def _has_schema(value: object) -> bool:
    """Whether this is a class with a JSON schema, its own or by Pydantic."""
    return isinstance(value, type) and (
        hasattr(value, "model_json_schema")
        or is_dataclass(value)
        or hasattr(value, "__required_keys__")  # a TypedDict, of `typing` or `typing_extensions`
    )


def _class_schema(kind: Any, field: str) -> Mapping[str, Any]:
    """The schema of what the class is made from, as its own `model_json_schema` or Pydantic says.

    Raises InvalidCall where neither can.
    """
    try:
        from ...common.classes import schema_of

        schema: Mapping[str, Any] = schema_of(kind)
    except Exception as error:
        cause = str(error).partition("\n")[0]
        allowed = f"a class that has a JSON schema ({type(error).__name__}: {cause})"
        raise InvalidCall(field, kind, allowed) from error
    return schema


def _checked(value: object, field: str, allowed: str) -> str:
    if not isinstance(value, str):
        raise InvalidCall(field, value, allowed)
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise InvalidCall(field, value, "text without lone surrogates")
    return value
