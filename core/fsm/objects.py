"""Patterns of objects: their properties in the order of the schema, and those beyond.

An object keeps to the properties that are spoken of, unless `additionalProperties` says what others
are. Names have one spelling, so that none of them repeats a property by an escape; where names are
open, one of them may come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from .chars import Ranges, complement, single, union
from .ecma import read_pattern
from .facts import All, Facts, Literal, Objects, is_found
from .lists import Entry, Layout, enclosed
from .members import Unfold, fits
from .refusals import Unsayable
from .spelling import alternatives, common, literal, one_char, value_text
from .strings import ANY_CHAR, ANYTHING, first_chars, pattern

Write: TypeAlias = Callable[[All], str | None]
Texts: TypeAlias = Callable[[Facts], str | None]


def object_pattern(
    objects: Objects,
    write: Write,
    unfold: Unfold,
    name_of: Texts,
    leaf: Callable[[str], str],
    layout: Layout,
) -> str | None:
    """The objects of which this is said; None: there are none.

    write: the pattern of a value that meets all of some nodes; None where there is none.
    name_of: the pattern between the quotes of the strings of some facts.
    leaf: a pattern as it is to be written.
    """
    if not (objects.properties or objects.patterns) and objects.rest is None and objects.high != 0:
        raise Unsayable("objects of which properties or additionalProperties are stated")
    properties = {**objects.properties, **{n: objects.value(n) for n in objects.required}}
    allowed = {name: all_ for name, all_ in properties.items() if _is_name(name, objects, unfold)}
    fixed = {name: write(all_) for name, all_ in allowed.items()}
    if any(fixed.get(name) is None for name in objects.required):
        return None
    entries = [
        Entry(
            f"{leaf(literal(value_text(name)))}{layout.colon}{value}", int(name in objects.required)
        )
        for name, value in fixed.items()
        if value is not None
    ]
    others = [
        leaf(f'"{key}"') + layout.colon + value
        for key, value in _others(objects, tuple(properties), write, unfold, name_of)
    ]
    return _counted(entries, others, objects.low, objects.high, layout.comma)


def _is_name(name: str, objects: Objects, unfold: Unfold) -> bool:
    """Whether propertyNames allows this name."""
    text = Literal("string", value_text(name), name)
    return not objects.names or any(_holds(facts, text) for facts in unfold(objects.names))


def _holds(facts: Facts, text: Literal) -> bool:
    is_listed = facts.values is None or text.key in {value.key for value in facts.values}
    return is_listed and fits(facts, text)


def _counted(
    entries: list[Entry], others: list[str], low: int, high: int | None, comma: str
) -> str | None:
    """The object of these entries, with as many properties as are allowed."""
    num_required = sum(entry.low for entry in entries)
    if (high is not None and (num_required > high or low > high)) or (
        not others and low > len(entries)
    ):
        return None
    if high == num_required:
        entries, others = [entry for entry in entries if entry.low], []
    elif high is not None and not others and high < len(entries):
        raise Unsayable("maxProperties that leaves all optional properties in, or all out")
    elif high is not None and others and num_required < len(entries):
        raise Unsayable("maxProperties beside additionalProperties where all others are required")
    needs_one = low > num_required
    if not others and low == len(entries):
        entries, needs_one = [entry._replace(low=1) for entry in entries], False
    elif low > 1 and low > num_required:
        raise Unsayable("minProperties of 1, or of what is required")
    if others:
        most = None if high is None else high - num_required
        entries = [*entries, Entry(alternatives(others), 0, most)]
    return enclosed("{}", entries, comma, needs_one)


def _others(
    objects: Objects,
    names: tuple[str, ...],
    write: Write,
    unfold: Unfold,
    name_of: Texts,
) -> list[tuple[str, str]]:
    """Properties that are not named: the pattern of the name, between quotes, and the value's."""
    if objects.high is not None and objects.high <= len(objects.required):
        return []
    found: list[tuple[str, str]] = []
    if objects.patterns:
        found += _by_pattern(objects, names, write)
    if objects.rest is None or not unfold(objects.rest):
        return found
    if objects.patterns:
        raise Unsayable("additionalProperties of false beside patternProperties")
    value = write(objects.rest)
    if value is None:
        return found
    keys = _keys(objects.names, names, unfold, name_of) if objects.names else [other_than(names)]
    return [(key, value) for key in keys]


def _by_pattern(objects: Objects, names: tuple[str, ...], write: Write) -> list[tuple[str, str]]:
    """Properties of which patternProperties speaks: one pattern, or several that agree."""
    if objects.names:
        raise Unsayable("either propertyNames or patternProperties")
    if len({tuple(node.path for node in all_) for all_ in objects.patterns.values()}) > 1:
        _check_apart(objects.patterns)
    found: list[tuple[str, str]] = []
    for source, nodes in objects.patterns.items():
        value = write(nodes)
        if value is None:
            continue
        is_total = read_pattern(source) in _TOTAL
        if not is_total and any(is_found(source, name) for name in names):
            raise Unsayable("patternProperties that no name in properties fits")
        key = other_than(names) if is_total else pattern(read_pattern(source))
        found.append((key, value))
    return found


def _check_apart(patterns: Mapping[str, All]) -> None:
    """Raise Unsayable unless each pattern begins with characters of its own."""
    seen: Ranges = ()
    for source in patterns:
        first = first_chars(read_pattern(source))
        if first is None or common(first, seen):
            raise Unsayable("patternProperties that agree, or begin with different characters")
        seen = union([*seen, *first])


def _keys(names: All, taken: tuple[str, ...], unfold: Unfold, name_of: Texts) -> list[str]:
    """The names that propertyNames allows beside those that are taken."""
    keys: list[str] = []
    for facts in unfold(names):
        text = Facts(types=("string",)).meet(facts)
        if text.values is not None:
            keys += [
                literal(v.text[1:-1]) for v in text.values if fits(text, v) and v.value not in taken
            ]
            continue
        if any(fits(text, Literal("string", value_text(name), name)) for name in taken):
            raise Unsayable("propertyNames that no name in properties fits")
        key = name_of(text)
        keys += [] if key is None else [key]
    return keys


def other_than(names: tuple[str, ...]) -> str:
    """A pattern, between quotes, of every text but these."""
    if not names:
        return pattern(ANYTHING)
    follow: dict[str, set[str]] = {"": set()}
    for name in names:
        for i, char in enumerate(name):
            follow.setdefault(name[:i], set()).add(char)
        follow.setdefault(name, set())
    if sum(map(len, follow)) > MAX_NAMES_SIZE:
        raise Unsayable(f"additionalProperties beside names of {MAX_NAMES_SIZE} characters in all")
    apart = [
        _spelled(prefix) + one_char(common(ANY_CHAR.ranges, _without(chars)))
        for prefix, chars in follow.items()
    ]
    short = [_spelled(prefix) for prefix in follow if prefix and prefix not in names]
    longer = alternatives(apart) + pattern(ANYTHING)
    whole = alternatives([longer, *short]) if short else longer
    return whole if "" in names else f"(?:{whole})?"


def _spelled(text: str) -> str:
    return literal(value_text(text)[1:-1])


def _without(chars: set[str]) -> tuple[tuple[int, int], ...]:
    return complement(union(pair for char in chars for pair in single(char)))


MAX_NAMES_SIZE = 100_000
_TOTAL = tuple(read_pattern(source) for source in ("", "^", ".*", "^.*", "^.*$"))
