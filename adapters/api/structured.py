"""Constraints that an API can keep: JSON schemas and choices, as its structured outputs take them.

The answer is validated here when it has come: what an API ignores of a schema is found then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.api.dialects import SCHEMA_LISTS, SCHEMA_MAPS, SCHEMAS, at
from ...core.api.protocol import (
    Choices,
    Constraint,
    Grammar,
    JsonSchema,
    Regex,
    UnsupportedCall,
)
from .validation import validation_error

VALUE = "value"  # the property that holds an answer that is not an object
_WAYS_OUT = (
    "a JSON schema or choices: an API model keeps no {kind}. Constrain by json_schema= or choices=,"
    " leave it out and check the answer, or use a model that forkroot runs"
)
_OF_STRICT = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const"),
        *("anyOf", "$ref", "$defs", "definitions", "description", "title", "pattern", "format"),
        *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("minItems", "maxItems"),
    )
)
_OF_ANTHROPIC = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const"),
        *("anyOf", "allOf", "$ref", "$defs", "definitions", "description", "title", "format"),
        "minItems",
    )
)


class Broken(ValueError):
    """An answer that does not keep its constraint."""


@dataclass(frozen=True, slots=True)
class Form:
    """What is requested for a constraint.

    schema: that is sent. is_wrapped: the answer is the property VALUE of an object, as an API
      writes objects only. is_strict: all of the schema is in the part that OpenAI guarantees.
    """

    constraint: Choices | JsonSchema
    schema: Mapping[str, Any]
    is_wrapped: bool
    is_strict: bool

    def text(self, written: str) -> str:
        """The answer for what the API wrote: the same text, or what was wrapped in it. Raises
        Broken for what the constraint does not allow."""
        try:
            value = json.loads(written)
        except (ValueError, RecursionError) as error:
            raise Broken(f"not JSON ({error})") from None
        if self.is_wrapped:
            if not isinstance(value, dict) or value.keys() != {VALUE}:
                raise Broken(f"not an object of one property {VALUE!r}")
            value = value[VALUE]
        if isinstance(self.constraint, Choices):
            if value not in self.constraint.options:
                raise Broken(f"{value!r:.80} is not one of the choices")
            return str(value)
        violation = validation_error(value, self.constraint.schema)
        if violation is not None:
            raise Broken(violation)
        if not self.is_wrapped:
            return written
        return json.dumps(value, ensure_ascii=False, separators=self.constraint.separators)


def form_of(constraint: Constraint, is_anthropic: bool) -> Form:
    """What is requested for a constraint. Raises UnsupportedCall where an API cannot keep it."""
    match constraint:
        case Regex(pattern=pattern):
            raise UnsupportedCall("regex", pattern, _WAYS_OUT.format(kind="regular expression"))
        case Grammar(source=source):
            raise UnsupportedCall("grammar", source, _WAYS_OUT.format(kind="grammar"))
        case Choices(options=options):
            schema: Any = {"type": "string", "enum": list(options)}
        case JsonSchema(schema=schema):
            if schema is False:
                raise UnsupportedCall("json_schema", False, "a schema that allows something")
            schema = {} if schema is True else schema
    if is_anthropic:
        schema = _mapped(schema, _for_anthropic)
    is_object = schema.get("type") == "object" and not SCHEMA_LISTS & schema.keys()
    sent = schema if is_object else _wrapped(schema)
    return Form(constraint, sent, not is_object, _is_strict(sent))


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with one property of this schema; definitions stay at the root."""
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    rest = {name: value for name, value in schema.items() if name not in shared}
    found = {
        "type": "object",
        "properties": {VALUE: _mapped(rest, _moved)},
        "required": [VALUE],
        "additionalProperties": False,
    }
    return {**found, **_mapped(shared, _moved)}


def _moved(schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """References to the root, to where that is in the wrapped schema."""
    target = schema.get("$ref")
    if not isinstance(target, str) or not target.startswith("#"):
        return schema
    if target.startswith(("#/$defs/", "#/definitions/")):
        return schema
    return {**schema, "$ref": f"#/properties/{VALUE}{target[1:]}"}


def _for_anthropic(schema: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A subschema without what the API refuses, which is left to validation; objects have the
    named properties only."""
    found = {name: value for name, value in schema.items() if name in _OF_ANTHROPIC}
    if "oneOf" in schema and "anyOf" not in found:
        found["anyOf"] = schema["oneOf"]
    if found.get("minItems", 0) not in (0, 1):
        del found["minItems"]
    if found.get("type") == "object" or "properties" in found:
        is_open = isinstance(schema.get("additionalProperties"), Mapping)
        if is_open or "patternProperties" in schema or not schema.get("properties"):
            allowed = "objects whose properties are all named: Anthropic's API writes no others"
            raise UnsupportedCall("json_schema", path, allowed)
        found["additionalProperties"] = False
    return found


def _mapped(
    schema: Any, change: Callable[[Mapping[str, Any], str], Mapping[str, Any]], path: str = "#"
) -> Any:
    """A schema in which each subschema is changed, the outer one before those in it."""
    if not isinstance(schema, Mapping):
        return schema
    found = dict(change(schema, path))
    for name, value in found.items():
        below = at(path, name)
        if name in SCHEMA_MAPS and isinstance(value, Mapping):
            found[name] = {key: _mapped(it, change, at(below, key)) for key, it in value.items()}
        elif name in (*SCHEMA_LISTS, "items") and isinstance(value, list | tuple):
            found[name] = [_mapped(it, change, at(below, i)) for i, it in enumerate(value)]
        elif name in (*SCHEMAS, "items"):
            found[name] = _mapped(value, change, below)
    return found


def _is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI's strict mode takes a schema."""
    is_strict = True

    def check(found: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        nonlocal is_strict
        is_known = found.keys() <= _OF_STRICT and found.keys() != set()
        is_closed = True
        if found.get("type") == "object" or "properties" in found:
            names, required = found.get("properties", {}), found.get("required", ())
            is_closed = found.get("additionalProperties") is False
            is_closed = is_closed and set(names) == set(required)
        is_strict = is_strict and is_known and is_closed
        return found

    _mapped(schema, check)
    return is_strict
