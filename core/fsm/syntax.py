"""The syntax of a pattern, read as `re` reads it with its flag ASCII: checked, and reduced to its
bare structure. `(?u)` asks for the classes and cases of Unicode.

What a pattern says about single characters (literals, classes, escapes, flags) is decided here,
as sets; what is left is a skeleton in which one private character stands for each set, or for each
run of sets. The skeleton uses only `( ) | * + ? {m,n}`, which every regex parser reads alike.

What cannot be honoured is refused by name and position: lookaround, backreferences, possessive
repeats, atomic groups, word boundaries, conditions, and anchors anywhere but at the very start
and end, where they say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from . import chars
from .chars import Ranges
from .escapes import Reader, read_class, read_escape
from .limits import Meter

FIRST_MARK = 0xF0000
_EXTENSIONS = {
    "=": "lookahead",
    "!": "lookahead",
    "<=": "lookbehind",
    "<!": "lookbehind",
    "P=": "backreferences",
    ">": "atomic groups",
    "(": "conditions",
}


class Skeleton(NamedTuple):
    """A pattern's structure, and what its marks stand for.

    text: the pattern, with `chr(FIRST_MARK + i)` wherever `atoms[i]` is to be matched.
    atoms: runs of character sets.
    """

    text: str
    atoms: tuple[tuple[Ranges, ...], ...]


@dataclass(frozen=True, slots=True)
class Flags:
    """What `(?i)`, `(?s)`, `(?a)` and `(?u)` set; `m` is read, and changes nothing here.

    is_ascii: `\\d`, `\\w` and `\\s` are ASCII, and only its letters have cases.
    """

    ignore_case: bool = False
    dot_all: bool = False
    is_ascii: bool = True


@dataclass(slots=True)
class _Group:
    """An open group: where it began, and what stands in its current alternative.

    can_start: an anchor `^` may stand at its beginning. is_empty: nothing stands there yet.
    end_anchor: position of a `$` that nothing may follow, or -1; anchors: position of any, or -1.
    """

    start: int
    flags: Flags
    can_start: bool
    is_empty: bool = True
    end_anchor: int = -1
    any_end_anchor: int = -1
    anchors: int = -1


def read_syntax(pattern: str, meter: Meter) -> Skeleton:
    """Reduce a pattern to its skeleton. Raises InvalidCall."""
    meter.hold(len(pattern), meter.limits.length, "characters")
    return _Scanner(pattern, meter).scan()


class _Scanner:
    def __init__(self, pattern: str, meter: Meter) -> None:
        self.reader = Reader(pattern, meter)
        self.meter = meter
        self.out: list[str] = []
        self.run: list[Ranges] = []
        self.marks: dict[tuple[Ranges, ...], str] = {}
        self.groups = [_Group(0, Flags(), can_start=True)]
        self.closed: _Group | None = None  # the group that has just been closed
        self.can_repeat = False

    def scan(self) -> Skeleton:
        reader = self.reader
        while (position := reader.position) < reader.length:
            self._item(reader.take(), position)
        if len(self.groups) > 1:
            raise reader.fault(self.groups[-1].start, "an unclosed group")
        self._flush()
        return Skeleton("".join(self.out), tuple(self.marks))

    def _item(self, char: str, position: int) -> None:
        if char == "(":
            self._open(position)
        elif char == ")":
            self._close(position)
        elif char == "|":
            self._alternative()
        elif char in "*+?" or (char == "{" and self.reader.is_repeat()):
            self._repeat(char, position)
        elif char in "^$":
            self._anchor(char == "^", position)
        elif char == "\\":
            self._escape(position)
        else:
            self._atom(self._characters(char), position)

    def _characters(self, char: str) -> Ranges:
        flags = self.groups[-1].flags
        if char == ".":
            return chars.EVERYTHING if flags.dot_all else chars.complement(chars.single("\n"))
        if char == "[":
            return read_class(self.reader, flags.ignore_case, flags.is_ascii)
        ranges = chars.single(char)
        return chars.fold(ranges, flags.is_ascii) if flags.ignore_case else ranges

    def _escape(self, position: int) -> None:
        letter = self.reader.peek()
        if letter in ("A", "Z"):
            self.reader.take()
            self._anchor(letter == "A", position)
            return
        flags = self.groups[-1].flags
        escape = read_escape(self.reader, flags.is_ascii)
        can_fold = flags.ignore_case and not escape.is_category
        ranges = chars.fold(escape.ranges, flags.is_ascii) if can_fold else escape.ranges
        self._atom(ranges, position)

    def _atom(self, ranges: Ranges, position: int) -> None:
        self._begin_item(position)
        self.run.append(ranges)
        self.can_repeat = True

    def _begin_item(self, position: int) -> None:
        group = self.groups[-1]
        if group.end_anchor >= 0:
            raise self.reader.unsupported(group.end_anchor, "an anchor before the end")
        group.is_empty = False
        self.closed = None

    def _anchor(self, is_start: bool, position: int) -> None:
        group = self.groups[-1]
        if is_start and not (group.can_start and group.is_empty):
            raise self.reader.unsupported(position, "an anchor after the start")
        if not is_start:
            group.end_anchor = group.any_end_anchor = position
        group.anchors = position
        self.can_repeat = False

    def _alternative(self) -> None:
        self._flush()
        self.out.append("|")
        group = self.groups[-1]
        group.is_empty, group.end_anchor = True, -1
        self.can_repeat = False

    def _open(self, position: int) -> None:
        flags = self.groups[-1].flags
        if self.reader.skip("?"):
            opened = self._extension(position, flags)
            if opened is None:
                return
            flags = opened
        self._flush()
        parent = self.groups[-1]
        can_start = parent.can_start and parent.is_empty
        self._begin_item(position)
        self.out.append("(")
        self.groups.append(_Group(position, flags, can_start))
        self.meter.hold(len(self.groups) - 1, self.meter.limits.depth, "groups inside groups")
        self.can_repeat = False

    def _close(self, position: int) -> None:
        if len(self.groups) == 1:
            raise self.reader.fault(position, "a ) without a group")
        self._flush()
        self.out.append(")")
        group = self.groups.pop()
        parent = self.groups[-1]
        if group.any_end_anchor >= 0:
            parent.end_anchor = parent.any_end_anchor = group.any_end_anchor
        parent.anchors = max(parent.anchors, group.anchors)
        self.closed = group
        self.can_repeat = True

    def _extension(self, position: int, flags: Flags) -> Flags | None:
        """Read what follows `(?`; None where it opens no group."""
        reader = self.reader
        if reader.skip("#"):
            reader.until(")", position)
            return None
        if reader.skip(":"):
            return flags
        if reader.skip("P<"):
            name = reader.until(">", position)
            if not name.isidentifier():
                raise reader.fault(position, "a bad group name")
            return flags
        for sign, what in _EXTENSIONS.items():
            if reader.skip(sign):
                raise reader.unsupported(position, what)
        return self._flags(position, flags)

    def _flags(self, position: int, flags: Flags) -> Flags | None:
        added = self.reader.take_while("aimsuxL")
        removed = self.reader.take_while("imsx") if self.reader.skip("-") else None
        if not added and not removed:
            raise self.reader.fault(position, "an unknown extension of a group")
        if {"x", "L"} & {*added, *(removed or "")}:
            raise self.reader.unsupported(position, "the flags x and L")
        flags = _with(_with(flags, added, True), removed or "", False)
        if self.reader.skip(":"):
            return flags
        if removed is not None or not self.reader.skip(")"):
            raise self.reader.fault(position, "a missing : after flags")
        if position:
            raise self.reader.fault(position, "flags for all that are not at the start")
        self.groups[0].flags = flags
        return None

    def _repeat(self, char: str, position: int) -> None:
        if not self.can_repeat:
            raise self.reader.fault(position, "nothing to repeat")
        if self.closed is not None and self.closed.anchors >= 0:
            raise self.reader.unsupported(self.closed.anchors, "an anchor in a repeated group")
        count = self.reader.repeat(position) if char == "{" else char
        if self.reader.skip("+"):
            raise self.reader.unsupported(position, "possessive repeats")
        self.reader.skip("?")
        if self.closed is None:
            atom = self.run.pop()
            self._flush()
            self.run.append(atom)
            self._flush()
        self.out.append(count)
        self.can_repeat = False
        self.closed = None

    def _flush(self) -> None:
        if self.run:
            atom = tuple(self.run)
            self.out.append(self.marks.setdefault(atom, chr(FIRST_MARK + len(self.marks))))
            self.run.clear()
            self.meter.hold(len(self.marks), 0xFFFF, "different atoms")


def _with(flags: Flags, letters: str, value: bool) -> Flags:
    names = {"i": "ignore_case", "s": "dot_all", "a": "is_ascii"}
    flags = replace(flags, **{names[letter]: value for letter in letters if letter in names})
    return replace(flags, is_ascii=False) if "u" in letters else flags
