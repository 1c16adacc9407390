"""The facts of a schema about a value, keyword by keyword, and their intersections.

Knows nothing of how a schema is read or written down. Schemas of parts (of a property, of an item)
stay unread: a part must meet *all* of a tuple of places in the document. `None` stands for a kind
of value, or a keyword, that is not constrained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..regex.errors import UnsupportedSchema, derived
from .patterns.intervals import Interval
from .patterns.lookaround import is_in

MAX_MATCHES = 400
_ABOUT = {"number": "numbers", "integer": "numbers", "string": "strings"}  # the facts of a type
_ABOUT |= {"array": "arrays", "object": "objects"}
T = TypeVar("T")


class Node(NamedTuple):
    """A schema and the JSON pointer of its place.

    is_not: the schema must not be met.
    """

    schema: Mapping[str, Any] | bool
    path: str
    is_not: bool = False

    @property
    def key(self) -> str:
        """Identifies this node; `errors.shown` gives its JSON pointer."""
        return derived(self.path, "not") if self.is_not else self.path

    def negated(self) -> Node:
        """The node of all values that do not meet this one."""
        return self._replace(is_not=not self.is_not)


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
    """Bounds, what every number is a multiple of, and formats to be met.

    unlike: of which no number may be a multiple.
    """

    interval: Interval = field(default_factory=Interval)
    multiple: Fraction | None = None
    formats: tuple[str, ...] = ()
    unlike: tuple[Fraction, ...] = ()

    def intersect(self, other: Numbers) -> Numbers:
        """What both say."""
        return Numbers(
            self.interval.intersect(other.interval),
            _merged(self.multiple, other.multiple, common_multiple),
            _both(self.formats, other.formats),
            _both(self.unlike, other.unlike),
        )

    def is_empty(self) -> bool:
        """Whether it is plain that no number meets this."""
        return self.interval.is_empty()


@dataclass(frozen=True, slots=True)
class Strings:
    """Length in characters, patterns to be found, formats to be met.

    unlike: patterns that must not be found. others: texts that are excluded.
    """

    low: int = 0
    high: int | None = None
    patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def intersect(self, other: Strings) -> Strings:
        """What both say."""
        return Strings(
            max(self.low, other.low),
            _merged(self.high, other.high, min),
            _both(self.patterns, other.patterns),
            _both(self.formats, other.formats),
            _both(self.unlike, other.unlike),
            _both(self.others, other.others),
        )

    def is_empty(self) -> bool:
        """Whether it is plain that no string meets this."""
        return self.high is not None and self.low > self.high


class Contains(NamedTuple):
    """From `low` to `high` items must meet these nodes; None: no limit."""

    nodes: All
    low: int = 1
    high: int | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Tells this from others."""
        return (*(node.key for node in self.nodes), self.low, self.high)


@dataclass(frozen=True, slots=True)
class Arrays:
    """Length, what the first items must meet, and what the rest must.

    contains: what some of the items must meet.
    num_unseen: so many of the last of `prefix` only a complement speaks of: they are not evaluated.
    is_derived: what `rest` says comes from a complement, at least in part.
    """

    prefix: tuple[All, ...] = ()
    rest: All | None = None
    low: int = 0
    high: int | None = None
    is_unique: bool = False
    contains: tuple[Contains, ...] = ()
    num_unseen: int = 0
    is_derived: bool = False

    @property
    def num_seen(self) -> int:
        """How many of `prefix` are evaluated."""
        return len(self.prefix) - self.num_unseen

    def silent(self) -> Arrays:
        """The same as a part of a complement, which evaluates nothing."""
        is_derived = self.is_derived or self.rest is not None
        return replace(self, num_unseen=len(self.prefix), is_derived=is_derived)

    def item(self, i: int) -> All:
        """What item `i` must meet."""
        return self.prefix[i] if i < len(self.prefix) else self.rest or ()

    def intersect(self, other: Arrays) -> Arrays:
        """What both say."""
        length = max(len(self.prefix), len(other.prefix))
        return Arrays(
            tuple(_both(self.item(i), other.item(i)) for i in range(length)),
            _merged(self.rest, other.rest, _both),
            max(self.low, other.low),
            _merged(self.high, other.high, min),
            self.is_unique or other.is_unique,
            _both(self.contains, other.contains),
            length - max(self.num_seen, other.num_seen),
            self.is_derived or other.is_derived,
        )

    def is_empty(self) -> bool:
        """Whether it is plain that no array meets this."""
        limits = ((self.low, self.high), *((part.low, part.high) for part in self.contains))
        if any(high is not None and low > high for low, high in limits):
            return True
        needed = (part.nodes for part in self.contains if part.low) if not self.prefix else ()
        return any(_is_never((*nodes, *(self.rest or ()))) for nodes in needed)


