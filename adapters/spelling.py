"""JSON objects as models are trained to write them: with a space after each comma and colon.

A runtime spells what a schema forces without blanks; calls of tools, and most of the JSON in a
model's training, were written by `json.dumps`. So the outermost object is spelled here, key by key,
and each value in it is left to the runtime.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..core.protocol import (
    Call,
    Constraint,
    ForkrootError,
    Grammar,
    InvalidCall,
    JsonSchema,
    Reply,
    Sampling,
    Text,
)

_PLAIN = frozenset(("type", "properties", "required", "title", "description", "$defs", "strict"))
_ASIDE = ("$defs", "definitions")
_MOST_WAIT = 10.0  # seconds for the place of a fault


def spell(value: Any) -> str:
    """A JSON value, spelled as an answer is that `rules_of` allows."""
    if not isinstance(value, Mapping):
        return _compact(value)
    items = [f"{_compact(str(key))}: {_compact(item)}" for key, item in value.items()]
    return "{" + ", ".join(items) + "}"


def constraint_of(schema: Mapping[str, Any] | bool) -> Constraint:
    """The constraint of an answer that is a value of this schema and nothing else."""
    if isinstance(schema, bool) or not _is_plain(schema):
        return JsonSchema(schema)
    return Grammar("\n".join(rules_of("start", schema)) + "\n")


def rules_of(name: str, schema: Mapping[str, Any] | bool) -> list[str]:
    """Rules of Lark for the values of a schema, under this name. An object of known properties has
    its blanks; whatever else a schema can say is left to the runtime whole."""
    if isinstance(schema, bool) or not _is_plain(schema):
        return [f"{name}: {_json(schema)}"]
    keys = list(schema.get("properties") or {})
    required = set(schema.get("required") or ())
    rules = [f'{name}: "{{" {name}_first_0 "}}"']
    for place, key in enumerate(keys):
        item, value, after = f"{name}_item_{place}", f"{name}_value_{place}", place + 1
        is_left_out = key not in required
        rules += [
            f"{name}_first_{place}: {item} {name}_rest_{after}"
            + f" | {name}_first_{after}" * is_left_out,
            f'{name}_rest_{place}: ", " {item} {name}_rest_{after}'
            + f" | {name}_rest_{after}" * is_left_out,
            f"{item}: {_compact(_compact(key) + ': ')} {value}",
            f"{value}: {_json(_within(schema, key))}",
        ]
    return [*rules, f'{name}_first_{len(keys)}: ""', f'{name}_rest_{len(keys)}: ""']


def located(
    error: ForkrootError, schemas: Mapping[str, Any], submit: Callable[[Call], Reply]
) -> ForkrootError:
    """An error in one of the schemas that a call was made of, with its field, its place in there
    and the value found; any other error as it is.

    schemas: by field. A fault in a piece of a schema is looked for by asking for each one whole,
    which waits for the answer.
    """
    if type(error) is not InvalidCall or not isinstance(error.value, str) or not schemas:
        return error
    if error.field in schemas:
        return _at(error.field, schemas[error.field], error)
    if error.field != "grammar" or not error.value.startswith("%json"):
        return error
    for field, schema in schemas.items():
        reply = submit(Call((Text(" "),), Sampling(max_tokens=1), JsonSchema(schema)))
        found = _error_of(reply)
        if isinstance(found, InvalidCall) and found.field == "json_schema":
            return _at(field, schema, found)
    return error


def _error_of(reply: Reply) -> BaseException | None:
    """What a call ends in, within some time."""
    try:
        reply.result(_MOST_WAIT)
    except (ForkrootError, TimeoutError) as error:
        return error
    finally:
        reply.cancel()
    return None


def _at(field: str, schema: Any, error: InvalidCall) -> InvalidCall:
    """The error with the value at the place that it points to, where that is there."""
    value = schema
    for step in str(error.value).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        try:
            value = value[int(key) if isinstance(value, list | tuple) else key]
        except (KeyError, IndexError, TypeError, ValueError):
            return InvalidCall(field, error.value, error.allowed)
    place = "" if error.value == "#" else error.value
    return InvalidCall(f"{field}{place}", value, error.allowed)


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """Whether it says of an object which properties it has, and nothing of them together."""
    properties = schema.get("properties")
    return (
        schema.get("type") == "object"
        and isinstance(properties, Mapping)
        and all(isinstance(key, str) for key in properties)
        and set(schema.get("required") or ()) <= set(properties)
        and set(schema) - _PLAIN <= {"additionalProperties"}
        and schema.get("additionalProperties", False) is False
    )


def _within(schema: Mapping[str, Any], key: str) -> Any:
    """The schema of one property, with the definitions that it may refer to."""
    value = schema["properties"][key]
    if isinstance(value, bool):
        return value
    return {**{name: schema[name] for name in _ASIDE if name in schema}, **value}


def _json(schema: Any) -> str:
    return f"%json {json.dumps(schema)}"


def _compact(value: Any) -> str:
    """JSON without blanks; of a text, also a literal of a Lark grammar."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
