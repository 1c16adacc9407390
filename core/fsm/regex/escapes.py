"""The small print of a pattern: escapes, classes in brackets and counts in braces, as in `re`."""

from __future__ import annotations

from typing import NamedTuple

from ...api.protocol import InvalidCall
from . import chars
from .chars import Ranges
from .errors import invalid_pattern, unsupported_pattern
from .limits import Meter

OCTAL = "01234567"
DIGITS = "0123456789"
HEX = "0123456789abcdefABCDEF"
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NUM_HEX = {"x": 2, "u": 4, "U": 8}
_UNSUPPORTED = {
    "N": "characters by name",
}


class Escape(NamedTuple):
    """The characters of an escape; is_category: a whole category, not one character."""

    ranges: Ranges
    is_category: bool = False


class Reader:
    """A pattern and a position in it; the errors it makes name the position."""

    def __init__(self, pattern: str, meter: Meter) -> None:
        self.pattern = pattern
        self.length = len(pattern)
        self.position = 0
        self.meter = meter

    def peek(self) -> str:
        """The next character, or "" at the end."""
        return self.pattern[self.position : self.position + 1]

    def take(self) -> str:
        """Go past the next character; "" at the end."""
        char = self.peek()
        self.position += len(char)
        return char

    def skip(self, text: str) -> bool:
        """Go past `text`; whether it was there."""
        if not self.pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def take_while(self, allowed: str, at_most: int | None = None) -> str:
        """Go past characters that are allowed."""
        start = self.position
        end = self.length if at_most is None else min(self.length, start + at_most)
        while self.position < end and self.pattern[self.position] in allowed:
            self.position += 1
        return self.pattern[start : self.position]

    def take_many(self, count: int) -> str:
        """Go past so many characters."""
        self.position += count
        return self.pattern[self.position - count : self.position]

    def until(self, end: str, opened_at: int) -> str:
        """Go past `end`; the text before it."""
        found = self.pattern.find(end, self.position)
        if found < 0:
            raise self.fault(opened_at, f"a missing {end}")
        text = self.pattern[self.position : found]
        self.position = found + len(end)
        return text

    def low_surrogate(self) -> int:
        """Go past an escape of the second half of a surrogate pair; 0, and nowhere, where none
        follows."""
        digits = self.pattern[self.position + 2 : self.position + 6]
        if not (self.pattern.startswith("\\u", self.position) and set(digits) <= set(HEX)):
            return 0
        code = int(digits or "0", 16)
        is_low = len(digits) == 4 and 0xDC00 <= code < 0xE000
        self.position += 6 * is_low
        return code * is_low

    def is_repeat(self) -> bool:
        """Whether the brace just taken opens a count; `re` reads any other brace as itself."""
        start = self.position
        first = self.take_while(DIGITS)
        has_comma = self.skip(",")
        self.take_while(DIGITS)
        is_count = self.skip("}") and bool(first or has_comma)
        self.position = start
        return is_count

    def repeat(self, opened_at: int) -> tuple[int, int | None]:
        """Go past a count whose brace was taken: the least and the most, None without end."""
        low = self.take_while(DIGITS) or "0"
        high = self.take_while(DIGITS) if self.skip(",") else low
        self.skip("}")
        longest = max(len(low.lstrip("0")), len(high.lstrip("0")))
        cap = self.meter.limits.repeat
        if longest > len(str(cap)):
            raise self.meter.refuse(f"counts of at most {cap}; one has {longest} digits")
        self.meter.check_limit(max(int(low), int(high or 0)), cap, "repeats in a count")
        if high and int(low) > int(high):
            raise self.fault(opened_at, "a minimum count above the maximum")
        return int(low), int(high) if high else None

    def group_number(self) -> int:
        """Go past the digits of a backreference; 0, and nowhere, where they are none."""
        start = self.position
        digits = self.take_while(DIGITS, 2)
        is_octal = digits[0] == "0" or (
            len(digits) == 2 and set(digits) <= set(OCTAL) and (self.peek() or "x") in OCTAL
        )
        if is_octal:
            self.position = start
        return 0 if is_octal else int(digits)

    def fault(self, position: int, what: str) -> InvalidCall:
        """The error for text that is not a regular expression."""
        return self.meter.refuse(invalid_pattern(self.pattern, position, what))

    def unsupported(self, position: int, what: str) -> InvalidCall:
        """The error for what `re` can do and an automaton cannot."""
        return self.meter.refuse(unsupported_pattern(self.pattern, position, what))


