"""What a schema says about a value, keyword by keyword, and what two schemas say together.

Knows nothing of how a schema is read or written down. Schemas of parts (of a property, of an item)
stay unread: a part must meet *all* of a tuple of places in the document. `None` stands for a kind
of value, or a keyword, of which nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeAlias, TypeVar

from .ecma import read_pattern
from .intervals import Interval
from .refusals import Unsayable
from .strings import holds

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
MAX_MATCHES = 400
T = TypeVar("T")


class Node(NamedTuple):
    """A schema and the JSON pointer of its place, which tells it from others."""

    schema: Mapping[str, Any] | bool
    path: str


All: TypeAlias = tuple[Node, ...]


class Literal(NamedTuple):
    """An allowed value: its kind and compact text; two values are equal where their keys are."""

    kind: str
    text: str
    value: Any

    @property
    def key(self) -> tuple[str, Any]:
        """Equal for equal values, as JSON Schema has it: 1 and 1.0 are, 1 and true are not."""
        is_number = self.kind in ("integer", "number")
        return ("number", self.value) if is_number else (self.kind, self.text)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Bounds, the integer of which every number is a multiple, and formats to be met."""

    interval: Interval = field(default_factory=Interval)
    multiple: int | None = None
    formats: tuple[str, ...] = ()

    def meet(self, other: Numbers) -> Numbers:
        """What both say."""
        multiples = [m for m in (self.multiple, other.multiple) if m is not None]
        return Numbers(
            self.interval.meet(other.interval),
            math.lcm(*multiples) if multiples else None,
            _both(self.formats, other.formats),
        )


@dataclass(frozen=True, slots=True)
class Strings:
    """Length in characters, patterns to be found, formats to be met."""

    low: int = 0
    high: int | None = None
    patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()

    def meet(self, other: Strings) -> Strings:
        """What both say."""
        return Strings(
            max(self.low, other.low),
            least(self.high, other.high),
            _both(self.patterns, other.patterns),
            _both(self.formats, other.formats),
        )


@dataclass(frozen=True, slots=True)
class Arrays:
    """Length, what the first items must meet, and what the rest must."""

    prefix: tuple[All, ...] = ()
    rest: All | None = None
    low: int = 0
    high: int | None = None
    is_unique: bool = False

    def item(self, i: int) -> All:
        """What item `i` must meet."""
        return self.prefix[i] if i < len(self.prefix) else self.rest or ()

    def meet(self, other: Arrays) -> Arrays:
        """What both say."""
        length = max(len(self.prefix), len(other.prefix))
        return Arrays(
            tuple(_both(self.item(i), other.item(i)) for i in range(length)),
            _maybe_both(self.rest, other.rest),
            max(self.low, other.low),
            least(self.high, other.high),
            self.is_unique or other.is_unique,
        )


@dataclass(frozen=True, slots=True)
class Objects:
    """Number of properties, their names, and what their values must meet.

    properties: by name; what `patterns` say of such a name is in it.
    patterns: by the regular expression that is found in the name.
    rest: of every other property; None: nothing was said of them.
    names: what every name must meet, as a string.
    """

    properties: Mapping[str, All] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    patterns: Mapping[str, All] = field(default_factory=dict)
    rest: All | None = None
    names: All = ()
    low: int = 0
    high: int | None = None

    def value(self, name: str) -> All:
        """What the value of this property must meet."""
        if name in self.properties:
            return self.properties[name]
        found = [p for p in self.patterns if is_found(p, name)]
        if found:
            return _without_twins(tuple(node for p in found for node in self.patterns[p]))
        return self.rest or ()

    def meet(self, other: Objects) -> Objects:
        """What both say; a name that patterns of one side fit meets the other side's rest too."""
        names = dict.fromkeys((*self.properties, *other.properties))
        check_matches(len(names), len(self.patterns) + len(other.patterns))
        patterns = {p: _both(a, other.rest or ()) for p, a in self.patterns.items()}
        for p, a in other.patterns.items():
            patterns[p] = _both(patterns.get(p, ()), _both(a, self.rest or ()))
        return Objects(
            {name: _both(self.value(name), other.value(name)) for name in names},
            _both(self.required, other.required),
            patterns,
            _maybe_both(self.rest, other.rest),
            _both(self.names, other.names),
            max(self.low, other.low),
            least(self.high, other.high),
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is said about one value."""

    types: tuple[str, ...] | None = None
    values: tuple[Literal, ...] | None = None
    numbers: Numbers | None = None
    strings: Strings | None = None
    arrays: Arrays | None = None
    objects: Objects | None = None

    def meet(self, other: Facts) -> Facts:
        """What both say."""
        return Facts(
            _common_types(self.types, other.types),
            _common_values(self.values, other.values),
            _meet(self.numbers, other.numbers),
            _meet(self.strings, other.strings),
            _meet(self.arrays, other.arrays),
            _meet(self.objects, other.objects),
        )

    def kinds(self) -> tuple[str, ...]:
        """The types that a value may have: those that are named, or else, where keywords of a type
        stand alone, those that they are about; none where nothing tells."""
        if self.types is not None:
            return self.types
        about = {"numbers": "number", "strings": "string", "arrays": "array", "objects": "object"}
        return tuple(
            about[f.name]
            for f in fields(self)
            if f.name in about and getattr(self, f.name) is not None
        )


def least(one: int | None, other: int | None) -> int | None:
    """The smaller of two limits, either of which may be missing."""
    return min((limit for limit in (one, other) if limit is not None), default=None)


def check_matches(num_names: int, num_patterns: int) -> None:
    """Raise Unsayable where too many names would have to be looked for patterns."""
    if num_names * num_patterns > MAX_MATCHES:
        raise Unsayable(f"at most {MAX_MATCHES} pairs of properties and patternProperties")


def is_found(source: str, name: str) -> bool:
    """Whether a pattern is found in a property's name, in every dialect of patterns."""
    if not (name.isascii() and (name.isprintable() or not name)):
        raise Unsayable("patterns for properties whose names are printable ASCII")
    return holds(read_pattern(source), name)


def _meet(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one.meet(other)


def _both(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    if not (one and other):
        return one or other
    return _without_twins((*one, *other))


def _without_twins(items: tuple[T, ...]) -> tuple[T, ...]:
    keys = {(item.path if isinstance(item, Node) else item): item for item in items}
    return tuple(keys.values())


def _maybe_both(one: All | None, other: All | None) -> All | None:
    return other if one is None else one if other is None else _both(one, other)


def _common_types(
    one: tuple[str, ...] | None, other: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    common = [t for t in one if t in other or (t == "integer" and "number" in other)]
    if "number" in one and "integer" in other and "integer" not in common:
        common.append("integer")
    return tuple(common)


def _common_values(
    one: tuple[Literal, ...] | None, other: tuple[Literal, ...] | None
) -> tuple[Literal, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    keys = {literal.key for literal in other}
    return tuple(literal for literal in one if literal.key in keys)
