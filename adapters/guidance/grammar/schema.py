"""JSON schemas as Lark, spelled as Guidance spells JSON: separators of its own, keys in order.

Wider than the schema where that is simpler: Guidance's parser judges every token. It never is
narrower, and gives up where it might be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from guidance._ast import JsonNode

from ....core.api.protocol import InvalidCall
from ....core.fsm.json_schema.facts import Node
from ....core.fsm.json_schema.keywords import read
from ....core.fsm.json_schema.patterns.intervals import Interval
from ....core.fsm.json_schema.patterns.multiples import multiple_pattern
from ....core.fsm.json_schema.patterns.numbers import LARGEST
from ....core.fsm.json_schema.references import References
from ....core.fsm.regex.errors import InvalidSchema, UnsupportedSchema

MAX_RULES = 500
_CHAR = r'([^"\\\x00-\x1f\x7f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))'
_STRING = f'/"{_CHAR}*"/'
_PLAIN = {
    "integer": r"/-?(0|[1-9][0-9]*)/",
    "number": r"/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/",
    "string": _STRING,
    "boolean": '("true" | "false")',
    "null": '"null"',
}
_IGNORED = frozenset(
    (
        *("title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs"),
        *("definitions", "x-guidance", "format", "pattern", "minLength", "maxLength", "minimum"),
        *("maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"),
        *("uniqueItems", "deprecated", "readOnly", "writeOnly", "discriminator"),
    )
)


_NAME = re.compile(r"\0v(\d+)")
_CONSTANT = re.compile(r'"-?\d[^"]*"')
_ANY = [{"type": kind} for kind in ("object", "array", "string", "number", "boolean", "null")]


@dataclass(frozen=True, slots=True)
class JsonLark:
    """Rules of a schema. bodies: of the rules v0, v1, ..., with "\\0" where their prefix stands."""

    bodies: tuple[str, ...]

    def number_pattern(self) -> str | None:
        """The pattern of the numbers among the values; None where there are none. All other values
        show where they end."""
        names, found = [0], list[str]()
        for name in names:
            for part in self.bodies[name].split(" | "):
                if reference := _NAME.fullmatch(part):
                    names += {int(reference[1])}.difference(names)
                elif part.startswith("/") and part[1] != '"':
                    found.append(part[1:-1])
                elif _CONSTANT.fullmatch(part):
                    found.append(re.escape(part[1:-1]))
        return "|".join(found) or None

    def rules(self, prefix: str) -> str:
        """All rules; the first, `v0`, is the schema."""
        lines = [f"{prefix}v{i}: {body}\n" for i, body in enumerate(self.bodies)]
        return "".join(lines).replace("\0", prefix)


def json_lark(node: JsonNode) -> JsonLark | None:
    """The rules of a node's schema; None where they are not known."""
    options: Mapping[str, Any] = node.llg_options or {}
    if options.get("whitespace_flexible") is not False or options.get("whitespace_pattern"):
        return None
    separators = (options.get("item_separator") or ",", options.get("key_separator") or ":")
    schema = node.schema if node.schema is not None else {"type": "object"}
    try:
        return JsonLark(tuple(_Writer(schema, separators).bodies))
    except (InvalidCall, InvalidSchema, UnsupportedSchema, RecursionError):
        return None


def _bounded(schema: Mapping[str, Any]) -> str:
    """Integers between two bounds; -0 is one where numbers on both sides of it are."""
    said = read(Node(schema, "#")).numbers
    low, high = said.interval.integers() if said is not None else (None, None)
    if low is None or high is None or not -LARGEST <= low <= high <= LARGEST:
        raise UnsupportedSchema
    pattern = multiple_pattern(Interval(Decimal(low), Decimal(high)), Fraction(1))
    return f"/-0|{pattern}/" if low < 0 <= high else f"/{pattern}/"


