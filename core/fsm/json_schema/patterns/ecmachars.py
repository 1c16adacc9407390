"""The small print of the keyword `pattern`: characters, classes, escapes and counts, as both
ECMA-262 and Python read them.

Read wide, a set holds what either takes for it, otherwise what both do.
"""

from __future__ import annotations

from ...regex import chars
from ...regex.chars import Ranges
from ...regex.errors import InvalidSchema, invalid_pattern, unsupported_pattern
from ...regex.escapes import HEX
from .spelling import SURROGATES, common
from .strings import ANY_CHAR

MAX_COUNT = 10_000
LINE_ENDS = "\n\r\u2028\u2029"
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_NUM_HEX = {"x": 2, "u": 4}
_NAMED = {
    "b": "word boundaries",
    "B": "word boundaries",
    "A": "\\A",
    "Z": "\\Z",
    "p": "Unicode properties",
    "P": "Unicode properties",
    "k": "backreferences",
}


class Scanner:
    """A regular expression and a place in it. ignores_case, dot_all: as `(?i)` and `(?s)` ask."""

    def __init__(self, source: str, is_wide: bool) -> None:
        self.source = source
        self.position = 0
        self.is_wide = is_wide
        self.ignores_case = self.dot_all = False

    def fault(self, position: int, what: str) -> InvalidSchema:
        """The error for what is no regular expression at all."""
        return InvalidSchema(invalid_pattern(self.source, position, what, " in `re` and ECMA-262"))

    def unsupported(self, position: int, what: str) -> InvalidSchema:
        """The error for what these can do and an automaton cannot."""
        return InvalidSchema(unsupported_pattern(self.source, position, what))

    def atom(self, char: str) -> Ranges:
        """The set that begins with this character, which was taken; it may be empty."""
        if char == "[":
            ranges = self._class()
        elif char == ".":
            line_ends = "" if self.dot_all else "\n" if self.is_wide else LINE_ENDS
            ends = chars.union(pair for end in line_ends for pair in chars.single(end))
            ranges = chars.complement(ends)
        elif char in "*+?":
            raise self.fault(self.position - 1, "nothing to repeat")
        else:
            ranges = self._escape() if char == "\\" else chars.single(char)
            ranges = self._folded(ranges)
        return common(ranges, ANY_CHAR.ranges)

    def _folded(self, ranges: Ranges) -> Ranges:
        """With `(?i)` also what differs by case alone."""
        return chars.fold(ranges, is_ascii=not self.is_wide) if self.ignores_case else ranges

    def _class(self) -> Ranges:
        start, is_negated = self.position - 1, self.skip("^")
        if self.peek() == "]":
            return self._without_members(start, is_negated)
        parts: list[tuple[int, int]] = []
        while not self.skip("]"):
            low = self._member(start, is_negated)
            if self.peek() == "-" and self.source[self.position + 1 :][:1] not in ("]", ""):
                self.take()
                high = self._member(start, is_negated)
                if not (_is_single(low) and _is_single(high)) or low[0][0] > high[0][0]:
                    raise self.fault(start, "a bad character range")
                low = ((low[0][0], high[0][1]),)
            parts.extend(low)
        ranges = self._folded(chars.union(parts))
        return chars.complement(ranges) if is_negated else ranges

    def _without_members(self, start: int, is_negated: bool) -> Ranges:
        """`[]` and `[^]`, where Python cannot take the bracket for a member."""
        if "]" in self.source[self.position + 1 :]:
            raise self.unsupported(start, "an empty class")
        self.take()
        return chars.EVERYTHING if is_negated else ()

    def _member(self, start: int, is_negated: bool) -> Ranges:
        char = self.take()
        if not char:
            raise self.fault(start, "an unclosed class")
        if char != "\\":
            return chars.single(char)
        return chars.single("\b") if self.skip("b") else self._escape(is_negated)

    def _escape(self, is_negated: bool = False) -> Ranges:
        start, char = self.position - 1, self.take()
        if char and char in "dDwWsS":
            return _category(char, is_negated is not self.is_wide)
        if char in ("p", "P") and self.peek() == "{":
            return self._property(char == "P", start)
        if char in _NUM_HEX:
            return self._code(start, _NUM_HEX[char])
        if char == "c" and self.peek().isascii() and self.peek().isalpha():
            return chars.single(chr(ord(self.take()) % 32))
        if char in _CONTROL and not self.peek().isdigit():
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
        ranges = chars.unicode_property(name) if found else ()
        if not ranges:
            raise self.unsupported(start, "Unicode properties that are no general category")
        self.position += len(name) + 2
        return chars.complement(ranges) if is_negated else ranges

    def _code(self, start: int, num_digits: int) -> Ranges:
        """A character by its number. Surrogates are no characters: no text has one."""
        digits = self.source[self.position : self.position + num_digits]
        size = num_digits
        if num_digits == 4 and digits[:1] == "{":
            digits = self.source[self.position + 1 :][:7].partition("}")[0]
            size, num_digits = len(digits) + 2, max(len(digits), 1)
        code = int(digits, 16) if digits and set(digits) <= set(HEX) else chars.END
        if len(digits) < num_digits or code >= chars.END:
            raise self.fault(start, f"an escape that needs {num_digits} hexadecimal digits")
        self.position += size
        if self.is_wide and common(((code, code + 1),), SURROGATES):
            raise self.unsupported(start, "surrogates where a match is excluded")
        return ((code, code + 1),)

    def counts(self) -> tuple[int, int | None] | None:
        """Read `*`, `+`, `?` or `{m,n}`; None: there is none."""
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self.peek()
        if char in simple and char:
            self.take()
            return simple[char]
        return self._braces() if char == "{" else None

    def suffix(self, start: int) -> str:
        """Read what says that a repeat is lazy or possessive: `?`, `+` or ""."""
        found = self.take() if self.peek() in ("?", "+") else ""
        if self.peek() and self.peek() in "*+?":
            raise self.fault(self.position, "nothing to repeat")
        return found

    def _braces(self) -> tuple[int, int | None] | None:
        start = self.position
        inside, found, _ = self.source[start + 1 : start + 14].partition("}")
        low, comma, high = inside.partition(",")
        if not inside.isascii():
            return None
        if not (found and low.isdecimal() and (high.isdecimal() or not high)):
            is_python = found and comma and not low and (high.isdecimal() or not high)
            if not is_python:
                return None  # to both dialects, this brace stands for itself
            if self.is_wide:
                raise self.unsupported(start, "a count without its least")
            low = "0"
        self.position += len(inside) + 2
        counts = int(low), (int(high) if high else None) if comma else int(low)
        if max(counts[0], counts[1] or 0) > MAX_COUNT:
            raise self.unsupported(start, f"counts over {MAX_COUNT}")
        if counts[1] is not None and counts[0] > counts[1]:
            raise self.fault(start, "a minimum count above the maximum")
        return counts

    def peek(self) -> str:
        return self.source[self.position : self.position + 1]

    def take(self) -> str:
        char = self.peek()
        self.position += len(char)
        return char

    def skip(self, char: str) -> bool:
        is_there = self.peek() == char
        self.position += is_there
        return is_there


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][1] - ranges[0][0] == 1


def _category(letter: str, is_negated: bool) -> Ranges:
    """What both dialects put in a category or, where that is taken away, what either does."""
    is_wide = letter.isupper() is not is_negated
    ranges = chars.category(letter.lower(), is_ascii=not is_wide)
    if is_wide and letter in "sS":
        ranges = chars.union([*ranges, *chars.single("\ufeff")])
    return chars.complement(ranges) if letter.isupper() else ranges
