"""The syntax of a pattern, read as `re` reads it with its flag ASCII, as a tree. `(?u)` selects
the classes and cases of Unicode.

What a pattern states about single characters (literals, classes, escapes, flags) is decided here,
as sets. Beyond `re`, lookbehind may vary in length, groups may be named as in ECMA-262 and `\\p{L}`
is known. What no automaton can honour is refused by name and position.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace

from ...api.protocol import InvalidCall
from . import chars
from .errors import invalid_pattern, unsupported_pattern
from .limits import Meter
from .reader import DIGITS, HEX, Escape, Flags, Group, Reader
from .tree import Net, Tree, boundary, no_boundary

OCTAL = "01234567"
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_NUM_HEX = {"x": 2, "u": 4, "U": 8}
_FLAGS = {"i": "ignore_case", "s": "dot_all", "a": "is_ascii", "m": "is_multiline", "x": "verbose"}


def read_syntax(pattern: str, meter: Meter, has_nets: bool = False) -> Tree:
    """Read a pattern. has_nets: it may have automata, as `strings.machine_pattern` writes them.
    Raises InvalidCall."""
    meter.check_limit(len(pattern), meter.limits.length, "characters")
    return _PythonReader(pattern, meter, has_nets).read()


class _PythonReader(Reader):
    def __init__(self, pattern: str, meter: Meter, has_nets: bool) -> None:
        super().__init__(pattern, Flags())
        self._meter = meter
        self._has_nets = has_nets

    def fault(self, position: int, what: str) -> InvalidCall:
        return self._meter.refuse(invalid_pattern(self.pattern, position, what))

    def unsupported(self, position: int, what: str) -> InvalidCall:
        return self._meter.refuse(unsupported_pattern(self.pattern, position, what))

    def _check_depth(self, depth: int) -> None:
        self._meter.check_limit(depth, self._meter.limits.depth, "groups inside groups")

    def _check_count(self, low: str, high: str, position: int) -> None:
        longest = max(len(low.lstrip("0")), len(high.lstrip("0")))
        cap = self._meter.limits.repeat
        if longest > len(str(cap)):
            raise self._meter.refuse(f"counts of at most {cap}; one has {longest} digits")
        self._meter.check_limit(max(int(low or 0), int(high or 0)), cap, "repeats in a count")

    def _boundary(self, is_wanted: bool) -> Tree:
        word = chars.category("w", self.groups[-1].flags.is_ascii)
        return boundary(word) if is_wanted else no_boundary(word, chars.complement(word))

    def _group_number(self) -> int:
        """Octal escapes are none."""
        start = self.position
        digits = self.take_while(DIGITS, 2)
        is_octal = digits[:1] == "0" or (
            len(digits) == 2 and set(digits) <= set(OCTAL) and (self.peek() or "x") in OCTAL
        )
        if is_octal:
            self.position = start
        return 0 if is_octal else int(digits or 0)

    def _escape(self, is_negated: bool | None = None) -> Escape:
        start, in_class = self.position - 1, is_negated is not None
        if self.peek() in DIGITS and self.peek():
            return self._octal(start, in_class)
        letter = self.take()
        if letter and letter in "dDwWsS":
            is_ascii = self.groups[-1].flags.is_ascii
            return Escape(chars.category(letter, is_ascii), is_category=True)
        if letter in _CONTROL:
            return Escape(chars.single(_CONTROL[letter]))
        if letter in ("p", "P"):
            return self.unicode_property(start)
        if letter in _NUM_HEX:
            return self._hex(start, _NUM_HEX[letter])
        if letter == "N":
            return self._named(start)
        if not letter or (letter.isascii() and letter.isalpha()):
            raise self.fault(start, "an escape that `re` does not know")
        return Escape(chars.single(letter))

    def _octal(self, start: int, in_class: bool) -> Escape:
        """An octal character; `re` decides what is one and what is a backreference."""
        after_digits = self.position
        digits = self.take_while(OCTAL, 3)
        is_octal = bool(digits) and (in_class or len(digits) == 3 or digits[0] == "0")
        if not is_octal:
            self.position = after_digits
            if in_class:
                raise self.fault(start, "a bad octal escape")
            raise self.unsupported(start, "backreferences")
        if int(digits, 8) > 0o377:
            raise self.fault(start, "an octal escape over 377")
        return Escape(chars.single(chr(int(digits, 8))))

    def _hex(self, start: int, num_digits: int) -> Escape:
        digits = self.take_while(HEX, num_digits)
        if len(digits) < num_digits or int(digits, 16) >= chars.END:
            raise self.fault(start, f"an escape that needs {num_digits} hexadecimal digits")
        code = int(digits, 16)
        if 0xD800 <= code < 0xDC00 and (low := self._low_surrogate()):
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        return Escape(chars.single(chr(code)))

    def _named(self, start: int) -> Escape:
        name = self.until("}", start) if self.skip("{") else ""
        try:
            return Escape(chars.single(unicodedata.lookup(name)))
        except (KeyError, TypeError):  # unknown, or the name of several characters
            raise self.fault(start, "the name of one character of Unicode") from None

    def _low_surrogate(self) -> int:
        """Go past an escape of the second half of a surrogate pair; 0, and nowhere, where none
        follows."""
        digits = self.pattern[self.position + 2 : self.position + 6]
        if not (self.pattern.startswith("\\u", self.position) and set(digits) <= set(HEX)):
            return 0
        code = int(digits or "0", 16)
        is_low = len(digits) == 4 and 0xDC00 <= code < 0xE000
        self.position += 6 * is_low
        return code * is_low

    def _extension(self, group: Group) -> bool:
        """Comments, automata and flags."""
        if self.skip("#"):
            self.until(")", group.start)
            return False
        if self._has_nets and self.skip("&"):
            self._add(self._net())
            return False
        if self.skip("("):
            raise self.unsupported(group.start, "conditions")
        flags = self._flags(group.start, group.flags)
        if flags is not None:
            group.flags = flags
        return flags is not None

    def _flags(self, position: int, flags: Flags) -> Flags | None:
        added = self.take_while("aimsuxL")
        removed = self.take_while("imsx") if self.skip("-") else None
        if not added and not removed:
            raise self.fault(position, "an unknown extension of a group")
        if "L" in added:
            raise self.unsupported(position, "the flag L")
        flags = _with(_with(flags, added, True), removed or "", False)
        if self.skip(":"):
            return flags
        if removed is not None or not self.skip(")"):
            raise self.fault(position, "a missing : after flags")
        if position:
            raise self.fault(position, "flags for all that are not at the start")
        self.groups[0].flags = flags
        return None

    def _net(self) -> Tree:
        """Read the rest of an automaton."""
        sets: list[Tree] = []
        for _ in range(self._number()):
            end = self._number() + self.position
            text, self.position = self.pattern[self.position : end], end
            sets.append(_PythonReader(text, self._meter, has_nets=False).read())
        rows: list[tuple[tuple[Tree, int], ...]] = []
        accepting: list[bool] = []
        for _ in range(self._number()):
            accepting.append(self.take() == "+")
            arcs = [(self._number(","), self._number()) for _ in range(self._number())]
            rows.append(tuple((sets[kind], to) for to, kind in arcs))
        self.take()
        return Net(tuple(rows), tuple(accepting))

    def _number(self, end: str = ";") -> int:
        return int(self.until(end, 0))


def _with(flags: Flags, letters: str, value: bool) -> Flags:
    flags = replace(flags, **{_FLAGS[letter]: value for letter in letters if letter in _FLAGS})
    return replace(flags, is_ascii=False) if "u" in letters else flags
