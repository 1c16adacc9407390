"""What all dialects of regular expressions share: groups, alternatives, classes and repeats.

`Reader` reads a pattern as a tree. A dialect is a subclass: it says what escapes, anchors and flags
mean to it, and makes the errors.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from . import chars
from .atomic import without_backtracking
from .backreferences import Unbounded, expanded
from .chars import Ranges
from .errors import AHEAD_IN_LOOKBEHIND
from .tree import (
    END,
    LAST,
    LINE_END,
    LINE_START,
    START,
    Alt,
    Back,
    Capture,
    Lookaround,
    Loop,
    Seq,
    Set,
    Tree,
)

DIGITS = "0123456789"
HEX = "0123456789abcdefABCDEF"
_LOOKS = {"=": (True, True), "!": (True, False), "<=": (False, True), "<!": (False, False)}
_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_BRACES = re.compile(r"([0-9]*)(,?)([0-9]*)\}")
_NO_NEWLINE = chars.complement(chars.single("\n"))
_BLANKS = " \t\n\r\f\v"
_UNDEFINED = "a backreference to an undefined group"


@dataclass(frozen=True, slots=True)
class Flags:
    """What `(?i)`, `(?s)`, `(?m)`, `(?x)`, `(?a)` and `(?u)` set.

    is_ascii: `\\d`, `\\w` and `\\s` are ASCII, and only its letters have cases.
    """

    ignore_case: bool = False
    dot_all: bool = False
    is_ascii: bool = True
    is_multiline: bool = False
    verbose: bool = False


class Escape(NamedTuple):
    """The characters of an escape; is_category: a whole category, not one character."""

    ranges: Ranges
    is_category: bool = False


@dataclass(slots=True)
class Group:
    """An open group: where it began, and what it was read as so far.

    number: of a group that captures, or 0. look: of lookaround, whether it looks ahead and whether
    a match is wanted. num_lazy: of lazy repeats before it. can_repeat: whether the last item may be
    repeated.
    """

    start: int
    flags: Flags
    number: int = 0
    look: tuple[bool, bool] | None = None
    is_atomic: bool = False
    num_lazy: int = 0
    options: list[Tree] = field(default_factory=list)
    items: list[Tree] = field(default_factory=list)
    can_repeat: bool = False

    def tree(self) -> Tree:
        """The contents of the group."""
        options = [*self.options, _seq(self.items)]
        return options[0] if len(options) == 1 else Alt(tuple(options))


class Reader(ABC):
    """A pattern and a position in it."""

    _repeatable = "bB"  # anchors that may be repeated
    _lazy_in_atomic = "lazy repeats in atomic groups"

    def __init__(self, pattern: str, flags: Flags) -> None:
        self.pattern = pattern
        self.position = 0
        self.groups = [Group(0, flags)]
        self.numbers: dict[str, int] = {}  # of named groups
        self._num_captures = 0
        self._closed: set[int] = set()
        self._ignores_case = False
        self._num_lazy = 0
        self._sets: dict[Ranges, Set] = {}

    @abstractmethod
    def fault(self, position: int, what: str) -> Exception:
        """The error for text that is not a regular expression."""

    @abstractmethod
    def unsupported(self, position: int, what: str) -> Exception:
        """The error for what the dialect can do and an automaton cannot."""

    @abstractmethod
    def _check_depth(self, depth: int) -> None:
        """Raise where there are too many groups inside groups."""

    @abstractmethod
    def _check_count(self, low: str, high: str, position: int) -> None:
        """Raise where a count in braces is too large. low: "" where it is missing."""

    def _name_error(self, name: str, position: int) -> Exception | None:
        """The error of a group's name, if it has one."""
        is_bad = not name.isidentifier() or name in self.numbers
        return self.fault(position, "a bad group name") if is_bad else None

    @abstractmethod
    def _group_number(self) -> int:
        """Go past the rest of a backreference after its backslash; 0, and nowhere, where there is
        none."""

    @abstractmethod
    def _escape(self, is_negated: bool | None = None) -> Escape:
        """Read what follows a backslash. is_negated: of the class that it is in; None: in none."""

    @abstractmethod
    def _boundary(self, is_wanted: bool) -> Tree:
        """A word boundary, or any position but one."""

    def _end(self) -> Tree:
        """What `$` means where it is not the end of a line."""
        return LAST

    @abstractmethod
    def _extension(self, group: Group) -> bool:
        """Read what follows `(?` in this dialect only; whether it opens a group."""

    def read(self) -> Tree:
        """The tree of all of it, without captures and backreferences."""
        while (position := self.position) < len(self.pattern):
            self._item(self.take(), position)
        if len(self.groups) > 1:
            raise self.fault(self.groups[-1].start, "an unclosed group")
        tree = self.groups[0].tree()
        fold = partial(chars.fold, is_ascii=self.groups[0].flags.is_ascii)
        try:
            if self._num_captures:
                return expanded(tree, fold if self._ignores_case else None)
        except Unbounded as error:
            what = f"backreferences to anything but {error.what}"
            raise self.unsupported(error.position, what) from None
        return tree

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
        is_there = self.pattern.startswith(text, self.position)
        self.position += len(text) * is_there
        return is_there

    def take_while(self, allowed: str, at_most: int | None = None) -> str:
        """Go past characters that are allowed."""
        start, end = self.position, len(self.pattern)
        end = end if at_most is None else min(end, start + at_most)
        while self.position < end and self.pattern[self.position] in allowed:
            self.position += 1
        return self.pattern[start : self.position]

    def until(self, end: str, opened_at: int) -> str:
        """Go past `end`; the text before it."""
        found = self.pattern.find(end, self.position)
        if found < 0:
            raise self.fault(opened_at, f"a missing {end}")
        text = self.pattern[self.position : found]
        self.position = found + len(end)
        return text

    def _add(self, item: Tree, can_repeat: bool = True) -> None:
        group = self.groups[-1]
        group.items.append(item)
        group.can_repeat = can_repeat

    def _add_set(self, ranges: Ranges) -> None:
        """Add any one of these characters, one object for equal sets."""
        self._add(self._sets.setdefault(ranges, Set(ranges)))

    def unicode_property(self, start: int) -> Escape:
        """Read a general category of Unicode after `\\p` or `\\P`, which begins at `start`."""
        name = self.until("}", start) if self.skip("{") else self.take()
        ranges = chars.unicode_property(name)
        if not ranges:
            raise self.unsupported(start, "Unicode properties that are no general category")
        is_negated = self.pattern[start + 1] == "P"
        return Escape(chars.complement(ranges) if is_negated else ranges, is_category=True)

    def character_class(self) -> Ranges:
        """Read a class whose opening bracket was taken, with its closing one."""
        start, is_negated = self.position - 1, self.skip("^")
        explicit: list[tuple[int, int]] = []
        categories: list[tuple[int, int]] = []
        is_first = True
        while is_first or not self.skip("]"):
            is_first = False
            low = self._member(start, is_negated)
            if self.peek() == "-" and self.pattern[self.position + 1 :][:1] not in ("]", ""):
                self.take()
                high = self._member(start, is_negated)
                if low.is_category or high.is_category or low.ranges[0][0] > high.ranges[0][0]:
                    raise self.fault(start, "a bad character range")
                explicit.append((low.ranges[0][0], high.ranges[0][1]))
            else:
                (categories if low.is_category else explicit).extend(low.ranges)
        ranges = chars.union([*self._folded(chars.union(explicit)), *categories])
        return chars.complement(ranges) if is_negated else ranges

    def _braces(self) -> re.Match[str] | None:
        """What follows a brace that opens a count; None: the brace stands for itself."""
        found = _BRACES.match(self.pattern, self.position)
        return found if found and (found[1] or found[2]) else None

    def _item(self, char: str, position: int) -> None:
        if self.groups[-1].flags.verbose and (char in _BLANKS or char == "#"):
            while char == "#" and self.peek() not in ("", "\n"):
                self.take()
        elif char == "(":
            self._open(position)
        elif char == ")":
            self._close(position)
        elif char == "|":
            group = self.groups[-1]
            group.options.append(_seq(group.items))
            group.items, group.can_repeat = [], False
        elif char in "*+?" or (char == "{" and self._braces()):
            self._repeat(char, position)
        elif char in "^$":
            self._anchor(char, position)
        elif char == "\\":
            self._backslash(position)
        else:
            self._add_set(self._characters(char))

    def _characters(self, char: str) -> Ranges:
        if char == ".":
            return chars.EVERYTHING if self.groups[-1].flags.dot_all else _NO_NEWLINE
        return self.character_class() if char == "[" else self._folded(chars.single(char))

    def _folded(self, ranges: Ranges) -> Ranges:
        flags = self.groups[-1].flags
        return chars.fold(ranges, flags.is_ascii) if flags.ignore_case else ranges

    def _backslash(self, position: int) -> None:
        letter = self.peek()
        if letter in ("A", "Z", "b", "B"):
            self._anchor(self.take(), position)
        elif number := self._group_number():
            self._back(number, position)
        else:
            escape = self._escape()
            self._add_set(escape.ranges if escape.is_category else self._folded(escape.ranges))

    def _member(self, start: int, is_negated: bool) -> Escape:
        if not self.peek():
            raise self.fault(start, "an unclosed class")
        if not self.skip("\\"):
            return Escape(chars.single(self.take()))
        return Escape(chars.single("\b")) if self.skip("b") else self._escape(is_negated)

    def _back(self, number: int, position: int) -> None:
        if number not in self._closed:
            raise self.fault(position, _UNDEFINED)
        self._ignores_case |= self.groups[-1].flags.ignore_case
        self._add(Back(number, position))

    def _anchor(self, char: str, position: int) -> None:
        if char not in "^A" and self._is_behind():
            raise self.unsupported(position, AHEAD_IN_LOOKBEHIND)
        if char in "bB":
            found = self._boundary(char == "b")
        elif self.groups[-1].flags.is_multiline and char in "^$":
            found = LINE_START if char == "^" else LINE_END
        else:
            found = START if char in "^A" else self._end() if char == "$" else END
        self._add(found, can_repeat=char in self._repeatable)

    def _is_behind(self) -> bool:
        """Whether a lookbehind is open."""
        return any(group.look and not group.look[0] for group in self.groups)

    def _open(self, position: int) -> None:
        group = Group(position, self.groups[-1].flags, num_lazy=self._num_lazy)
        if not self.skip("?"):
            group.number = self._num_captures = self._num_captures + 1
        elif not self._after_question(group):
            return
        self.groups.append(group)
        self._check_depth(len(self.groups) - 1)

    def _after_question(self, group: Group) -> bool:
        """Read what follows `(?`; whether it opens a group."""
        if self.skip("P="):
            name = self.until(")", group.start)
            if name not in self.numbers:
                raise self.fault(group.start, _UNDEFINED)
            self._back(self.numbers[name], group.start)
            return False
        if self.skip(":"):
            return True
        if self.skip(">"):
            group.is_atomic = True
            return True
        for sign, look in _LOOKS.items():
            if self.skip(sign):
                self._look(group, *look)
                return True
        if self.skip("P<") or self.skip("<"):
            name = self.until(">", group.start)
            if error := self._name_error(name, group.start):
                raise error
            group.number = self._num_captures = self._num_captures + 1
            self.numbers[name] = 0 if name in self.numbers else group.number
            return True
        return self._extension(group)

    def _look(self, group: Group, is_ahead: bool, is_wanted: bool) -> None:
        """Make a group lookaround."""
        if is_ahead and self._is_behind():
            raise self.unsupported(group.start, AHEAD_IN_LOOKBEHIND)
        group.look = is_ahead, is_wanted

    def _close(self, position: int) -> None:
        if len(self.groups) == 1:
            raise self.fault(position, "a ) without a group")
        group = self.groups.pop()
        tree = group.tree()
        if group.look is not None:
            tree = Lookaround(tree, *group.look)
        elif group.is_atomic:
            if self._num_lazy > group.num_lazy:
                raise self.unsupported(group.start, self._lazy_in_atomic)
            tree = self._atomic(tree, group.start, "atomic groups")
        elif group.number:
            self._closed.add(group.number)
            tree = Capture(tree, group.number)
        self._add(tree)

    def _atomic(self, tree: Tree, position: int, what: str) -> Tree:
        found = without_backtracking(tree)
        if found is None:
            raise self.unsupported(position, f"{what} of more than repeated characters")
        return found

    def _repeat(self, char: str, position: int) -> None:
        group = self.groups[-1]
        if not group.can_repeat:
            raise self.fault(position, "nothing to repeat")
        low, high = self._counts(position) if char == "{" else _COUNTS[char]
        is_possessive = self.skip("+")
        if not is_possessive:
            self._num_lazy += self.skip("?")
        tree: Tree = Loop(group.items.pop(), low, high)
        if is_possessive:
            tree = self._atomic(tree, position, "possessive repeats")
        self._add(tree, can_repeat=False)

    def _counts(self, position: int) -> tuple[int, int | None]:
        """Go past a count whose brace was taken: the least and the most, None without end."""
        found = self._braces()
        assert found is not None
        self.position = found.end()
        low, high = found[1] or "0", found[3] if found[2] else found[1]
        self._check_count(found[1], high, position)
        if high and int(low) > int(high):
            raise self.fault(position, "a minimum count above the maximum")
        return int(low), int(high) if high else None


def _seq(items: list[Tree]) -> Tree:
    return items[0] if len(items) == 1 else Seq(tuple(items))
