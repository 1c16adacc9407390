"""Checks that a tool's parameters are a JSON schema, where no constraint is made of them.

The check is that of the metaschemas of all drafts at once: unknown keywords, and those that no
constraint could honour, are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ....core.api.dialects import SCHEMA_LISTS, SCHEMA_MAPS, SCHEMAS, TYPES, at, type_suggestion
from ....core.api.protocol import InvalidCall
from ...common.tools import ToolSpec

_SCHEMA = "a schema: an object, or true or false"
_NAMED = SCHEMA_MAPS - {"dependencies"}
_NESTED = SCHEMAS - {"contentSchema"} | {"items"}
_COUNTS = (
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("minContains", "maxContains"),
)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and (isinstance(value, int) or value.is_integer())


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(it in TYPES for it in names)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(it, str) for it in value)


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {  # what values may be, and whether one is
    "type": (f"one of {', '.join(TYPES)}, or a list of these", _is_type),
    "required": ("a list of names", _is_names),
    "enum": ("a list of values", lambda value: isinstance(value, list)),
    **dict.fromkeys(_NAMED, ("an object of names and schemas", lambda it: isinstance(it, dict))),
    **dict.fromkeys(
        SCHEMA_LISTS,
        ("a list of at least one schema", lambda it: isinstance(it, list) and bool(it)),
    ),
    **dict.fromkeys(_COUNTS, ("an integer of 0 or more", _is_count)),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), ("a number", _is_number)),
    **dict.fromkeys(
        ("exclusiveMinimum", "exclusiveMaximum"),
        ("a number", lambda value: isinstance(value, int | float)),
    ),
    **dict.fromkeys(("pattern", "format", "$ref"), ("a text", lambda it: isinstance(it, str))),
}


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
        path, node = todo.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, Mapping):
            return path, node, _SCHEMA
        for keyword, value in node.items():
            pointer = at(path, keyword)
            rule = _RULES.get(keyword)
            if rule is not None and not rule[1](value):
                hint = type_suggestion(value) if keyword == "type" else ""
                return pointer, value, rule[0] + hint
            todo += _parts(keyword, value, pointer)
    return None


def _parts(keyword: str, value: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    """The schemas inside the value of a keyword, which is well-formed."""
    if keyword in _NAMED:
        yield from ((at(pointer, name), part) for name, part in value.items())
    elif keyword in SCHEMA_LISTS or (keyword == "items" and isinstance(value, list)):
        yield from ((at(pointer, number), part) for number, part in enumerate(value))
    elif keyword in _NESTED:
        yield pointer, value
