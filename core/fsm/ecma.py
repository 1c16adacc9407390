"""The keyword `pattern`: a regular expression that is searched for, read as a set of texts.

The texts are those that both the regular expressions of ECMA-262 and those of Python find: `\\d`,
`\\w` and `\\s` stand for ASCII, their opposites leave out all of Unicode's. Read wide, they are
those that either finds, for patterns that must not be found. Anchors may stand at either end of an
alternative; where one is missing, anything may stand before or after. What no automaton can honour
(backreferences, word boundaries, most of lookaround) is refused by name.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import NamedTuple

from . import chars
from .chars import Ranges
from .escapes import HEX
from .refusals import Unreadable, beyond, faulty
from .spelling import SURROGATES, common
from .strings import ANY_CHAR, ANYTHING, Chars, Either, Repeat, Row, Texts, lengths

MAX_LENGTH = 10_000
MAX_DEPTH = 30
MAX_COUNT = 10_000
MAX_VARIANTS = 256
LINE_ENDS = "\n\r\u2028\u2029"
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_NUM_HEX = {"x": 2, "u": 4}
_NAMED = {
    "b": "word boundaries",
    "B": "word boundaries",
    "p": "Unicode properties",
    "k": "backreferences",
}
_CATEGORIES = {
    **{"Letter": "L", "Mark": "M", "Number": "N", "Punctuation": "P", "Symbol": "S"},
    **{"Separator": "Z", "Other": "C", "Control": "Cc", "Uppercase_Letter": "Lu"},
    **{"Lowercase_Letter": "Ll", "Decimal_Number": "Nd", "Space_Separator": "Zs"},
}
_GROUPS = {"?=": "lookahead", "?!": "lookahead", "?<=": "lookbehind", "?<!": "lookbehind"}


class Variant(NamedTuple):
    """One way through a pattern, and the ends to which it is anchored."""

    texts: tuple[Texts, ...] = ()
    at_start: bool = False
    at_end: bool = False


@lru_cache(maxsize=256)
def read_pattern(source: str, is_wide: bool = False) -> Texts:
    """The texts in which this regular expression is found by both dialects; with `is_wide` those in
    which either finds it. Raises Unreadable."""
    if len(source) > MAX_LENGTH:
        raise Unreadable(f"patterns of at most {MAX_LENGTH} characters")
    reader = _Reader(source, is_wide)
    variants = reader.either(0)
    if reader.position < len(source):
        raise reader.fault(reader.position, "a ) without a group")
    if not variants:
        raise Unreadable("patterns that are found in some text")
    return Either(tuple(_searched(variant, is_wide) for variant in variants))


def _searched(variant: Variant, is_wide: bool) -> Texts:
    """To Python, `$` also stands before a line break at the end."""
    before = () if variant.at_start else (ANYTHING,)
    after: tuple[Texts, ...] = () if variant.at_end else (ANYTHING,)
    if variant.at_end and is_wide:
        after = (Repeat(Chars(chars.single("\n")), 0, 1),)
    return Row((*before, *variant.texts, *after))


class _Reader:
    """A regular expression and a place in it."""

    def __init__(self, source: str, is_wide: bool) -> None:
        self.source = source
        self.position = 0
        self._is_wide = is_wide

    def either(self, depth: int) -> list[Variant]:
        """Read alternatives up to a closing parenthesis or the end."""
        if depth > MAX_DEPTH:
            raise self.unsupported(self.position, f"a group deeper than {MAX_DEPTH}")
        variants = self._row(depth)
        while self._skip("|"):
            variants += self._row(depth)
        return variants

    def fault(self, position: int, what: str) -> Unreadable:
        """The error for what is no regular expression at all."""
        return Unreadable(faulty(self.source, position, what, "`re` and ECMA-262 know"))

    def unsupported(self, position: int, what: str) -> Unreadable:
        """The error for what these can do and an automaton cannot."""
        return Unreadable(beyond(self.source, position, what))

    def _row(self, depth: int) -> list[Variant]:
        rows = [Variant()]
        while self._peek() not in ("", "|", ")"):
            start = self.position
            if self.source.startswith("(?<!", start):
                rows, items = _at_start(rows), self._not_behind(depth)
            else:
                items = self._item(depth)
            rows = self._after(rows, items, start, depth)
        return rows

    def _not_behind(self, depth: int) -> list[Variant]:
        """Read a lookbehind: nothing stands before, or another character."""
        start = self.position
        self.position += len("(?<!")
        self._is_wide = not self._is_wide
        variants = self.either(depth + 1)
        self._is_wide = not self._is_wide
        if not self._skip(")"):
            raise self.fault(start, "an unclosed group")
        texts = variants[0].texts
        if len(variants) > 1 or len(texts) != 1 or not isinstance(texts[0], Chars):
            raise self.unsupported(start, "lookbehind of more than a character")
        if variants[0].at_start or variants[0].at_end:
            raise self.unsupported(start, "an anchor in lookbehind")
        other = self._chars(chars.complement(texts[0].ranges), start)
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
            if row.at_end and not (depth or self._is_wide) and lengths(Row(item.texts))[0]:
                continue
            if (item.at_start and row.texts) or (row.at_end and item.texts):
                raise self.unsupported(start, "an anchor inside")
            texts = row.texts + item.texts
            joined.append(Variant(texts, row.at_start or item.at_start, row.at_end or item.at_end))
        return joined

    def _item(self, depth: int) -> list[Variant]:
        start, char = self.position, self._take()
        if char == "^":
            return [Variant(at_start=True)]
        if char == "$":
            return [Variant(at_end=True)]
        variants = self._group(depth) if char == "(" else [Variant((self._atom(char),))]
        counts = self._counts()
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

    def _group(self, depth: int) -> list[Variant]:
        start = self.position - 1
        for opening, name in _GROUPS.items():
            if self.source.startswith(opening, self.position):
                raise self.unsupported(start, name)
        if self._skip("?") and not self._skip(":"):
            self._skip("P")
            name, found, _ = self.source[self.position :].partition(">")
            if not (found and name[:1] == "<" and name[1:].isidentifier()):
                raise self.unsupported(start, "special groups")
            self.position += len(name) + 1
        variants = self.either(depth + 1)
        if not self._skip(")"):
            raise self.fault(start, "an unclosed group")
        return variants

    def _atom(self, char: str) -> Texts:
        if char == "[":
            return self._class()
        if char == ".":
            line_ends = "\n" if self._is_wide else LINE_ENDS
            ends = chars.union(pair for end in line_ends for pair in chars.single(end))
            return Chars(common(chars.complement(ends), ANY_CHAR.ranges))
        if char in "*+?":
            raise self.fault(self.position - 1, "nothing to repeat")
        start = self.position - 1
        return self._chars(self._escape() if char == "\\" else chars.single(char), start)

    def _chars(self, ranges: Ranges, start: int) -> Chars:
        ranges = common(ranges, ANY_CHAR.ranges)
        if not ranges:
            raise self.unsupported(start, "a class of nothing")
        return Chars(ranges)

    def _class(self) -> Chars:
        start, is_negated = self.position - 1, self._skip("^")
        if self._peek() == "]":
            raise self.unsupported(start, "an empty class")
        parts: list[tuple[int, int]] = []
        while not self._skip("]"):
            low = self._member(start, is_negated)
            if self._peek() == "-" and self.source[self.position + 1 :][:1] not in ("]", ""):
                self._take()
                high = self._member(start, is_negated)
                if not (_is_single(low) and _is_single(high)) or low[0][0] > high[0][0]:
                    raise self.fault(start, "a bad range in a class")
                low = ((low[0][0], high[0][1]),)
            parts.extend(low)
        ranges = chars.union(parts)
        return self._chars(chars.complement(ranges) if is_negated else ranges, start)

    def _member(self, start: int, is_negated: bool) -> Ranges:
        char = self._take()
        if not char:
            raise self.fault(start, "an unclosed class")
        if char != "\\":
            return chars.single(char)
        return chars.single("\b") if self._skip("b") else self._escape(is_negated)

    def _escape(self, is_negated: bool = False) -> Ranges:
        start, char = self.position - 1, self._take()
        if char and char in "dDwWsS":
            return _category(char, is_negated is not self._is_wide)
        if char in ("p", "P") and self._peek() == "{":
            return self._property(char == "P", start)
        if char in _NUM_HEX:
            return self._code(start, _NUM_HEX[char])
        if char in _CONTROL and not self._peek().isdigit():
            return chars.single(_CONTROL[char])
        if not char or char.isalnum() or not char.isascii():
            name = "backreferences" if char.isdigit() else _NAMED.get(char)
            if name is not None:
                raise self.unsupported(start, name)
            raise self.fault(start, "an escape that `re` does not know")
        return chars.single(char)

    def _property(self, is_negated: bool, start: int) -> Ranges:
        """A general category of Unicode."""
        name, found, _ = self.source[self.position + 1 :][:40].partition("}")
        category = _CATEGORIES.get(name, name)
        ranges = chars.general_category(category) if found and 0 < len(category) < 3 else ()
        if not ranges:
            raise self.unsupported(start, "Unicode properties that are no general category")
        self.position += len(name) + 2
        return chars.complement(ranges) if is_negated else ranges

    def _code(self, start: int, num_digits: int) -> Ranges:
        digits = self.source[self.position : self.position + num_digits]
        if len(digits) < num_digits or not set(digits) <= set(HEX):
            raise self.fault(start, f"an escape that needs {num_digits} hexadecimal digits")
        self.position += num_digits
        code = int(digits, 16)
        if common(((code, code + 1),), SURROGATES):
            raise self.unsupported(start, "surrogates")
        return ((code, code + 1),)

    def _counts(self) -> tuple[int, int | None] | None:
        """Read `*`, `+`, `?` or `{m,n}`, with what says that it is lazy; None: there is none."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        start, char = self.position, self._peek()
        counts: tuple[int, int | None] | None = simple.get(char)
        if counts is not None:
            self._take()
        elif char == "{":
            counts = self._braces()
        if counts is None:
            return None
        if self._peek() == "+":
            raise self.unsupported(start, "possessive repeats")
        self._skip("?")
        if self._peek() and self._peek() in "*+?":
            raise self.fault(self.position, "nothing to repeat")
        return counts

    def _braces(self) -> tuple[int, int | None] | None:
        start = self.position
        inside, found, _ = self.source[start + 1 : start + 14].partition("}")
        low, comma, high = inside.partition(",")
        if not inside.isascii():
            return None
        if not (found and low.isdecimal() and (high.isdecimal() or not high)):
            if found and comma and not low and (high.isdecimal() or not high):
                raise self.unsupported(start, "a count without its least")
            return None  # to both dialects, this brace stands for itself
        self.position += len(inside) + 2
        counts = int(low), (int(high) if high else None) if comma else int(low)
        if max(counts[0], counts[1] or 0) > MAX_COUNT:
            raise self.unsupported(start, f"counts over {MAX_COUNT}")
        if counts[1] is not None and counts[0] > counts[1]:
            raise self.fault(start, "a count that ends before it begins")
        return counts

    def _peek(self) -> str:
        return self.source[self.position : self.position + 1]

    def _take(self) -> str:
        char = self._peek()
        self.position += len(char)
        return char

    def _skip(self, char: str) -> bool:
        is_there = self._peek() == char
        self.position += is_there
        return is_there


def _at_start(rows: list[Variant]) -> list[Variant]:
    """Rows before a lookbehind: what need not be there is left out, unless it is anchored."""
    if rows and all(not row.at_start and lengths(Row(row.texts))[0] == 0 for row in rows):
        return [Variant()]
    return rows


def _row_of(variant: Variant) -> Texts:
    return variant.texts[0] if len(variant.texts) == 1 else Row(variant.texts)


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][1] - ranges[0][0] == 1


def _category(letter: str, is_negated: bool) -> Ranges:
    """What both dialects put in a category or, where that is taken away, what either does."""
    is_wide = letter.isupper() is not is_negated
    ranges = chars.category(letter.lower(), is_ascii=not is_wide)
    if is_wide and letter in "sS":
        ranges = chars.union([*ranges, *chars.single("\ufeff")])
    return chars.complement(ranges) if letter.isupper() else ranges