class _Writer:
    """Writes rules; a rule's name begins with `\\0`, where its prefix will stand."""

    def __init__(self, root: Mapping[str, Any], separators: tuple[str, str]) -> None:
        self._references = References(Node(root, "#"))
        self._comma, self._colon = (json.dumps(text) for text in separators)
        self._names: dict[int, str] = {}
        self._kept: list[object] = []
        self.bodies: list[str] = []
        self.name(root)

    def name(self, schema: object) -> str:
        """The rule of a schema."""
        if id(schema) not in self._names:
            if len(self.bodies) >= MAX_RULES:
                raise UnsupportedSchema
            index = len(self.bodies)
            self._names[id(schema)] = f"\0v{index}"
            self._kept.append(schema)
            self.bodies.append("")
            self.bodies[index] = self._body(schema)
        return self._names[id(schema)]

    def _body(self, schema: object) -> str:
        if schema is True:
            return " | ".join(map(self.name, _ANY))
        if not isinstance(schema, Mapping):
            raise UnsupportedSchema
        known = {name: value for name, value in schema.items() if name not in _IGNORED}
        match known:
            case {"$ref": str(), **rest} if not rest:
                return self.name(self._references.target(Node(known, "#"), "$ref").schema)
            case {"const": value, **rest} if set(rest) <= {"type"}:
                return self._value(value)
            case {"enum": [*values], **rest} if values and set(rest) <= {"type"}:
                return " | ".join(map(self._value, values))
            case {"anyOf": [*ways], **rest} | {"oneOf": [*ways], **rest} if ways and not rest:
                return " | ".join(map(self.name, ways))
            case {"type": [*kinds], **rest} if kinds:
                return " | ".join([self.name({"type": kind, **rest}) for kind in kinds])
            case {"type": "string", **rest} if not rest and "maxLength" in schema:
                return f'/"{_CHAR}{{{schema.get("minLength", 0)},{schema["maxLength"]}}}"/'
            case {"type": "integer", **rest} if not rest and {"minimum", "maximum"} <= set(schema):
                return _bounded(schema)
            case {"type": str() as kind, **rest} if kind in _PLAIN and not rest:
                return _PLAIN[kind]
            case {"type": "array", **rest} if set(rest) <= {"items"}:
                item = self.name(rest.get("items", True))
                return f'"[" ({item} ({self._comma} {item})*)? "]"'
            case {"type": "object", **rest}:
                return self._object(rest)
            case _ if not known:
                return self._body(True)
        raise UnsupportedSchema

    def _object(self, object_schema: Mapping[str, Any]) -> str:
        """Properties in their order, each optional one there or not; then others, if allowed."""
        properties, required = (
            object_schema.get("properties", {}),
            set(object_schema.get("required", ())),
        )
        if set(object_schema) - {"properties", "required", "additionalProperties"}:
            raise UnsupportedSchema
        if not isinstance(properties, Mapping) or required - set(properties):
            raise UnsupportedSchema
        others = object_schema.get("additionalProperties", True)
        after, ways = "", list[str]()  # what may come after a pair, how the object may begin
        if others is not False:
            other = self._rule(f"{_STRING} {self._colon} {self.name(others)}")
            after = f"({self._comma} {other})*"
            ways = [self._rule(f"{other} {after}")]
        for name, value in reversed(list(properties.items())):
            spelled = json.dumps(json.dumps(name, ensure_ascii=False), ensure_ascii=False)
            pair = self._rule(f"{spelled} {self._colon} {self.name(value)}")
            begin, optional = self._rule(f"{pair} {after}"), "" if name in required else "?"
            ways = [begin] if name in required else [begin, *ways]
            after = f"({self._comma} {pair}){optional} {after}"
        inner = f"({' | '.join(ways)}){'' if required else '?'}" if ways else ""
        return f'"{{" {inner} "}}"'

    def _rule(self, body: str) -> str:
        """A rule of its own."""
        self.bodies.append(body)
        return f"\0v{len(self.bodies) - 1}"

    def _value(self, value: object) -> str:
        if isinstance(value, Mapping | list):
            raise UnsupportedSchema
        return json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False)
