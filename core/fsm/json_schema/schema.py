"""JSON Schema as a pattern: every text that it matches is JSON that the schema accepts.

What is written is a part of what is allowed: objects keep to the properties that are spoken of, in
the order of the schema; keywords of a type, where no type is named, stand for that type; integers
have at most 19 digits; patterns, formats and names are spelled in one way, and texts of more than
16 counted characters have no `\\u` escapes. A valid schema that no pattern expresses raises
`NotRegular`, an invalid one `InvalidCall`, by keyword and position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ...api.protocol import COMPACT
from ..regex.errors import InvalidSchema, NotRegular, UnsupportedSchema
from ..regex.tree import Loop, Net, Tree
from .contains import free_pattern, is_free, without_contains
from .facts import All, Arrays, Facts, Numbers, Objects, Strings, common_multiple
from .facts import Literal as Value
from .members import fits, fits_string
from .objects import Style, object_pattern, other_than
from .patterns.automata import common_texts
from .patterns.ecma import read_pattern
from .patterns.formats import NUMBERS, read_format
from .patterns.lists import Entry, Layout, enclosed, nested
from .patterns.machines import num_texts
from .patterns.multiples import multiple_pattern, other_numbers
from .patterns.numbers import number_pattern
from .patterns.spelling import FREE_CHAR, LEAN_CHAR, alternatives, literal, value_text
from .patterns.strings import ANYTHING, limited, pattern, repeated, squeezed
from .unfold import MAX_SECONDS, Document, located

MAX_DEPTH = 48
MAX_COUNT = 10_000
MAX_FREE = 16
MATCH_STEPS = 10
MAX_LENGTH = 1_000_000
MAX_SQUEEZED = 512
MAX_SHARED = 10_000
MAX_NAMES = 64
MAX_FEW = 1_000
SMALL = {"boolean": (("boolean", "true"), ("boolean", "false")), "null": (("null", "null"),)}


def schema_pattern(
    schema: Mapping[str, Any] | bool,
    *,
    separators: tuple[str, str] = COMPACT,
    seconds: float = MAX_SECONDS,
    is_tracked: bool = False,
) -> str:
    """A regular expression whose every match is JSON that the schema accepts.

    separators: as in `JsonSchema`.
    seconds: of this thread's processor time that reading it may take.
    is_tracked: whether items are kept from repeating while they are written, so that uniqueItems
      need not be said.
    Raises NotRegular where a pattern cannot say it, InvalidCall where the schema is ill-formed,
    too large, accepts nothing, or has keywords that are not supported.
    """
    return document_pattern(Document(schema, seconds), separators, is_tracked)


def document_pattern(
    document: Document, separators: tuple[str, str], is_tracked: bool = False
) -> str:
    """As `schema_pattern`, of a document that may have been read in part."""
    writer = Writer(document, separators, is_tracked)
    found = writer.write((document.root,))
    if found is None:
        raise document.refuse_empty(writer.empty)
    return found


class Writer:
    """Writes the places of one document, each as a pattern. empty: those that no value meets, the
    outer ones last."""

    def __init__(
        self, document: Document, separators: tuple[str, str], is_tracked: bool = False
    ) -> None:
        self.document = document
        self._is_tracked = is_tracked
        self._separators = separators
        self._layout = Layout(*map(self.separator, separators))
        self.empty: list[str] = []
        self._written: dict[tuple[str, ...], str | None] = {}
        self._open: list[tuple[str, ...]] = []

    def write(self, nodes: All) -> str | None:
        """The pattern of a value that meets all of these; None: no value does."""
        if not nodes:
            raise UnsupportedSchema("schemas that constrain the value")
        key = tuple(node.key for node in nodes)
        if key in self._open:
            raise NotRegular(key[0], "schemas without recursion")
        if len(self._open) >= MAX_DEPTH:
            raise NotRegular(key[0], f"schemas of at most {MAX_DEPTH} levels")
        if key not in self._written:
            self._open.append(key)
            self._written[key] = self.ways(nodes)
            self._open.pop()
            if self._written[key] is None:
                self.empty.append(key[0])
        return self._written[key]

    def ways(self, nodes: All) -> str | None:
        """All ways to meet these nodes, in one."""
        path = nodes[0].path
        with located(path):
            ways = self.document.unfold(nodes)
            found = [option for facts in ways for option in self._facts(facts)]
        if sum(map(len, found)) > MAX_LENGTH:
            raise NotRegular(path, f"schemas whose pattern has at most {MAX_LENGTH} characters")
        return alternatives(found) if found else None

    def _facts(self, facts: Facts) -> list[str]:
        """Patterns of values that meet these facts, by type."""
        if facts.values is not None:
            return self.values([value for value in facts.values if self._fits(facts, value)])
        if facts.types is None and not facts.kinds():
            return [self.anything()]
        found = [self._kind(kind, facts) for kind in facts.kinds()]
        return [option for option in found if option is not None]

    def _fits(self, facts: Facts, value: Value) -> bool:
        if facts.strings is not None and facts.strings.patterns:
            self.document.step(self._open[-1][0], MATCH_STEPS)
        return fits(facts, value, self.document.unfold)

    def _is_possible(self, nodes: All) -> bool:
        """Whether some value may meet all of these."""
        with suppress(NotRegular):
            for facts in self.document.unfold(nodes):
                if facts.values is None and not facts.is_empty():
                    return True
                if any(self._fits(facts, value) for value in facts.values or ()):
                    return True
            return False
        return True

    def leaf(self, pattern: str) -> str:
        """A pattern that holds no other place of the document."""
        return pattern

    def share(self, pattern: str) -> str:
        """A pattern that several others hold."""
        if len(pattern) > MAX_SHARED:
            raise UnsupportedSchema("properties that are counted where they are few")
        return pattern

    def separator(self, text: str) -> str:
        """A comma or a colon with its blanks, as it is to be written."""
        return literal(text)

    def values(self, values: Sequence[Value]) -> list[str]:
        """Each of these values."""
        return [literal(self._text(value)) for value in values]

    def _text(self, value: Value) -> str:
        is_plain = value.kind not in ("array", "object")
        return value.text if is_plain else value_text(value.value, self._separators)

    def anything(self) -> str:
        """Any value at all."""
        raise UnsupportedSchema("values whose type is stated")

    def string(self, strings: Strings) -> str | None:
        """The strings that these facts allow."""
        text = self.text(strings, FREE_CHAR)
        return None if text is None else self.leaf(f'"{text}"')

    def _kind(self, kind: str, facts: Facts) -> str | None:
        match kind:
            case "object":
                return self.object(facts.objects)
            case "array":
                return self.array(facts.arrays or Arrays())
            case "string":
                return self.string(facts.strings or Strings())
            case "integer" | "number":
                number = _number(kind, facts)
                return None if number is None else self.leaf(number)
            case "boolean":
                return self.leaf("(?:true|false)")
        return self.leaf("null")

    def object(self, objects: Objects | None) -> str | None:
        """The objects that these facts allow."""
        if objects is None:
            raise UnsupportedSchema(
                "objects of which properties or additionalProperties are stated"
            )
        style = Style(self._layout, self.leaf, self.share, self._is_tracked)
        unfold = self.document.unfold
        found = object_pattern(objects, self.write, unfold, self.name, self.num_names, style)
        if found is None:
            self.document.reasons.add_closed(self._open[-1], objects)
        return found

    def array(self, arrays: Arrays) -> str | None:
        """The arrays that these facts allow."""
        if arrays.high != 0 and arrays.rest is None and not arrays.prefix:
            raise UnsupportedSchema("arrays of which items or prefixItems are stated")
        if arrays.is_empty():
            return None
        if arrays.rest is None and (arrays.contains or arrays.low > len(arrays.prefix)):
            arrays = replace(arrays, rest=())  # more items are needed than are spoken of, or may be
        if arrays.contains and is_free(arrays):
            inside = free_pattern(arrays, self.write, self._layout.comma)
            return None if inside is None else rf"\[{inside}\]"
        if arrays.contains:
            found = [self._array(option) for option in without_contains(arrays, self._is_possible)]
            kept = [option for option in found if option is not None]
            return alternatives(kept) if kept else None
        return self._array(arrays)

    def _array(self, arrays: Arrays) -> str | None:
        high = arrays.high
        prefix = [self.write(nodes) for nodes in arrays.prefix[:high]]
        items = prefix[: prefix.index(None)] if None in prefix else prefix
        rest = None
        if None not in prefix and arrays.rest is not None and high != len(prefix):
            rest = self.write(arrays.rest)
        if rest is None:
            high = len(items) if high is None else min(high, len(items))
        if high is not None and arrays.low > high:
            return None
        self.check_count(arrays.low, high)
        if arrays.is_unique and (high is None or high > 1):
            values = self._plain_values(arrays)
            if values and arrays.low > len(values):
                allowed = f"uniqueItems with at most {len(values)} different items"
                self.document.reasons.add(self._open[-1][0], allowed)
                return None
            # Where items are kept from repeating anyway, all of an enum may come in any order.
            if not prefix and not (self._is_tracked and arrays.low == len(values)):
                found = self._in_order(arrays, [*values.values()])
                if found is not None:
                    return found
            if not self._is_tracked:
                raise InvalidSchema("uniqueItems for arrays whose items are an enum")
        return self._items([item for item in items if item], rest, arrays.low, high)

    def _items(self, items: list[str], rest: str | None, low: int, high: int | None) -> str:
        entry = None
        if rest is not None:
            most = None if high is None else high - len(items)
            entry = Entry(rest, max(low - len(items), 0), most)
        if not items:
            return enclosed("[]", [entry] if entry else [], self._layout.comma)
        return rf"\[{nested(items, low, entry, self._layout.comma)}\]"

    def _plain_values(self, arrays: Arrays) -> dict[tuple[str, Any], Value | None]:
        """The values of an array's items by their keys, those of no enum as None; {} where they
        are not few."""
        found = dict[tuple[str, Any], Value | None]()
        places = (*arrays.prefix, *([arrays.rest] if arrays.rest is not None else []))
        if not all(places):
            return {}
        for facts in (facts for nodes in places for facts in self.document.unfold(nodes)):
            if facts.values is not None:
                found |= {it.key: it for it in facts.values if self._fits(facts, it)}
            else:
                keys = [_few(kind, facts) for kind in facts.types or ("",)]
                if None in keys:
                    return {}
                found |= dict.fromkeys(key for some in keys for key in some or ())
        return found

    def _in_order(self, arrays: Arrays, values: Sequence[Value | None]) -> str | None:
        """Different items of an enum, in its order; None where that is not what is said. What is
        written otherwise is kept from repeating an item by `core.fsm.distinct`."""
        of_enum, num_values = [it for it in values if it is not None], len(values)
        is_all = arrays.low == num_values
        if not of_enum or len(of_enum) < num_values:
            return None
        if not is_all and (arrays.low > 1 or (arrays.high or num_values) < num_values):
            return None
        entries = [Entry(text, int(is_all)) for value in of_enum for text in self.values([value])]
        return enclosed("[]", entries, self._layout.comma, needs_one=arrays.low > 0)

    def name(self, strings: Strings) -> str | None:
        """The pattern of a property's name: like that of a string, but spelled in one way."""
        text = self.text(strings, pattern(ANYTHING.item))
        return None if text is None else self.leaf(f'"{text}"')

    def num_names(self, strings: Strings) -> int | None:
        """How many names meet these facts; None: more than MAX_NAMES, or it is not known."""
        try:
            texts = self.text_patterns(strings)
            if not texts:
                return None
            net = self.machine(strings, texts, self.excluded(strings))
        except UnsupportedSchema:
            return None
        return 0 if net is None else num_texts(net, MAX_NAMES)

    def text(self, strings: Strings, char: str) -> str | None:
        """The pattern between the quotes of these strings; `char`: of one where any will do."""
        text_patterns = self.text_patterns(strings)
        if strings.is_empty():
            return None
        self.check_count(strings.low, strings.high)
        others = self.excluded(strings)
        if others and not (
            text_patterns or strings.unlike or strings.low or strings.high is not None
        ):
            return other_than(others)
        if len(text_patterns) > 1 or strings.unlike or others:
            return self._common(strings, text_patterns, others)
        if not text_patterns:
            count = max(strings.low, strings.high or 0)
            return repeated(char if count <= MAX_FREE else LEAN_CHAR, strings.low, strings.high)
        text = text_patterns[0]
        try:
            found = limited(text, strings.low, strings.high)
        except UnsupportedSchema:
            if not strings.formats or strings.high is None:
                return self._common(strings, text_patterns, ())
            found = squeezed(text, min(strings.high, MAX_SQUEEZED))
            found = None if found is None else limited(found, strings.low, None)
        return None if found is None else self.spelled(found)

    def _common(
        self, strings: Strings, text_patterns: Sequence[Tree], others: tuple[str, ...]
    ) -> str | None:
        """The texts that are in several sets and in none of others."""
        found = self.machine(strings, text_patterns, others)
        return None if found is None else self.spelled(found)

    def machine(
        self, strings: Strings, text_patterns: Sequence[Tree], others: tuple[str, ...]
    ) -> Net | None:
        """The automaton of these strings; None: there are none."""
        unlike = tuple(read_pattern(source, is_wide=True) for source in strings.unlike)
        parts = (*text_patterns, Loop(ANYTHING.item, strings.low, strings.high))
        return common_texts(parts, unlike, others)

    def text_patterns(self, strings: Strings) -> list[Tree]:
        """The sets of texts that patterns and formats ask for."""
        texts = [read_pattern(source) for source in strings.patterns]
        formats = [read_format(name) for name in strings.formats]
        return [text for text in (*texts, *formats) if text != ANYTHING]

    def spelled(self, texts: Tree) -> str:
        """The pattern of texts between quotes."""
        return pattern(texts)

    def excluded(self, strings: Strings) -> tuple[str, ...]:
        """The texts that are excluded and would be met otherwise."""
        without_others = replace(strings, others=())
        found: list[str] = []
        for text in strings.others:
            self.document.step(self._open[-1][0], MATCH_STEPS if without_others.patterns else 1)
            with suppress(UnsupportedSchema):
                if not fits_string(without_others, text):
                    continue
            found.append(text)
        return tuple(found)

    def check_count(self, low: int, high: int | None) -> None:
        """Raise UnsupportedSchema where an automaton would have to count too far."""
        if max(low, high or 0) > MAX_COUNT:
            raise UnsupportedSchema(f"lengths and numbers of items of at most {MAX_COUNT}")


def _few(kind: str, facts: Facts) -> Sequence[tuple[str, Any]] | None:
    """The keys of all values of a type, and some more; None where they are not few."""
    numbers = facts.numbers or Numbers()
    low, high = numbers.interval.integers()
    if kind != "integer" or low is None or high is None or high - low >= MAX_FEW:
        return SMALL.get(kind)
    return [("number", number) for number in range(low, high + 1)]


def _number(kind: str, facts: Facts) -> str | None:
    """An integer or a number; integers are written once where both are allowed."""
    if kind == "integer" and "number" in facts.kinds():
        return None
    numbers = facts.numbers or Numbers()
    interval, multiple = numbers.interval, numbers.multiple
    for name in numbers.formats:
        interval = interval.intersect(NUMBERS[name])
    if kind == "integer":
        multiple = common_multiple(multiple or Fraction(1), Fraction(1))
    if numbers.unlike:
        return other_numbers(kind, interval, multiple, numbers.unlike)
    if multiple is None:
        return number_pattern(interval)
    return multiple_pattern(interval, multiple)
