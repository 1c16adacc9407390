"""Whether facts allow a value, and whether two sets of facts can share a value.

What `oneOf` needs: an answer that meets one option must meet no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..regex.errors import InvalidSchema, NotRegular, UnsupportedSchema
from .complement import absent
from .facts import All, Arrays, Facts, Literal, Node, Numbers, Objects, Strings, is_found
from .patterns.ecma import read_pattern
from .patterns.spelling import kind_of, value_key, value_text
from .patterns.strings import holds

MAX_MATCHES = 100
MAX_DEPTH = 3
MAX_SHOWN = 40  # characters of a text


class Unfold(Protocol):
    """Reads the facts of a value that meets all of some nodes, one set for each way."""

    def __call__(self, nodes: All, *, is_wide: bool = False) -> tuple[Facts, ...]:
        """is_wide: options of oneOf may overlap, so that no value is missed."""


def fits(
    facts: Facts, literal: Literal, unfold: Unfold | None = None, is_wide: bool = False
) -> bool:
    """Whether a value is allowed, formats and enums aside.

    unfold: to look into objects and arrays, as they are read with `is_wide` or without. Raises
    UnsupportedSchema where that is not known.
    """
    kinds = {"integer", "number"} if literal.kind == "integer" else {literal.kind}
    if facts.types is not None and not kinds & set(facts.types):
        return False
    match literal.kind:
        case "integer" | "number":
            return facts.numbers is None or _fits_number(facts.numbers, literal)
        case "string":
            return facts.strings is None or fits_string(facts.strings, literal.value)
        case "array" if facts.arrays is not None:
            return _Inside(unfold, is_wide).fits_array(facts.arrays, literal.value)
        case "object" if facts.objects is not None:
            return _Inside(unfold, is_wide).fits_object(facts.objects, literal.value)
    return True


def holds_value(
    facts: Facts, literal: Literal, unfold: Unfold | None = None, is_wide: bool = False
) -> bool:
    """As `fits`, enums included."""
    is_listed = facts.values is None or literal.key in {it.key for it in facts.values}
    return is_listed and fits(facts, literal, unfold, is_wide)


class _Inside(NamedTuple):
    """Looks into objects and arrays."""

    unfold: Unfold | None
    is_wide: bool

    def fits_array(self, arrays: Arrays, items: Sequence[Any]) -> bool:
        """Whether these facts allow an array."""
        if len(items) < arrays.low or (arrays.high is not None and len(items) > arrays.high):
            return False
        if arrays.is_unique and len({*map(value_key, items)}) < len(items):
            return False
        if not all(self.meets(arrays.item(i), item) for i, item in enumerate(items)):
            return False
        for nodes, low, high in arrays.contains:
            count = sum(self.meets(nodes, item) for item in items)
            if self.is_wide and high is not None and count > low:
                raise UnsupportedSchema("arrays whose items are counted one way")
            if count < low or (high is not None and count > high):
                return False
            if high is not None and not self.is_wide:
                wide = self._replace(is_wide=True)
                if sum(wide.meets(nodes, item) for item in items) > count:
                    raise UnsupportedSchema("arrays whose items are counted one way")
        return True

    def fits_object(self, objects: Objects, value: Mapping[str, Any]) -> bool:
        """Whether these facts allow an object."""
        if len(value) < objects.low or (objects.high is not None and len(value) > objects.high):
            return False
        return all(name in value for name in objects.required) and all(
            self.meets(objects.names, name) and self.meets(objects.value(name), item)
            for name, item in value.items()
        )

    def meets(self, nodes: All, value: Any) -> bool:
        """Whether a value meets all of these."""
        if not nodes:
            return True
        if self.unfold is None:
            raise UnsupportedSchema("enum and const beside other keywords for single values only")
        literal = Literal(kind_of(value), value_text(value), value)
        ways = self.unfold(nodes, is_wide=True) if self.is_wide else self.unfold(nodes)
        return any(holds_value(facts, literal, self.unfold, self.is_wide) for facts in ways)


def parted(one: Facts, other: Facts, unfold: Unfold, depth: int = 0) -> Facts | None:
    """Some of `one` that shares no value with `other`; None if they cannot be distinguished.

    `one` is as it will be written: an object has no properties but those that are spoken of. The
    result shares no value with `other` whatever it is met with later.
    `other` must be read wide: no value that it allows may be missing from it. depth: of the places
    in which values are being distinguished.
    """
    try:
        _check_matches(one, other)
        if one.values is not None:
            common = one.intersect(Facts(values=other.values)).values or ()
            shared = {value.key for value in common if fits(other, value, unfold, True)}
            kept = tuple(value for value in one.values if value.key not in shared)
            return replace(one, values=kept) if shared else one
        if other.values is not None and not any(
            fits(one, value, unfold, True) for value in other.values
        ):
            return one
    except UnsupportedSchema:
        return None
    if not one.kinds() and one.types is None:
        return None
    if one.types is None:
        one = one.narrowed()
    for kind in one.kinds():
        smaller = _parted_kind(kind, one, other, unfold, depth + 1)
        if smaller is None:
            return None
        one = smaller
    return one


def _check_matches(one: Facts, other: Facts) -> None:
    has_pattern = any(facts.strings and facts.strings.patterns for facts in (one, other))
    if has_pattern and len(one.values or ()) + len(other.values or ()) > MAX_MATCHES:
        raise UnsupportedSchema(f"at most {MAX_MATCHES} values beside a pattern")


def _fits_number(numbers: Numbers, literal: Literal) -> bool:
    number = Fraction(literal.text)
    is_multiple = numbers.multiple is None or number % numbers.multiple == 0
    is_multiple &= all(number % multiple for multiple in numbers.unlike)
    return is_multiple and numbers.interval.holds(Decimal(literal.text))


def fits_string(strings: Strings, text: str) -> bool:
    """Whether these facts allow the text, formats aside. Raises UnsupportedSchema if that is not
    known."""
    if len(text) < strings.low or (strings.high is not None and len(text) > strings.high):
        return False
    if text in strings.others:
        return False
    return all(_is_found(source, text) for source in strings.patterns) and not any(
        _is_found(source, text, is_wide=True) for source in strings.unlike
    )


def _is_found(source: str, text: str, is_wide: bool = False) -> bool:
    """Whether a pattern is found in a text. Raises UnsupportedSchema if the dialects of patterns
    differ in that."""
    found = holds(read_pattern(source, is_wide), text)
    if found is is_wide and not (text.isascii() and text.isprintable()):
        try:
            is_plain = holds(read_pattern(source, not is_wide), text) is found
        except InvalidSchema:
            is_plain = False
        if not is_plain:
            raise UnsupportedSchema(
                f"a pattern in place of {source!r} that `re` and ECMA-262 read alike for"
                f" {text[:MAX_SHOWN]!r} (list characters, as in [a-z\u00e4], in place of \\w, \\d,"
                " \\s, \\b or a dot)"
            )
    return found


def _parted_kind(kind: str, one: Facts, other: Facts, unfold: Unfold, depth: int) -> Facts | None:
    overlap = {"integer": {"integer", "number"}, "number": {"integer", "number"}}.get(kind, {kind})
    if other.types is not None and not overlap & set(other.types):
        return one
    if kind in ("boolean", "null") and other.values is None:
        kinds = tuple(k for k in one.kinds() if k != kind)
        return replace(one, types=kinds)
    if kind in ("integer", "number") and one.numbers and other.numbers:
        return one if one.numbers.intersect(other.numbers).interval.is_empty() else None
    if kind == "string" and one.strings and other.strings:
        return one if one.strings.intersect(other.strings).is_empty() else None
    if kind == "array" and one.arrays and other.arrays:
        return _parted_arrays(one, one.arrays, other.arrays, unfold, depth)
    if kind == "object" and one.objects and other.objects:
        objects = _parted_objects(one.objects, other.objects, unfold, depth)
        if objects is None or objects is one.objects:
            return None if objects is None else one
        return replace(one, objects=objects)
    return None


def _parted_arrays(
    facts: Facts, one: Arrays, other: Arrays, unfold: Unfold, depth: int
) -> Facts | None:
    if one.intersect(other).is_empty():
        return facts
    if not _are_disjoint(one.item(0), other.item(0), unfold, depth):
        return None
    return facts if one.low else replace(facts, arrays=replace(one, low=1))


def _parted_objects(one: Objects, other: Objects, unfold: Unfold, depth: int) -> Objects | None:
    """By a name that only one of them has, or by one whose values are apart."""
    is_sealed = one.rest is not None and not unfold(one.rest)
    if is_sealed or (one.rest is None and not one.is_open):
        for name in other.required:
            if name not in one.properties and not _is_patterned(one, name):
                return one if is_sealed else one.intersect(absent(name, "# in oneOf"))
    for name in sorted(one.properties, key=partial(_cost, one, unfold)):
        if _are_distinct(_value(one, name), _value(other, name), unfold, depth):
            is_there = name in one.required
            return one if is_there else replace(one, required=(*one.required, name))
    for name in other.required:
        if name in one.properties and name not in one.required:
            never = (Node(False, f"{one.properties[name][0].path} in oneOf"),)
            return replace(one, properties={**one.properties, name: never})
    return None


def _is_patterned(objects: Objects, name: str) -> bool:
    """Whether patternProperties may speak of this name."""
    try:
        return any(is_found(source, name) for source in objects.patterns)
    except UnsupportedSchema:
        return True


def _value(objects: Objects, name: str) -> All:
    """What is known that the value of this property must meet."""
    try:
        return objects.value(name)
    except UnsupportedSchema:
        return objects.properties.get(name, ())


def _cost(objects: Objects, unfold: Unfold, name: str) -> tuple[bool, bool]:
    """In which order properties are asked: those required first, and of these plain values."""
    try:
        ways = unfold(_value(objects, name)) if name in objects.required else ()
    except NotRegular:
        ways = ()
    return name not in objects.required, not ways or any(facts.values is None for facts in ways)


def _are_distinct(one: All, other: All, unfold: Unfold, depth: int) -> bool:
    """Whether some value of a property tells; not where that leads back to where it was asked."""
    if not one or not other:
        return False
    try:
        return depth < MAX_DEPTH and bool(unfold(one)) and _are_disjoint(one, other, unfold, depth)
    except NotRegular:
        return False


def _are_disjoint(one: All, other: All, unfold: Unfold, depth: int) -> bool:
    return all(
        parted(a, b, unfold, depth) is a for a in unfold(one) for b in unfold(other, is_wide=True)
    )
