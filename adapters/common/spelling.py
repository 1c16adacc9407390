"""JSON as models learn to write it, with a blank after each comma and colon; and in which of the
schemas that a call was made of an error is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...core.api.protocol import (
    SPACED,
    Call,
    ForkrootError,
    Grammar,
    InvalidCall,
    JsonSchema,
    Reply,
    Sampling,
    Text,
    UnsupportedCall,
)

_MOST_WAIT = 10.0  # seconds for the place of a fault


def spell(value: Any) -> str:
    """A JSON value, spelled as an answer is that `rule_of` allows."""
    return json.dumps(value, ensure_ascii=False, separators=SPACED)


def rule_of(name: str, schema: Mapping[str, Any] | bool) -> str:
    """A rule of Lark for the values of a schema, under this name. Separators that the schema names
    itself are kept."""
    comma, colon = SPACED
    separators = {"x-guidance": {"item_separator": comma, "key_separator": colon}}
    plain: Mapping[str, Any] = {} if schema is True else schema or {}
    return f"{name}: %json {json.dumps(schema if schema is False else {**separators, **plain})}"


def located(
    error: ForkrootError, schemas: Mapping[str, Any], submit: Callable[[Call], Reply]
) -> ForkrootError:
    """An error in one of the schemas that a call was made of, with its field, its place in there
    and the value found; any other error as it is.

    schemas: by field. A fault in a piece of a schema is looked for by asking for each one whole,
    which waits for the answer.
    """
    if not isinstance(error, InvalidCall) or not isinstance(error.value, str):
        return error
    if error.field in schemas and error.value.startswith("#"):
        return _at(error.field, schemas[error.field], error)
    if error.field != "grammar" or not error.value.startswith("%json"):
        return error
    for field, schema in schemas.items():
        found = _refusal(JsonSchema(schema), submit)
        if found is not None and str(found.value).startswith("#"):
            return _at(field, schema, found)
    for field, schema in schemas.items():  # what is rejected in a grammar only
        found = _refusal(Grammar(rule_of("start", schema)), submit)
        if found is not None and str(found.value) == error.value:
            pointer = error.value.removeprefix("%json ").partition("=")[0]
            return _at(field, schema, type(found)("", pointer, found.allowed))
    return error


def _refusal(
    constraint: JsonSchema | Grammar, submit: Callable[[Call], Reply]
) -> InvalidCall | None:
    """Why a constraint is refused, if it is."""
    reply = submit(Call((Text(" "),), Sampling(max_tokens=1), constraint))
    try:
        reply.result(_MOST_WAIT)
    except InvalidCall as found:
        return found
    except (ForkrootError, TimeoutError):
        return None
    finally:
        reply.cancel()
    return None


def _at(field: str, schema: Any, error: InvalidCall) -> InvalidCall:
    """The error with the value at the place that it points to, where that is there."""
    kind = UnsupportedCall if isinstance(error, UnsupportedCall) else InvalidCall
    value = schema
    for step in str(error.value).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key) if isinstance(value, list | tuple) else key]
        except (KeyError, IndexError, TypeError, ValueError):
            return kind(field, error.value, error.allowed)
    pointer = "" if error.value == "#" else error.value
    return kind(f"{field}{pointer}", value, error.allowed)
