"""The keyword `pattern`: a regular expression that is searched for, read as a set of texts.

The texts are those that both the regular expressions of ECMA-262 and those of Python find: `\\d`,
`\\w` and `\\s` stand for ASCII, their opposites leave out all of Unicode's. Read wide, they are
those that either finds, for patterns that must not be found. Where an anchor is missing at an end,
anything may stand before or after. Patterns with anchors, lookaround or word boundaries inside are
made to automata and read back from these. What no automaton can honour is refused by name.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

from ...regex import chars
from ...regex.chars import Ranges
from ...regex.errors import InvalidSchema
from .automata import texts_of
from .ecmachars import Scanner
from .ecmatree import read_tree
from .spelling import common
from .strings import ANY_CHAR, ANYTHING, Chars, Either, Repeat, Row, Texts, lengths

MAX_LENGTH = 10_000
MAX_DEPTH = 30
MAX_VARIANTS = 256
_GROUPS = {"?=": "lookahead", "?!": "lookahead", "?<=": "lookbehind", "?<!": "lookbehind"}


class Variant(NamedTuple):
    """One way through a pattern, and the ends to which it is anchored."""

    texts: tuple[Texts, ...] = ()
    at_start: bool = False
    at_end: bool = False


@lru_cache(maxsize=256)
def read_pattern(source: str, is_wide: bool = False) -> Texts:
    """The texts in which this regular expression is found by both dialects; with `is_wide` those in
    which either finds it. Raises InvalidSchema."""
    if len(source) > MAX_LENGTH:
        raise InvalidSchema(f"patterns of at most {MAX_LENGTH} characters")
    try:
        return _read_plain(source, is_wide)
    except InvalidSchema:
        return texts_of(read_tree(source, is_wide), source)


def _read_plain(source: str, is_wide: bool) -> Texts:
    """The same for patterns with anchors and lookaround at their ends alone."""
    reader = _Reader(source, is_wide)
    variants = reader.either(0)
    if reader.position < len(source):
        raise reader.fault(reader.position, "a ) without a group")
    if not variants:
        raise InvalidSchema("patterns that are found in some text")
    return Either(tuple(_searched(variant, is_wide) for variant in variants))


def _searched(variant: Variant, is_wide: bool) -> Texts:
    """To Python, `$` also stands before a line break at the end."""
    before = () if variant.at_start else (ANYTHING,)
    after: tuple[Texts, ...] = () if variant.at_end else (ANYTHING,)
    if variant.at_end and is_wide:
        after = (Repeat(Chars(chars.single("\n")), 0, 1),)
    return Row((*before, *variant.texts, *after))


class _Reader(Scanner):
    """Reads a regular expression as its variants."""

    def either(self, depth: int) -> list[Variant]:
        """Read alternatives up to a closing parenthesis or the end."""
        if depth > MAX_DEPTH:
            raise self.unsupported(self.position, f"a group deeper than {MAX_DEPTH}")
        variants = self._row(depth)
        while self.skip("|"):
            variants += self._row(depth)
        return variants

    def _row(self, depth: int) -> list[Variant]:
        rows = [Variant()]
        while self.peek() not in ("", "|", ")"):
            start = self.position
            if self.source.startswith("(?<!", start):
                rows, items = self._before_lookbehind(rows), self._not_behind(depth)
            else:
                items = self._item(depth)
            rows = self._after(rows, items, start, depth)
        return rows

    def _before_lookbehind(self, rows: list[Variant]) -> list[Variant]:
        """Rows before a lookbehind that need not be there, which are left out."""
        if any(row.at_start or row.at_end or lengths(Row(row.texts))[0] for row in rows):
            raise self.unsupported(self.position, "a lookbehind after other text")
        return [Variant()]

    def _not_behind(self, depth: int) -> list[Variant]:
        """Read a lookbehind: nothing stands before, or another character."""
        start = self.position
        self.position += len("(?<!")
        self.is_wide = not self.is_wide
        variants = self.either(depth + 1)
        self.is_wide = not self.is_wide
        if not self.skip(")"):
            raise self.fault(start, "an unclosed group")
        texts = variants[0].texts
        if len(variants) > 1 or len(texts) != 1 or not isinstance(texts[0], Chars):
            raise self.unsupported(start, "a lookbehind of more than one character")
        if variants[0].at_start or variants[0].at_end:
            raise self.unsupported(start, "an anchor in lookbehind")
        other = self._one(chars.complement(texts[0].ranges), start)
        return [Variant(at_start=True), Variant((other,))]

    def _after(
        self, rows: list[Variant], items: list[Variant], start: int, depth: int
    ) -> list[Variant]:
        """Each of these followed by each of those, which stand at `start`. Nothing is found of a
        row that goes on behind its end."""
        if len(rows) * len(items) > MAX_VARIANTS:
            raise self.unsupported(start, f"more than {MAX_VARIANTS} anchored alternatives")
        joined = []
        for row, item in product(rows, items):
            if row.at_end and not (depth or self.is_wide) and lengths(Row(item.texts))[0]:
                continue
            if (item.at_start and row.texts) or (row.at_end and item.texts):
                raise self.unsupported(start, "an anchor in the middle")
            texts = row.texts + item.texts
            joined.append(Variant(texts, row.at_start or item.at_start, row.at_end or item.at_end))
        return joined

    def _item(self, depth: int) -> list[Variant]:
        start, char = self.position, self.take()
        if char == "^":
            return [Variant(at_start=True)]
        if char == "$":
            return [Variant(at_end=True)]
        one = None if char == "(" else self._one(self.atom(char), start)
        variants = self._group(depth) if one is None else [Variant((one,))]
        before = self.position
        counts = self.counts()
        if counts is not None and self.suffix(before) == "+":
            raise self.unsupported(start, "possessive repeats")
        if counts is None and any(v.at_start or v.at_end for v in variants):
            return variants
        if any(v.at_start or v.at_end for v in variants):
            raise self.unsupported(start, "an anchor in a repeated group")
        whole = (
            variants[0].texts if len(variants) == 1 else (Either(tuple(map(_row_of, variants))),)
        )
        if counts is None:
            return [Variant(whole)]
        return [Variant((Repeat(whole[0] if len(whole) == 1 else Row(whole), *counts),))]

    def _one(self, ranges: Ranges, start: int) -> Chars:
        ranges = common(ranges, ANY_CHAR.ranges)
        if not ranges:
            raise self.unsupported(start, "a class of nothing")
        return Chars(ranges)

    def _group(self, depth: int) -> list[Variant]:
        start = self.position - 1
        for opening, name in _GROUPS.items():
            if self.source.startswith(opening, self.position):
                raise self.unsupported(start, name)
        if self.skip("?") and not self.skip(":"):
            self.skip("P")
            name, found, _ = self.source[self.position :].partition(">")
            if not (found and name[:1] == "<" and name[1:].isidentifier()):
                raise self.unsupported(start, "special groups")
            self.position += len(name) + 1
        variants = self.either(depth + 1)
        if not self.skip(")"):
            raise self.fault(start, "an unclosed group")
        return variants


def _row_of(variant: Variant) -> Texts:
    return variant.texts[0] if len(variant.texts) == 1 else Row(variant.texts)
