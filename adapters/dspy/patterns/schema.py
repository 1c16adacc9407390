"""JSON Schema, as Pydantic writes it, as a pattern of the values in one spelling.

Everything becomes regular: what refers to itself is unfolded a few times, and "any value" is one
that is nested a little. All fields are written, those with a default too. A branch that cannot be
said is left out where there is another; else the schema is refused with `UnsupportedSchema`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from .numbers import FREE_NUMBER, Interval, integers, multiples, numbers
from .spelling import MOST_ITEMS, Spelling, UnsupportedSchema
from .texts import FORMATS

MOST_UNFOLDED = 2  # times that a definition is written inside of itself
ANY_DEPTH = 2
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_SAFE = re.compile(r"(?:[A-Za-z0-9 _@:;,/#%=~-]|\\[dw.+*?()|^$-]|[()|?*+]|\{\d+(?:,\d*)?\}|"
                   r"\[(?:[A-Za-z0-9 _@:;,./#%=~+*-]|\\[dw.-])+\])*")  # fmt: skip


class Writer:
    """Writes the schemas of one document. Methods give None where no value can be written."""

    def __init__(self, document: Mapping[str, Any], spelling: Spelling) -> None:
        self._document = document
        self._spelling = spelling
        self._open: list[str] = []

    def pattern(self, depth: int = 0) -> str:
        """The values of the document. Raises Unsayable."""
        found = self.write(self._document, depth)
        if found is None:
            raise UnsupportedSchema("a schema that no value of bounded depth meets")
        return found

    def write(self, schema: Mapping[str, Any] | bool, depth: int) -> str | None:
        """The values of a schema that is part of the document."""
        if isinstance(schema, bool):
            return self.anything(depth) if schema else None
        if "$ref" in schema:
            return self._referred(schema["$ref"], depth)
        if "const" in schema:
            return self._spelling.constant(schema["const"], depth)
        if "enum" in schema:
            return _any([self._spelling.constant(value, depth) for value in schema["enum"]])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._either(schema[key], depth)
        if "allOf" in schema:
            if len(schema["allOf"]) > 1:
                raise UnsupportedSchema("allOf of several schemas")
            return self.write(schema["allOf"][0], depth)
        return self._typed(schema, depth)

    def anything(self, depth: int, rest: int = ANY_DEPTH) -> str:
        """Any value, nested at most so deep."""
        spelling = self._spelling
        ways = [spelling.text(0, None), FREE_NUMBER, spelling.true, spelling.false, spelling.null]
        if rest:
            inner = self.anything(depth + 1, rest - 1)
            ways.append(spelling.repeated(inner, depth, 0, None))
            ways.append(spelling.mapping(inner, depth, True))
        return f"(?:{'|'.join(ways)})"

    def _referred(self, name: str, depth: int) -> str | None:
        if self._open.count(name) > MOST_UNFOLDED:
            return None
        target: Any = self._document
        for step in name.removeprefix("#").strip("/").split("/"):
            if not isinstance(target, Mapping) or step not in target:
                raise UnsupportedSchema(f"the reference {name}")
            target = target[step]
        self._open.append(name)
        found = self.write(target, depth)
        self._open.pop()
        return found

    def _either(self, branches: Sequence[Any], depth: int) -> str | None:
        ways, refused = list[str | None](), list[UnsupportedSchema]()
        for branch in branches:
            num_open = len(self._open)
            try:
                ways.append(self.write(branch, depth))
            except UnsupportedSchema as error:
                del self._open[num_open:]
                refused.append(error)
        if refused and not any(way is not None for way in ways):
            raise refused[0]
        return _any(ways)

    def _typed(self, schema: Mapping[str, Any], depth: int) -> str | None:
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._either([{**schema, "type": name} for name in kind], depth)
        if kind is None:
            return self.anything(depth)
        if kind not in _TYPES:
            raise UnsupportedSchema(f"the type {kind!r}")
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema)
            case "boolean":
                return f"(?:{self._spelling.true}|{self._spelling.false})"
            case "null":
                return self._spelling.null
        return _number(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> str | None:
        properties = schema.get("properties")
        if not properties:
            return self._mapping(schema, depth)
        fields = list[tuple[str, str]]()
        required = schema.get("required", ())
        for name, value in properties.items():
            written = self.write(value, depth + 1)
            if written is None and name in required:
                return None
            if written is not None:
                fields.append((name, written))
        return self._spelling.record(fields, depth)

    def _mapping(self, schema: Mapping[str, Any], depth: int) -> str | None:
        values = schema.get("additionalProperties", True)
        inner = self.write(values, depth + 1)
        is_empty = not schema.get("minProperties")
        if schema.get("minProperties", 0) > 1 or "maxProperties" in schema:
            raise UnsupportedSchema("numbers of properties")
        if inner is None:
            return self._spelling.record([], depth) if is_empty else None
        return self._spelling.mapping(inner, depth, is_empty)

    def _array(self, schema: Mapping[str, Any], depth: int) -> str | None:
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        if "prefixItems" in schema:
            return self._tuple(schema["prefixItems"], depth)
        if low > MOST_ITEMS:
            raise UnsupportedSchema(f"lists of more than {MOST_ITEMS} items")
        if schema.get("uniqueItems") and low > 1:
            raise UnsupportedSchema("several items that differ")
        item = self.write(schema.get("items", True), depth + 1)
        if item is None:
            return self._spelling.array([], depth) if low == 0 else None
        return self._spelling.repeated(item, depth, low, high)

    def _tuple(self, items: Sequence[Any], depth: int) -> str | None:
        written = [self.write(item, depth + 1) for item in items]
        patterns = [item for item in written if item is not None]
        return self._spelling.array(patterns, depth) if len(patterns) == len(written) else None

    def _string(self, schema: Mapping[str, Any]) -> str:
        if "pattern" in schema:
            return self._spelling.quoted(_decoded(schema["pattern"]))
        if (name := schema.get("format")) in FORMATS:
            return self._spelling.quoted(FORMATS[name])
        if name is not None and name not in ("password", "binary"):
            raise UnsupportedSchema(f"the format {name!r}")
        return self._spelling.text(schema.get("minLength", 0), schema.get("maxLength"))


def _number(schema: Mapping[str, Any]) -> str | None:
    def bound(inside: str, outside: str) -> tuple[Decimal | None, bool]:
        if outside in schema:
            return Decimal(str(schema[outside])), True
        return (Decimal(str(schema[inside])), False) if inside in schema else (None, False)

    low, is_open_low = bound("minimum", "exclusiveMinimum")
    high, is_open_high = bound("maximum", "exclusiveMaximum")
    interval = Interval(low, high, is_open_low, is_open_high)
    if "multipleOf" in schema:
        return multiples(interval, Decimal(str(schema["multipleOf"])))
    return integers(interval) if schema["type"] == "integer" else numbers(interval)


def _decoded(pattern: str) -> str:
    """A pattern of whole texts without a character that a spelling would have to escape."""
    inner = pattern.removeprefix("^").removesuffix("$")
    if len(inner) + 2 != len(pattern) or not _SAFE.fullmatch(inner):
        raise UnsupportedSchema(f"the pattern {pattern!r}")
    return inner


def _any(ways: Sequence[str | None]) -> str | None:
    patterns = list(dict.fromkeys(way for way in ways if way is not None))
    return f"(?:{'|'.join(patterns)})" if patterns else None