def read_escape(reader: Reader, is_ascii: bool, in_class: bool = False) -> Escape:
    """Read what follows a backslash."""
    start = reader.position - 1
    if reader.peek() in DIGITS and reader.peek():
        return _number(reader, start, in_class)
    letter = reader.take()
    if letter and letter in "dDwWsS":
        return Escape(chars.category(letter, is_ascii), is_category=True)
    if letter == "b" and in_class:
        return Escape(chars.single("\b"))
    if letter in _CONTROL:
        return Escape(chars.single(_CONTROL[letter]))
    if letter in ("p", "P"):
        ranges = _property(reader, start)
        return Escape(chars.complement(ranges) if letter == "P" else ranges, is_category=True)
    if letter in _NUM_HEX:
        return _hex(reader, start, _NUM_HEX[letter])
    if letter in _UNSUPPORTED:
        raise reader.unsupported(start, _UNSUPPORTED[letter])
    if not letter or (letter.isascii() and letter.isalpha()):
        raise reader.fault(start, "an escape that `re` does not know")
    return Escape(chars.single(letter))


def read_class(reader: Reader, ignore_case: bool, is_ascii: bool) -> Ranges:
    """Read a class whose opening bracket was taken, with its closing one."""
    start = reader.position - 1
    is_negated = reader.skip("^")
    ranges: list[tuple[int, int]] = []
    categories: list[tuple[int, int]] = []
    is_first = True
    while is_first or reader.peek() != "]":
        is_first = False
        if not reader.peek():
            raise reader.fault(start, "an unclosed class")
        low = _member(reader, is_ascii)
        if reader.peek() == "-" and reader.pattern[reader.position + 1 :][:1] not in ("]", ""):
            ranges.append(_range(reader, low, start, is_ascii))
        else:
            (categories if low.is_category else ranges).extend(low.ranges)
    reader.take()
    explicit = chars.union(ranges)
    explicit = chars.fold(explicit, is_ascii) if ignore_case else explicit
    whole = chars.union([*explicit, *categories])
    return chars.complement(whole) if is_negated else whole


def _member(reader: Reader, is_ascii: bool) -> Escape:
    if reader.skip("\\"):
        return read_escape(reader, is_ascii, in_class=True)
    return Escape(chars.single(reader.take()))


def _range(reader: Reader, low: Escape, start: int, is_ascii: bool) -> tuple[int, int]:
    """Read the end of a range that begins with `low`, from its dash on."""
    reader.take()
    high = _member(reader, is_ascii)
    if low.is_category or high.is_category or low.ranges[0][0] > high.ranges[0][0]:
        raise reader.fault(start, "a bad character range")
    return low.ranges[0][0], high.ranges[0][1]


def _number(reader: Reader, start: int, in_class: bool) -> Escape:
    """An octal character; `re` decides what is one and what is a backreference."""
    after_digits = reader.position
    digits = reader.take_while(OCTAL, 3)
    is_octal = bool(digits) and (in_class or len(digits) == 3 or digits[0] == "0")
    if not is_octal:
        reader.position = after_digits
        if in_class:
            raise reader.fault(start, "a bad octal escape")
        raise reader.unsupported(start, "backreferences")
    if int(digits, 8) > 0o377:
        raise reader.fault(start, "an octal escape over 377")
    return Escape(chars.single(chr(int(digits, 8))))


def _property(reader: Reader, start: int) -> Ranges:
    """A general category of Unicode, or one of its scripts that every reader knows."""
    name = reader.until("}", start) if reader.skip("{") else reader.take()
    ranges = chars.unicode_property(name)
    if not ranges:
        raise reader.unsupported(start, "Unicode properties that are no general category")
    return ranges


def _hex(reader: Reader, start: int, num_digits: int) -> Escape:
    digits = reader.take_while(HEX, num_digits)
    if len(digits) < num_digits or int(digits, 16) >= chars.END:
        raise reader.fault(start, f"an escape that needs {num_digits} hexadecimal digits")
    code = int(digits, 16)
    if 0xD800 <= code < 0xDC00 and (low := reader.low_surrogate()):
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
    return Escape(chars.single(chr(code)))