@dataclass(frozen=True, slots=True)
class Objects:
    """Number of properties, their names, and what their values must meet.

    properties: by name; what `patterns` say of such a name is in it.
    patterns: by the regular expression that is found in the name.
    rest: of every other property; None: not constrained.
    names: what every name must meet, as a string.
    unseen: of `properties`, those that only a complement speaks of: they are not evaluated.
    is_derived: what `patterns` or `rest` say comes from a complement, at least in part.
    """

    properties: Mapping[str, All] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    patterns: Mapping[str, All] = field(default_factory=dict)
    rest: All | None = None
    names: All = ()
    low: int = 0
    high: int | None = None
    unseen: frozenset[str] = frozenset()
    is_derived: bool = False

    def silent(self) -> Objects:
        """The same as a part of a complement, which evaluates nothing."""
        is_derived = self.is_derived or self.rest is not None or bool(self.patterns)
        unseen = self.unseen if is_derived else frozenset(self.properties)
        return replace(self, unseen=unseen, is_derived=is_derived)

    @property
    def is_open(self) -> bool:
        """Whether any properties are allowed."""
        return self.rest is None and not self.patterns and self.properties.keys() <= self.unseen

    def value(self, name: str) -> All:
        """What the value of this property must meet."""
        if name in self.unseen:
            return distinct((*self.properties[name], *self._undeclared(name)))
        return self.properties[name] if name in self.properties else self._undeclared(name)

    def is_empty(self) -> bool:
        """Whether it is plain that no object meets this."""
        if self.high is not None and max(self.low, len(self.required)) > self.high:
            return True
        return any(_is_never(self.properties.get(name, ())) for name in self.required)

    def _undeclared(self, name: str) -> All:
        found = [p for p in self.patterns if is_found(p, name)]
        if found:
            return distinct(tuple(node for p in found for node in self.patterns[p]))
        return self.rest or ()

    def _kept(self, name: str, unseen: frozenset[str]) -> All:
        """What a meeting keeps of this property; of those unseen without what patterns and
        `rest` say, which it keeps by itself."""
        return self.properties.get(name, ()) if name in unseen else self.value(name)

    def intersect(self, other: Objects) -> Objects:
        """What both say; a name that patterns of one side fit meets the other side's rest too."""
        names = dict.fromkeys((*self.properties, *other.properties))
        check_matches(len(names), len(self.patterns) + len(other.patterns))
        patterns = {p: _both(a, other.rest or ()) for p, a in self.patterns.items()}
        for p, a in other.patterns.items():
            patterns[p] = _both(patterns.get(p, ()), _both(a, self.rest or ()))
        seen = (self.properties.keys() - self.unseen) | (other.properties.keys() - other.unseen)
        unseen = frozenset(names.keys() - seen)
        return Objects(
            {n: _both(self._kept(n, unseen), other._kept(n, unseen)) for n in names},
            _both(self.required, other.required),
            patterns,
            _merged(self.rest, other.rest, _both),
            _both(self.names, other.names),
            max(self.low, other.low),
            _merged(self.high, other.high, min),
            unseen,
            self.is_derived or other.is_derived,
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts about one value."""

    types: tuple[str, ...] | None = None
    values: tuple[Literal, ...] | None = None
    numbers: Numbers | None = None
    strings: Strings | None = None
    arrays: Arrays | None = None
    objects: Objects | None = None

    def intersect(self, other: Facts) -> Facts:
        """What both say."""
        return Facts(
            _merged(self.types, other.types, _common_types),
            _merged(self.values, other.values, _common_values),
            _merged(self.numbers, other.numbers, Numbers.intersect),
            _merged(self.strings, other.strings, Strings.intersect),
            _merged(self.arrays, other.arrays, Arrays.intersect),
            _merged(self.objects, other.objects, Objects.intersect),
        )

    def silent(self) -> Facts:
        """The same as a part of a complement, which evaluates no property and no item."""
        objects = None if self.objects is None else self.objects.silent()
        arrays = None if self.arrays is None else self.arrays.silent()
        return replace(self, objects=objects, arrays=arrays)

    def is_empty(self) -> bool:
        """Whether it is plain that no value meets this."""
        if self.values is not None and not self.values:
            return True
        return self.types is not None and not self._possible()

    def pruned(self) -> Facts:
        """The same without types of which it is plain that no value meets this."""
        if self.types is None:
            return self
        kept = self._possible()
        return self if kept == self.types else replace(self, types=kept)

    def _possible(self) -> tuple[str, ...]:
        return tuple(
            kind
            for kind in self.types or ()
            if (facts := getattr(self, _ABOUT.get(kind, ""), None)) is None or not facts.is_empty()
        )

    def narrowed(self) -> Facts:
        """The same for values of the types that it is about; values that are listed stay."""
        if self.types is not None or self.values is not None:
            return self
        return replace(self, types=self.kinds() or None)

    def kinds(self) -> tuple[str, ...]:
        """The types that a value may have: those that are named, or else, where keywords of a type
        stand alone, those that they are about; none where nothing tells."""
        if self.types is not None:
            return self.types
        return tuple(
            kind
            for kind, name in _ABOUT.items()
            if kind != "integer" and getattr(self, name) is not None
        )


def _is_never(nodes: All) -> bool:
    """Whether it is plain that no value meets all of these: one is false, or excludes another."""
    if any(isinstance(node.schema, bool) and node.schema == node.is_not for node in nodes):
        return True
    excluded = {node.path for node in nodes if node.is_not}
    return bool(excluded) and any(node.path in excluded for node in nodes if not node.is_not)


def common_multiple(*numbers: Fraction) -> Fraction:
    """The least number of which all of these, above 0, are divisors."""
    below = math.lcm(*(number.denominator for number in numbers))
    return Fraction(math.lcm(*(int(number * below) for number in numbers)), below)


def check_matches(num_names: int, num_patterns: int) -> None:
    """Raise UnsupportedSchema where too many names would have to be looked for patterns."""
    if num_names * num_patterns > MAX_MATCHES:
        raise UnsupportedSchema(f"at most {MAX_MATCHES} pairs of properties and patternProperties")


def is_found(source: str, name: str) -> bool:
    """Whether a pattern is found in a property's name, in every dialect of patterns."""
    if not (name.isascii() and (name.isprintable() or not name)):
        raise UnsupportedSchema("patterns for properties whose names are printable ASCII")
    return is_in(source, name)


def _merged(one: T | None, other: T | None, both: Callable[[T, T], T]) -> T | None:
    """What both say, or the one that says anything."""
    return other if one is None else one if other is None else both(one, other)


def _both(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    if not (one and other):
        return one or other
    return distinct((*one, *other))


def distinct(items: tuple[T, ...]) -> tuple[T, ...]:
    """The items, each once."""
    keys = {(item.key if isinstance(item, Node | Contains) else item): item for item in items}
    return tuple(keys.values())


def _common_types(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    common = [t for t in one if t in other or (t == "integer" and "number" in other)]
    if "number" in one and "integer" in other and "integer" not in common:
        common.append("integer")
    return tuple(common)


def _common_values(one: tuple[Literal, ...], other: tuple[Literal, ...]) -> tuple[Literal, ...]:
    keys = {literal.key for literal in other}
    return tuple(literal for literal in one if literal.key in keys)
