"""The keyword `pattern`: a regular expression that is searched for, read as a set of texts.

The texts are those that both the regular expressions of ECMA-262 and those of Python find: `\\d`,
`\\w` and `\\s` stand for ASCII, their opposites leave out all of Unicode's. Read wide, they are
those that either finds, for patterns that must not be found. What only one of the two can read at
all means what it means there. What no automaton can honour is refused by name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from ...regex import chars
from ...regex.chars import Ranges
from ...regex.errors import InvalidSchema, invalid_pattern, unsupported_pattern
from ...regex.reader import DIGITS, HEX, Escape, Flags, Group, Reader
from ...regex.tree import END, LAST, NOTHING, START, Alt, Seq, Tree, boundary, no_boundary
from .automata import texts_of
from .spelling import SURROGATES, common
from .strings import ANY_CHAR

MAX_LENGTH = 10_000
MAX_DEPTH = 30
MAX_COUNT = 10_000
LINE_ENDS = chars.union(chars.single(end)[0] for end in "\n\r\u2028\u2029")
_FLAGS = re.compile(r"\(\?([imsau]+)\)")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_NUM_HEX = {"x": 2, "u": 4}
_NAMED = {"p": "Unicode properties", "P": "Unicode properties", "k": "backreferences"}
_NAMED |= {"B": "word boundaries", "A": "\\A", "Z": "\\Z"}  # in a class


@lru_cache(maxsize=256)
def read_pattern(source: str, is_wide: bool = False) -> Tree:
    """The texts in which this regular expression is found by both dialects; with `is_wide` those in
    which either finds it. Raises InvalidSchema."""
    if len(source) > MAX_LENGTH:
        raise InvalidSchema(f"patterns of at most {MAX_LENGTH} characters")
    return texts_of(_EcmaReader(source, is_wide).read(), source)


class _EcmaReader(Reader):
    """Read wide, a set holds what either dialect takes for it, otherwise what both do: the flag
    `is_ascii` says which. Flags at the start are those of Python."""

    _repeatable = ""
    _lazy_in_atomic = "atomic groups of more than repeated characters"

    def __init__(self, pattern: str, is_wide: bool) -> None:
        found = _FLAGS.match(pattern)
        letters = found[1] if found else ""
        super().__init__(
            pattern, Flags("i" in letters, "s" in letters, not is_wide, "m" in letters)
        )
        self.position = found.end() if found else 0

    @property
    def _is_wide(self) -> bool:
        return not self.groups[-1].flags.is_ascii

    def fault(self, position: int, what: str) -> InvalidSchema:
        return InvalidSchema(invalid_pattern(self.pattern, position, what, " in `re` and ECMA-262"))

    def unsupported(self, position: int, what: str) -> InvalidSchema:
        return InvalidSchema(unsupported_pattern(self.pattern, position, what))

    def until(self, end: str, opened_at: int) -> str:
        """Go past `end`; the text before it, or "" where there is no `end`."""
        has_end = end in self.pattern[self.position :]
        return super().until(end, opened_at) if has_end else ""

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self.unsupported(self.position, f"a group deeper than {MAX_DEPTH}")

    def _check_count(self, low: str, high: str, position: int) -> None:
        if not low and self._is_wide:
            raise self.unsupported(position, "a count without its least")
        if max(int(low or 0), int(high or 0)) > MAX_COUNT:
            raise self.unsupported(position, f"counts over {MAX_COUNT}")

    def _braces(self) -> re.Match[str] | None:
        """To both dialects, a brace after nothing that can be repeated stands for itself."""
        found = super()._braces()
        return found if found and len(found[0]) < 14 and self.groups[-1].can_repeat else None

    def _name_error(self, name: str, position: int) -> InvalidSchema | None:
        return None if name.isidentifier() else self.unsupported(position, "special groups")

    def _extension(self, group: Group) -> bool:
        raise self.unsupported(group.start, "special groups")

    def _look(self, group: Group, is_ahead: bool, is_wanted: bool) -> None:
        super()._look(group, is_ahead, is_wanted)
        if not is_wanted:
            group.flags = replace(group.flags, is_ascii=not group.flags.is_ascii)

    def _add_set(self, ranges: Ranges) -> None:
        if ranges := common(ranges, ANY_CHAR.ranges):
            super()._add_set(ranges)
        else:
            self._add(NOTHING)

    def _end(self) -> Tree:
        return LAST if self._is_wide else END

    def _boundary(self, is_wanted: bool) -> Tree:
        """Of words in ASCII, as ECMA-262 has it, and in Unicode, as Python has: both, or either."""
        word = common(chars.category("w", True), ANY_CHAR.ranges)
        wide = common(chars.category("w", False), ANY_CHAR.ranges)
        other = common(chars.complement(wide), ANY_CHAR.ranges)
        not_word = common(chars.complement(word), ANY_CHAR.ranges)
        if is_wanted and not self._is_wide:
            return boundary(word, other)
        if is_wanted:
            return Alt((boundary(word), boundary(wide)))
        if not self._is_wide:
            return no_boundary(word, common(wide, not_word), other)
        return Alt((no_boundary(word, not_word), no_boundary(wide, other), Seq((START, END))))

    def _characters(self, char: str) -> Ranges:
        if char == "." and not (self._is_wide or self.groups[-1].flags.dot_all):
            return chars.complement(LINE_ENDS)
        return super()._characters(char)

    def character_class(self) -> Ranges:
        """Read a class; `[]` and `[^]` only where Python cannot take the bracket for a member."""
        if not self.pattern.startswith(("]", "^]"), self.position):
            return super().character_class()
        start, is_negated = self.position - 1, self.skip("^")
        self.take()
        if "]" in self.pattern[self.position :]:
            raise self.unsupported(start, "an empty class")
        return chars.EVERYTHING if is_negated else ()

    def _group_number(self) -> int:
        start = self.position
        if self.skip("k<"):
            name = self.until(">", start)
            if name not in self.numbers:
                raise self.fault(start - 1, "a backreference to an undefined group")
            return self.numbers[name]
        return 0 if self.peek() == "0" else int(self.take_while(DIGITS, 2) or 0)

    def _escape(self, is_negated: bool | None = None) -> Escape:
        start, char = self.position - 1, self.take()
        if char and char in "dDwWsS":
            ranges = _category(char, bool(is_negated) is not self._is_wide)
            return Escape(self._folded(ranges), is_category=True)
        if char in ("p", "P") and self.peek() == "{":
            found = self.unicode_property(start)
            return found._replace(ranges=self._folded(found.ranges))
        if char in _NUM_HEX:
            return self._code(start, _NUM_HEX[char])
        if char == "c" and self.peek().isascii() and self.peek().isalpha():
            return Escape(chars.single(chr(ord(self.take()) % 32)))
        if char in _CONTROL and not self.peek().isdigit():
            return Escape(chars.single(_CONTROL[char]))
        if not char or char.isalnum() or not char.isascii():
            name = "backreferences" if char.isdigit() else _NAMED.get(char)
            if name is not None:
                raise self.unsupported(start, name)
            raise self.fault(start, "an escape that `re` does not know")
        return Escape(chars.single(char))

    def _code(self, start: int, num_digits: int) -> Escape:
        """A character by its number. Surrogates are no characters: no text has one."""
        digits = self.pattern[self.position : self.position + num_digits]
        size = num_digits
        if num_digits == 4 and digits[:1] == "{":
            digits = self.pattern[self.position + 1 :][:7].partition("}")[0]
            size, num_digits = len(digits) + 2, max(len(digits), 1)
        code = int(digits, 16) if digits and set(digits) <= set(HEX) else chars.END
        if len(digits) < num_digits or code >= chars.END:
            raise self.fault(start, f"an escape that needs {num_digits} hexadecimal digits")
        self.position += size
        if self._is_wide and common(((code, code + 1),), SURROGATES):
            raise self.unsupported(start, "surrogates where a match is excluded")
        return Escape(((code, code + 1),))


def _category(letter: str, is_negated: bool) -> Ranges:
    """What both dialects put in a category or, where that is taken away, what either does."""
    is_wide = letter.isupper() is not is_negated
    ranges = chars.category(letter.lower(), is_ascii=not is_wide)
    if is_wide and letter in "sS":
        ranges = chars.union([*ranges, *chars.single("\ufeff")])
    return chars.complement(ranges) if letter.isupper() else ranges
