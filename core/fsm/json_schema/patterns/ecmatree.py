"""The keyword `pattern` as a tree: with lookaround, boundaries and anchors at any place.

What only one of ECMA-262 and Python can read at all means what it means there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...regex import chars
from ...regex.atomic import without_backtracking
from ...regex.backreferences import Unbounded, expanded
from ...regex.chars import Ranges
from ...regex.errors import AHEAD_IN_LOOKBEHIND
from ...regex.tree import (
    END,
    LAST,
    LINE_END,
    LINE_START,
    NEWLINE,
    NOTHING,
    START,
    Alt,
    Back,
    Capture,
    Lookaround,
    Loop,
    Seq,
    Set,
    Tree,
    boundary,
    no_boundary,
)
from .ecmachars import Scanner
from .spelling import common
from .strings import ANY_CHAR

MAX_DEPTH = 30
_LOOKS = {"?<=": (False, True), "?<!": (False, False), "?=": (True, True), "?!": (True, False)}
_ANYTHING = Loop(Set(ANY_CHAR.ranges), 0, None)


def read_tree(source: str, is_wide: bool) -> Tree:
    """The texts in which a pattern is found, as in `ecma.read_pattern`. Raises InvalidSchema."""
    reader = _TreeReader(source, is_wide)
    tree = reader.whole()
    try:
        tree = expanded(tree, reader.fold if reader.ignores_case else None)
    except Unbounded as error:
        what = f"backreferences to anything but {error.what}"
        raise reader.unsupported(error.position, what) from None
    return Seq((_ANYTHING, _at_end(tree), _ANYTHING))


def _at_end(tree: Tree) -> Tree:
    """The same where `$` at the end, before which Python allows a line break, takes it."""
    match tree:
        case Alt() if tree == LAST:
            return Seq((Loop(NEWLINE, 0, 1), END))
        case Seq(items) if items:
            return Seq((*items[:-1], _at_end(items[-1])))
        case Alt(options):
            return Alt(tuple(map(_at_end, options)))
        case Capture(item, number):
            return Capture(_at_end(item), number)
    return tree


@dataclass(slots=True)
class _Groups:
    """The groups that capture: how many there are, by name, and those that are closed. num_lazy: of
    the lazy repeats so far. num_behind: of the lookbehinds that are open."""

    number: int = 0
    names: dict[str, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    num_lazy: int = 0
    num_behind: int = 0


class _TreeReader(Scanner):
    """Reads a regular expression as its tree."""

    def __init__(self, source: str, is_wide: bool) -> None:
        super().__init__(source, is_wide)
        self._groups = _Groups()
        self._is_multiline = False

    def whole(self) -> Tree:
        """The tree of all of it."""
        self._flags()
        tree = self._either(0)
        if self.position < len(self.source):
            raise self.fault(self.position, "a ) without a group")
        return tree

    def fold(self, ranges: Ranges) -> Ranges:
        """A set, and what differs from one of its characters only by case."""
        return chars.fold(ranges, is_ascii=not self.is_wide)

    def _flags(self) -> None:
        """Flags at the start, which only Python knows."""
        if not self.source.startswith("(?"):
            return
        letters, found, _ = self.source[2:].partition(")")
        if found and letters and set(letters) <= set("imsau"):
            self.ignores_case, self.dot_all = "i" in letters, "s" in letters
            self._is_multiline = "m" in letters
            self.position = len(letters) + 3

    def _either(self, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise self.unsupported(self.position, f"a group deeper than {MAX_DEPTH}")
        options = [self._row(depth)]
        while self.skip("|"):
            options.append(self._row(depth))
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def _row(self, depth: int) -> Tree:
        items: list[Tree] = []
        while self.peek() not in ("", "|", ")"):
            items.append(self._item(depth))
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def _item(self, depth: int) -> Tree:
        start, num_lazy = self.position, self._groups.num_lazy
        anchor = self._anchor(start)
        if anchor is not None:
            return anchor
        char = self.take()
        if char == "(":
            tree = self._group(depth, start)
        elif char == "\\" and (number := self._back_number()):
            tree = self._back(number, start)
        else:
            ranges = self.atom(char)
            tree = Set(ranges) if ranges else NOTHING
        suffix_start = self.position
        counts = self.counts()
        if counts is None:
            return tree
        suffix = self.suffix(suffix_start)
        if suffix == "+":
            return self._atomic(Loop(tree, *counts), num_lazy, suffix_start, "possessive repeats")
        self._groups.num_lazy += bool(suffix)
        return Loop(tree, *counts)

    def _anchor(self, start: int) -> Tree | None:
        """Read an anchor or a boundary; None: there is none."""
        found = self.peek()
        if found == "\\":
            found = self.source[start + 1 : start + 2]
            if found not in ("b", "B", "A", "Z") or not found:
                return None
            self.take()
        elif found not in ("^", "$"):
            return None
        self.take()
        if found not in "^A" and self._groups.num_behind:
            raise self.unsupported(start, AHEAD_IN_LOOKBEHIND)
        if found in "^A":
            return LINE_START if self._is_multiline and found == "^" else START
        if found in "$Z":
            end = LAST if self.is_wide and found == "$" else END
            return LINE_END if self._is_multiline and found == "$" else end
        return self._boundary(found == "b")

    def _boundary(self, is_wanted: bool) -> Tree:
        """Of words in ASCII, as ECMA-262 has it, and in Unicode, as Python has: both, or either."""
        word = common(chars.category("w", True), ANY_CHAR.ranges)
        wide = common(chars.category("w", False), ANY_CHAR.ranges)
        other = common(chars.complement(wide), ANY_CHAR.ranges)
        not_word = common(chars.complement(word), ANY_CHAR.ranges)
        if is_wanted and not self.is_wide:
            return boundary(word, other)
        if is_wanted:
            return Alt((boundary(word), boundary(wide)))
        if not self.is_wide:
            return no_boundary(word, common(wide, not_word), other)
        return Alt((no_boundary(word, not_word), no_boundary(wide, other), Seq((START, END))))

    def _group(self, depth: int, start: int) -> Tree:
        for opening, look in _LOOKS.items():
            if self.source.startswith(opening, self.position):
                self.position += len(opening)
                return self._look(depth, start, *look)
        groups = self._groups
        number, num_lazy, is_atomic = 0, groups.num_lazy, False
        if self.skip("?"):
            if self.source.startswith("P=", self.position):
                return self._named_back(start)
            if self.skip(">"):
                is_atomic = True
            elif not self.skip(":"):
                number = self._name(start)
        else:
            number = groups.number = groups.number + 1
        tree = self._either(depth + 1)
        if not self.skip(")"):
            raise self.fault(start, "an unclosed group")
        if is_atomic:
            return self._atomic(tree, num_lazy, start, "atomic groups")
        groups.closed.add(number)
        return Capture(tree, number) if number else tree

    def _look(self, depth: int, start: int, is_ahead: bool, is_wanted: bool) -> Tree:
        if is_ahead and self._groups.num_behind:
            raise self.unsupported(start, AHEAD_IN_LOOKBEHIND)
        self._groups.num_behind += not is_ahead
        self.is_wide ^= not is_wanted
        tree = self._either(depth + 1)
        self.is_wide ^= not is_wanted
        self._groups.num_behind -= not is_ahead
        if not self.skip(")"):
            raise self.fault(start, "an unclosed group")
        return Lookaround(tree, is_ahead, is_wanted)

    def _atomic(self, tree: Tree, num_lazy: int, start: int, what: str) -> Tree:
        found = without_backtracking(tree) if num_lazy == self._groups.num_lazy else None
        if found is None:
            raise self.unsupported(start, f"{what} of more than repeated characters")
        return found

    def _name(self, start: int) -> int:
        self.skip("P")
        name, found, _ = self.source[self.position :].partition(">")
        is_name = found and name[:1] == "<" and name[1:].isidentifier()
        if not is_name or name[1:] in self._groups.names:
            raise self.unsupported(start, "special groups")
        self.position += len(name) + 1
        self._groups.number += 1
        self._groups.names[name[1:]] = self._groups.number
        return self._groups.number

    def _back_number(self) -> int:
        """Read what a backslash makes a backreference of; 0: it makes none."""
        if self.source.startswith("k<", self.position):
            name, found, _ = self.source[self.position + 2 :].partition(">")
            if not found or name not in self._groups.names:
                raise self.fault(self.position - 1, "a backreference to an undefined group")
            self.position += len(name) + 3
            return self._groups.names[name]
        digits = ""
        while self.source[self.position + len(digits) :][:1].isdecimal() and len(digits) < 2:
            digits += self.source[self.position + len(digits)]
        if not digits or digits[0] == "0":
            return 0
        self.position += len(digits)
        return int(digits)

    def _named_back(self, start: int) -> Tree:
        name, found, _ = self.source[self.position + 2 :].partition(")")
        if not found or name not in self._groups.names:
            raise self.fault(start, "a backreference to an undefined group")
        self.position += len(name) + 3
        return self._back(self._groups.names[name], start)

    def _back(self, number: int, start: int) -> Tree:
        if number not in self._groups.closed:
            raise self.fault(start, "a backreference to an undefined group")
        return Back(number, start)
