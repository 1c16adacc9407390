"""Patterns of objects: their properties in the order of the schema, and those beyond.

An object keeps to the properties that are spoken of, unless `additionalProperties` says what others
are. Names have one spelling, so that none of them repeats a property by an escape; where names are
open, one of them may come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, combinations
from typing import NamedTuple, TypeAlias

from ..regex.chars import Ranges, complement, single, union
from ..regex.errors import InvalidSchema, UnsupportedSchema
from ..regex.tree import first_chars
from .facts import All, Facts, Literal, Objects, Strings, distinct, is_found
from .members import Unfold, fits, holds_value
from .patterns.automata import common_texts
from .patterns.ecma import read_pattern
from .patterns.lists import Count, Entry, Layout, counted, enclosed
from .patterns.lookaround import parts_of
from .patterns.spelling import alternatives, common, literal, one_char, value_text
from .patterns.strings import ANY_CHAR, ANYTHING, pattern, repeated

Write: TypeAlias = Callable[[All], str | None]
KeyOf: TypeAlias = Callable[[Strings], str | None]
NumberOf: TypeAlias = Callable[[Strings], int | None]
MAX_OVERLAPPING = 5
MAX_COMPARED = 24  # patterns
MAX_COUNTED = 4_000  # properties times the number of those that may be there


def object_pattern(
    objects: Objects,
    write: Write,
    unfold: Unfold,
    key_of: KeyOf,
    number_of: NumberOf,
    style: Style,
) -> str | None:
    """The objects that these facts allow; None: there are none.

    write: the pattern of a value that meets all of some nodes; None where there is none.
    key_of: the pattern of the names that facts allow, with quotes; None if there is none.
    number_of: how many names facts allow; None: many.
    """
    if objects.is_open and objects.high != 0:
        raise UnsupportedSchema("objects of which properties or additionalProperties are stated")
    properties = {name: objects.value(name) for name in (*objects.properties, *objects.required)}
    allowed = {name: all_ for name, all_ in properties.items() if _is_name(name, objects, unfold)}
    if any(name not in allowed for name in objects.required):
        return None
    allowed |= _listed(objects, tuple(properties), unfold)
    fixed = {name: write(all_) for name, all_ in allowed.items()}
    if any(fixed.get(name) is None for name in objects.required):
        return None
    colon = style.layout.colon
    entries = [
        Entry(
            f"{style.leaf(literal(value_text(name)))}{colon}{value}", int(name in objects.required)
        )
        for name, value in fixed.items()
        if value is not None
    ]
    found = _others(objects, tuple(properties), write, unfold, key_of)
    most: int | None = None
    if found and (style.is_distinct or objects.low > 1):
        numbers = [number_of(strings) for strings, _, _ in found]
        most = None if None in numbers else sum(number or 0 for number in numbers)
    rest = alternatives([key + colon + value for _, key, value in found]) if found else None
    others = None if rest is None else Entry(rest, 0, most)
    return _enclosed(entries, others, objects.low, objects.high, style)


def _is_name(name: str, objects: Objects, unfold: Unfold) -> bool:
    """Whether propertyNames allows this name."""
    text = Literal("string", value_text(name), name)
    return not objects.names or any(holds_value(facts, text) for facts in unfold(objects.names))


def _listed(objects: Objects, taken: tuple[str, ...], unfold: Unfold) -> dict[str, All]:
    """Other properties whose names propertyNames lists, with what their values must meet."""
    ways = unfold(objects.names) if objects.names else ()
    names = {
        value.value: None
        for facts in ways
        for value in facts.values or ()
        if value.kind == "string" and value.value not in taken and fits(facts, value)
    }
    is_closed = objects.rest is None
    return {
        name: objects.value(name)
        for name in names
        if not (is_closed and not any(is_found(p, name) for p in objects.patterns))
    }


class Style(NamedTuple):
    """How objects are written.

    layout: their separators. leaf: a pattern as it is to be written. share: likewise one that
    several patterns hold. is_distinct: whether no name is written twice, also where names are open.
    """

    layout: Layout
    leaf: Callable[[str], str]
    share: Callable[[str], str]
    is_distinct: bool = False


def _enclosed(
    entries: list[Entry], others: Entry | None, low: int, high: int | None, style: Style
) -> str | None:
    """Objects of these entries and of others, with as many properties as are allowed."""
    num_required = sum(entry.low for entry in entries)
    if high is not None and max(num_required, low) > high:
        return None
    most = 0 if others is None else others.high
    if most is not None and low > len(entries) + most:
        return None
    count = Count(low if low > num_required else 0, high)
    if most is not None and high is not None and high >= len(entries) + most:
        count = count._replace(high=None)
    comma = style.layout.comma
    if count.low <= 1 and count.high is None:
        more = [others] if others is not None else []
        return enclosed("{}", [*entries, *more], comma, count.low == 1)
    if (len(entries) + 1) * max(count.low, count.high or 0) > MAX_COUNTED:
        return _roughly(entries, others, count, comma)
    if others is not None and not style.is_distinct and low > len(entries) + 1:
        raise UnsupportedSchema("minProperties of at most one more than are named")
    if others is not None and not style.is_distinct and count.low > 1:
        found = _surely(entries, others.pattern, count, style)
    else:
        found = counted(entries, others, count, comma, style.share)
    return None if found is None else rf"\{{{found}\}}"


def _surely(entries: list[Entry], rest: str, count: Count, style: Style) -> str | None:
    """As `counted`, where others may have one name twice: they count as one."""
    comma = style.layout.comma
    alone = counted(entries, None, count, comma, style.share)
    named, most = Count(count.low - 1, None), None
    if count.high is not None:
        named, most = Count(count.low - 1, count.high - 1), 1
    before = counted(entries, None, named, comma, style.share)
    more = None if before is None else before + repeated(comma + rest, 1, most)
    options = [option for option in (alone, more) if option is not None]
    return alternatives(options) if options else None


def _roughly(entries: list[Entry], others: Entry | None, count: Count, comma: str) -> str:
    """Objects of a large number of properties: where all that are named fit in, others may fill
    what they leave."""
    if count.low or others is None or count.high is None or count.high < len(entries):
        raise UnsupportedSchema(
            f"minProperties and maxProperties of which the product with the number of properties is"
            f" at most {MAX_COUNTED}"
        )
    return enclosed("{}", [*entries, others._replace(high=count.high - len(entries))], comma)


def _others(
    objects: Objects, names: tuple[str, ...], write: Write, unfold: Unfold, key_of: KeyOf
) -> list[tuple[Strings, str, str]]:
    """Properties that are not named: what their names are, and the patterns of name and value."""
    if objects.high is not None and objects.high <= len(objects.required):
        return []
    found: list[tuple[Strings, str, str]] = []
    for strings, nodes in _name_classes(objects, unfold):
        value = write(nodes)
        for name_facts in _name_facts(objects.names, unfold) if value is not None else ():
            named = strings.intersect(name_facts).intersect(Strings(others=names))
            key = key_of(named)
            if key is not None and value is not None:
                found.append((named, key, value))
    return found


def _name_classes(objects: Objects, unfold: Unfold) -> Iterator[tuple[Strings, All]]:
    """Classes of names, by the patterns that are found in them, and what their values must meet."""
    patterns = objects.patterns
    total = [source for source in patterns if _is_total(source)]
    partial = [source for source in patterns if source not in total]
    always = tuple(node for source in total for node in patterns[source])
    is_rest = objects.rest is not None and bool(unfold(objects.rest))
    if _are_disjoint(objects, partial) and not (total and partial):
        for source in partial:
            yield _class((source,)), patterns[source]
    elif len(partial) > MAX_OVERLAPPING:
        raise UnsupportedSchema(f"at most {MAX_OVERLAPPING} patternProperties that overlap")
    else:
        for found in chain(*(combinations(partial, n) for n in range(1, len(partial) + 1))):
            unlike = tuple(source for source in partial if source not in found)
            nodes = tuple(node for source in found for node in patterns[source])
            yield _class(found, unlike), distinct((*nodes, *always))
    if total:
        yield _class((), tuple(partial)), distinct(always)
    elif is_rest:
        yield _class((), tuple(partial)), objects.rest or ()


def _is_total(source: str) -> bool:
    parts = parts_of(source)
    return len(parts.found) == 1 and not parts.unlike and read_pattern(*parts.found) in _TOTAL


def _class(found: tuple[str, ...], unlike: tuple[str, ...] = ()) -> Strings:
    """The names in which these patterns are found, and those are not."""
    names = Strings()
    for parts in map(parts_of, found):
        names = names.intersect(Strings(patterns=parts.found, unlike=parts.unlike))
    for parts in map(parts_of, unlike):
        partial = [source for source in parts.found if not _is_total(source)]
        if len(partial) + len(parts.unlike) != 1:
            raise UnsupportedSchema("patternProperties that overlap without lookaround")
        names = names.intersect(Strings(patterns=parts.unlike, unlike=tuple(partial)))
    return names


def _are_disjoint(objects: Objects, sources: list[str]) -> bool:
    """Whether patterns say the same of values, or begin with characters of their own."""
    if len({tuple(node.key for node in objects.patterns[p]) for p in sources}) <= 1:
        return True
    if len(sources) <= MAX_COMPARED and all(map(_is_disjoint, combinations(sources, 2))):
        return True
    seen: Ranges = ()
    for source in sources:
        first = first_chars(read_pattern(parts_of(source).found[0], is_wide=True))
        if first is None or common(first, seen):
            return False
        seen = union([*seen, *first])
    return True


def _is_disjoint(sources: tuple[str, str]) -> bool:
    """Whether no name fits both patterns, by either dialect."""
    try:
        texts = tuple(read_pattern(parts_of(it).found[0], is_wide=True) for it in sources)
        return common_texts(texts, (), ()) is None
    except (InvalidSchema, UnsupportedSchema):
        return False


def _name_facts(names: All, unfold: Unfold) -> list[Strings]:
    """The facts of propertyNames, one for each way, without those that it lists."""
    if not names:
        return [Strings()]
    ways = [Facts(types=("string",)).intersect(facts) for facts in unfold(names)]
    return [facts.strings or Strings() for facts in ways if facts.types and facts.values is None]


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
        raise UnsupportedSchema(
            f"additionalProperties beside names of {MAX_NAMES_SIZE} characters in all"
        )
    apart = [
        _spelled(prefix) + one_char(common(ANY_CHAR.ranges, complement(union(map(_pair, chars)))))
        for prefix, chars in follow.items()
    ]
    short = [_spelled(prefix) for prefix in follow if prefix and prefix not in names]
    longer = alternatives(apart) + pattern(ANYTHING)
    whole = alternatives([longer, *short]) if short else longer
    return whole if "" in names else f"(?:{whole})?"


def _spelled(text: str) -> str:
    return literal(value_text(text)[1:-1])


def _pair(char: str) -> tuple[int, int]:
    return single(char)[0]


MAX_NAMES_SIZE = 100_000
_TOTAL = tuple(read_pattern(source) for source in ("", "^", ".*", "^.*", "^.*$"))
