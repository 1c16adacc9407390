"""Whether a JSON value is what a schema accepts.

Checked are the keywords of `_CHECKS`, in every draft, and `$ref` within the schema. Formats,
`unevaluated...` and references elsewhere are not: they restrict nothing here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from ...core.api.dialects import at, draft_of, normalized

_MAX_DEPTH = 200
_Errors: TypeAlias = Iterator[str]
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda it: isinstance(it, dict),
    "array": lambda it: isinstance(it, list),
    "string": lambda it: isinstance(it, str),
    "boolean": lambda it: isinstance(it, bool),
    "null": lambda it: it is None,
    "number": lambda it: _is_number(it),
    "integer": lambda it: _is_number(it) and math.isfinite(it) and it == int(it),
}


def validation_error(value: Any, schema: Mapping[str, Any] | bool) -> str | None:
    """The first violation of a schema, with its JSON pointer; None: the value is valid."""
    return next(_Validator(schema).errors(value, schema, "#", 0), None)


class _Validator:
    """root: the schema that references point into."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._draft = draft_of(root)

    def errors(self, value: Any, schema: Any, path: str, depth: int) -> _Errors:
        """All violations, each with the pointer to the value."""
        if schema is False:
            yield f"{path} is not allowed"
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return
        schema = normalized(schema, self._draft)
        for keyword, check in _CHECKS.items():
            if keyword in schema:
                for message in check(value, schema[keyword], schema):
                    yield f"{path} {message}"
        yield from self._combined(value, schema, path, depth + 1)
        if isinstance(value, dict):
            yield from self._in_object(value, schema, path, depth + 1)
        if isinstance(value, list):
            yield from self._in_list(value, schema, path, depth + 1)

    def _is_valid(self, value: Any, schema: Any, depth: int) -> bool:
        return next(self.errors(value, schema, "#", depth), None) is None

    def _combined(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> _Errors:
        if isinstance(target := schema.get("$ref"), str):
            yield from self.errors(value, self._target(target), path, depth)
        for part in schema.get("allOf", ()):
            yield from self.errors(value, part, path, depth)
        for keyword, most in (("anyOf", None), ("oneOf", 1)):
            if keyword in schema:
                num = sum(self._is_valid(value, part, depth) for part in schema[keyword])
                if num == 0 or (most is not None and num > most):
                    yield f"{path} matches {num} of the schemas of {keyword}"
        if "not" in schema and self._is_valid(value, schema["not"], depth):
            yield f"{path} matches the schema of not"
        if "if" in schema:
            branch = "then" if self._is_valid(value, schema["if"], depth) else "else"
            yield from self.errors(value, schema.get(branch, True), path, depth)

    def _in_object(
        self, value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> _Errors:
        names, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, item in value.items():
            parts = [names[name]] if name in names else []
            parts += [part for pattern, part in patterns.items() if _found(pattern, name)]
            parts = parts or [schema.get("additionalProperties", True)]
            for part in parts:
                yield from self.errors(item, part, at(path, name), depth)
            yield from self.errors(name, schema.get("propertyNames", True), path, depth)
        for name, part in schema.get("dependentSchemas", {}).items():
            if name in value:
                yield from self.errors(value, part, path, depth)
        for name, needed in schema.get("dependentRequired", {}).items():
            if name in value and not set(needed) <= value.keys():
                yield f"{path} has {name!r} without {sorted(set(needed) - value.keys())}"

    def _in_list(
        self, value: list[Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> _Errors:
        items, first = schema.get("items", True), schema.get("prefixItems", [])
        if isinstance(items, list | tuple):
            first, items = items, schema.get("additionalItems", True)
        for index, item in enumerate(value):
            part = first[index] if index < len(first) else items
            yield from self.errors(item, part, at(path, index), depth)
        if "contains" in schema:
            num = sum(self._is_valid(item, schema["contains"], depth) for item in value)
            low, high = schema.get("minContains", 1), schema.get("maxContains", math.inf)
            if not low <= num <= high:
                yield f"{path} has {num} items that match the schema of contains"

    def _target(self, pointer: str) -> Any:
        """The schema that a reference names; True where it is elsewhere."""
        found = self._root
        if not pointer.startswith("#"):
            return True
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key) if isinstance(found, list | tuple) else key]
            except (KeyError, IndexError, TypeError, ValueError):
                return True
        return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _found(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True  # a pattern of another dialect


def _same(one: Any) -> str:
    """A text that equal JSON values share: 1 and 1.0 are equal, 1 and true are not."""
    if _is_number(one) and math.isfinite(one):
        return f"number {Fraction(one)}"
    if isinstance(one, list):
        return json.dumps([_same(item) for item in one])
    if isinstance(one, dict):
        return json.dumps({key: _same(item) for key, item in one.items()}, sort_keys=True)
    return f"{type(one).__name__} {one}"


def _check_type(value: Any, names: Any, schema: Mapping[str, Any]) -> _Errors:
    names = [names] if isinstance(names, str) else names
    if not any(_TYPES.get(name, lambda _: True)(value) for name in names):
        yield f"is {value!r:.60}; expected type {' or '.join(map(str, names))}"


def _check_enum(value: Any, options: Any, schema: Mapping[str, Any]) -> _Errors:
    if _same(value) not in map(_same, options):
        yield f"is {value!r:.60}; expected one of {options!r:.200}"


def _check_const(value: Any, option: Any, schema: Mapping[str, Any]) -> _Errors:
    return _check_enum(value, [option], schema)


def _check_multiple(value: Any, unit: Any, schema: Mapping[str, Any]) -> _Errors:
    if _is_number(value) and math.isfinite(value) and Fraction(str(value)) % Fraction(str(unit)):
        yield f"is {value}; expected a multiple of {unit}"


def _check_pattern(value: Any, pattern: Any, schema: Mapping[str, Any]) -> _Errors:
    if isinstance(value, str) and not _found(pattern, value):
        yield f"is {value!r:.60}; expected a match of {pattern!r}"


def _check_unique(value: Any, is_unique: Any, schema: Mapping[str, Any]) -> _Errors:
    is_checked = is_unique is True and isinstance(value, list)
    if is_checked and len(set(map(_same, value))) < len(value):
        yield "repeats an item"


def _check_required(value: Any, names: Any, schema: Mapping[str, Any]) -> _Errors:
    if isinstance(value, dict) and isinstance(names, list | tuple):
        for name in names:
            if name not in value:
                yield f"has no property {name!r}"


def _bound(
    measure: Callable[[Any], Any], is_within: Callable[[Any, Any], bool], expected: str
) -> Callable[[Any, Any, Mapping[str, Any]], _Errors]:
    """A check of a measure of a value (None: it has none) against the keyword's number."""

    def check(value: Any, limit: Any, schema: Mapping[str, Any]) -> _Errors:
        found = measure(value)
        if found is not None and _is_number(limit) and not is_within(found, limit):
            yield f"is {value!r:.60}; expected {expected} {limit}"

    return check


def _number(value: Any) -> Any:
    return value if _is_number(value) else None


def _size(kind: type[str] | type[list[Any]] | type[dict[str, Any]]) -> Callable[[Any], int | None]:
    return lambda value: len(value) if isinstance(value, kind) else None


def _at_least(found: Any, limit: Any) -> bool:
    return bool(found >= limit)


def _at_most(found: Any, limit: Any) -> bool:
    return bool(found <= limit)


_CHECKS: Mapping[str, Callable[[Any, Any, Mapping[str, Any]], _Errors]] = {
    "type": _check_type,
    "enum": _check_enum,
    "const": _check_const,
    "minimum": _bound(_number, _at_least, "at least"),
    "maximum": _bound(_number, _at_most, "at most"),
    "exclusiveMinimum": _bound(_number, lambda it, limit: it > limit, "more than"),
    "exclusiveMaximum": _bound(_number, lambda it, limit: it < limit, "less than"),
    "multipleOf": _check_multiple,
    "minLength": _bound(_size(str), _at_least, "a length of at least"),
    "maxLength": _bound(_size(str), _at_most, "a length of at most"),
    "pattern": _check_pattern,
    "minItems": _bound(_size(list), _at_least, "items, at least"),
    "maxItems": _bound(_size(list), _at_most, "items, at most"),
    "uniqueItems": _check_unique,
    "required": _check_required,
    "minProperties": _bound(_size(dict), _at_least, "properties, at least"),
    "maxProperties": _bound(_size(dict), _at_most, "properties, at most"),
}
