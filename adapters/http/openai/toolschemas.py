"""Checks that a tool's parameters are a JSON schema, where no constraint is made of them.

The check is that of the metaschemas of all drafts at once: unknown keywords, and those that no
constraint could honour, are accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....core.api.dialects import SCHEMA_LISTS
from ....core.api.protocol import InvalidCall
from ...common.tools import ToolSpec

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_TYPE = f"one of {', '.join(TYPES)}, or a list of these"
_SCHEMA = "a schema: an object, or true or false"
_NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_NESTED = frozenset(
    (
        *("items", "additionalItems", "additionalProperties", "contains", "propertyNames"),
        *("not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties"),
    )
)
_COUNTS = frozenset(
    (
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        *("minContains", "maxContains"),
    )
)
_NUMBERS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
_TEXTS = frozenset(("pattern", "format", "$ref"))


def check_schemas(specs: Sequence[ToolSpec], within: str) -> None:
    """Raise InvalidCall for the first place that is not a schema in the parameters of these tools.
    within: what the fields of one lie in, as in "function."."""
    for index, spec in enumerate(specs):
        schema = spec.parameters or {}
        if schema.get("type", "object") not in ("object", ["object"]):
            fault: tuple[str, Any, str] | None = ("/type", schema["type"], "object")
        else:
            fault = _fault(schema)
        if fault is not None:
            pointer, value, allowed = fault
            field = f"tools[{index}].{within}parameters#{pointer}"
            raise InvalidCall(field, value, f"{allowed} (of the tool {spec.name!r})")


def _fault(schema: Mapping[str, Any]) -> tuple[str, Any, str] | None:
    """The first fault of a schema: its place, the value there, and what is allowed."""
    todo: list[tuple[str, Any]] = [("", schema)]
    while todo:
        index, node = todo.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, Mapping):
            return index, node, _SCHEMA
        for keyword, value in node.items():
            pointer = f"{index}/{_step(keyword)}"
            allowed = _allowed(keyword, value)
            if allowed is not None:
                return pointer, value, allowed
            todo += _parts(keyword, value, pointer)
    return None


def _allowed(keyword: str, value: Any) -> str | None:
    """What the value of a keyword may be; None where it is allowed."""
    is_list = isinstance(value, list)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_well, allowed = True, ""
    if keyword == "type":
        names = value if is_list else [value]
        is_well, allowed = bool(names) and all(it in TYPES for it in names), _TYPE
    elif keyword in _NAMED:
        is_well, allowed = isinstance(value, dict), "an object of names and schemas"
    elif keyword in SCHEMA_LISTS:
        is_well, allowed = is_list and bool(value), "a list of at least one schema"
    elif keyword == "required":
        is_well = is_list and all(isinstance(it, str) for it in value)
        allowed = "a list of names"
    elif keyword == "enum":
        is_well, allowed = is_list, "a list of values"
    elif keyword in _COUNTS:
        is_whole = is_number and (isinstance(value, int) or value.is_integer())
        is_well = is_whole and value >= 0
        allowed = "an integer of 0 or more"
    elif keyword in _NUMBERS:
        is_flag = keyword.startswith("exclusive") and isinstance(value, bool)
        is_well, allowed = is_number or is_flag, "a number"
    elif keyword in _TEXTS:
        is_well, allowed = isinstance(value, str), "a text"
    return None if is_well else allowed


def _parts(keyword: str, value: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    """The schemas inside the value of a keyword, which is well-formed."""
    if keyword in _NAMED:
        yield from ((f"{pointer}/{_step(name)}", part) for name, part in value.items())
    elif keyword in SCHEMA_LISTS or (keyword == "items" and isinstance(value, list)):
        yield from ((f"{pointer}/{number}", part) for number, part in enumerate(value))
    elif keyword in _NESTED:
        yield pointer, value


def _step(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
