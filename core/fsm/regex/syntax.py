"""The syntax of a pattern, read as `re` reads it with its flag ASCII, as a tree. `(?u)` selects
the classes and cases of Unicode.

What a pattern states about single characters (literals, classes, escapes, flags) is decided here,
as sets. Beyond `re`, lookbehind may vary in length, groups may be named as in ECMA-262 and `\\p{L}`
is known. What no automaton can honour is refused by name and position.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from . import chars
from .atomic import without_backtracking
from .backreferences import Unbounded, expanded
from .chars import Ranges
from .errors import AHEAD_IN_LOOKBEHIND
from .escapes import DIGITS, Reader, read_class, read_escape
from .limits import Meter
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
    Net,
    Seq,
    Set,
    Tree,
    boundary,
    no_boundary,
)

_LOOKS = {"=": (True, True), "!": (True, False), "<=": (False, True), "<!": (False, False)}
_FLAGS = {"i": "ignore_case", "s": "dot_all", "a": "is_ascii", "m": "is_multiline", "x": "verbose"}
_BLANKS = " \t\n\r\f\v"


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


@dataclass(slots=True)
class _Group:
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


def read_syntax(pattern: str, meter: Meter, has_nets: bool = False) -> Tree:
    """Read a pattern. has_nets: it may have automata, as `strings.machine_pattern` writes them.
    Raises InvalidCall."""
    meter.check_limit(len(pattern), meter.limits.length, "characters")
    return _Scanner(pattern, meter, has_nets).scan()


class _Scanner:
    def __init__(self, pattern: str, meter: Meter, has_nets: bool) -> None:
        self.has_nets = has_nets
        self.reader = Reader(pattern, meter)
        self.meter = meter
        self.groups = [_Group(0, Flags())]
        self.numbers: dict[str, int] = {}  # of named groups
        self.num_captures = 0
        self.closed: set[int] = set()
        self.sets: dict[Ranges, Set] = {}
        self.ignores_case = False
        self.num_lazy = 0

    def scan(self) -> Tree:
        reader = self.reader
        while (position := reader.position) < reader.length:
            self._item(reader.take(), position)
        if len(self.groups) > 1:
            raise reader.fault(self.groups[-1].start, "an unclosed group")
        fold = partial(chars.fold, is_ascii=self.groups[0].flags.is_ascii)
        try:
            return expanded(self.groups[0].tree(), fold if self.ignores_case else None)
        except Unbounded as error:
            what = f"backreferences to anything but {error.what}"
            raise reader.unsupported(error.position, what) from None

    def _item(self, char: str, position: int) -> None:
        if self.groups[-1].flags.verbose and (char in _BLANKS or char == "#"):
            self._skip_comment(char)
        elif char == "(":
            self._open(position)
        elif char == ")":
            self._close(position)
        elif char == "|":
            self._alternative()
        elif char in "*+?" or (char == "{" and self.reader.is_repeat()):
            self._repeat(char, position)
        elif char in "^$":
            self._anchor(char, position)
        elif char == "\\":
            self._escape(position)
        else:
            self._set(self._characters(char))

    def _skip_comment(self, char: str) -> None:
        while char == "#" and self.reader.peek() not in ("", "\n"):
            self.reader.take()

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
        if letter in ("A", "Z", "b", "B") and letter:
            self.reader.take()
            self._anchor(letter, position)
            return
        if letter and letter in DIGITS and (number := self.reader.group_number()):
            self._back(number, position)
            return
        flags = self.groups[-1].flags
        escape = read_escape(self.reader, flags.is_ascii)
        can_fold = flags.ignore_case and not escape.is_category
        self._set(chars.fold(escape.ranges, flags.is_ascii) if can_fold else escape.ranges)

    def _back(self, number: int, position: int) -> None:
        if number not in self.closed:
            raise self.reader.fault(position, "a backreference to an undefined group")
        self.ignores_case |= self.groups[-1].flags.ignore_case
        self._add(Back(number, position))

    def _set(self, ranges: Ranges) -> None:
        self._add(self.sets.setdefault(ranges, Set(ranges)))

    def _add(self, item: Tree, can_repeat: bool = True) -> None:
        group = self.groups[-1]
        group.items.append(item)
        group.can_repeat = can_repeat

    def _anchor(self, char: str, position: int) -> None:
        flags = self.groups[-1].flags
        if char not in "^A" and any(it.look and not it.look[0] for it in self.groups):
            raise self.reader.unsupported(position, AHEAD_IN_LOOKBEHIND)
        found: Tree
        if char in "bB":
            word = chars.category("w", flags.is_ascii)
            found = boundary(word) if char == "b" else no_boundary(word, chars.complement(word))
        elif flags.is_multiline and char in "^$":
            found = LINE_START if char == "^" else LINE_END
        else:
            found = START if char in "^A" else LAST if char == "$" else END
        self._add(found, can_repeat=char in "bB")

    def _alternative(self) -> None:
        group = self.groups[-1]
        group.options.append(_seq(group.items))
        group.items, group.can_repeat = [], False

    def _open(self, position: int) -> None:
        group = _Group(position, self.groups[-1].flags, num_lazy=self.num_lazy)
        if self.reader.skip("?"):
            if not self._extension(group):
                return
        else:
            group.number = self._next_number()
        self.groups.append(group)
        self.meter.check_limit(
            len(self.groups) - 1, self.meter.limits.depth, "groups inside groups"
        )

    def _next_number(self) -> int:
        self.num_captures += 1
        return self.num_captures

    def _close(self, position: int) -> None:
        if len(self.groups) == 1:
            raise self.reader.fault(position, "a ) without a group")
        group = self.groups.pop()
        tree = group.tree()
        if group.look is not None:
            tree = Lookaround(tree, *group.look)
        elif group.is_atomic:
            if self.num_lazy > group.num_lazy:
                raise self.reader.unsupported(group.start, "lazy repeats in atomic groups")
            tree = self._atomic(tree, group.start, "atomic groups")
        elif group.number:
            self.closed.add(group.number)
            tree = Capture(tree, group.number)
        self._add(tree)

    def _atomic(self, tree: Tree, position: int, what: str) -> Tree:
        found = without_backtracking(tree)
        if found is None:
            raise self.reader.unsupported(position, f"{what} of more than repeated characters")
        return found

    def _extension(self, group: _Group) -> bool:
        """Read what follows `(?`; whether it opens a group."""
        reader, position = self.reader, group.start
        if reader.skip("#"):
            reader.until(")", position)
            return False
        if reader.skip("P="):
            self._back(self._number_of(reader.until(")", position), position), position)
            return False
        if self.has_nets and reader.skip("&"):
            self._add(self._net())
            return False
        if reader.skip("("):
            raise reader.unsupported(position, "conditions")
        if reader.skip(":"):
            return True
        if reader.skip(">"):
            group.is_atomic = True
            return True
        for sign, look in sorted(_LOOKS.items(), key=lambda item: -len(item[0])):
            if reader.skip(sign):
                self._look(group, look)
                return True
        if reader.skip("P<") or reader.skip("<"):
            self._name(group, reader.until(">", position))
            return True
        flags = self._flags(position, group.flags)
        if flags is not None:
            group.flags = flags
        return flags is not None

    def _net(self) -> Tree:
        """Read the rest of an automaton."""
        reader = self.reader
        sets: list[Tree] = []
        for _ in range(self._number()):
            text = reader.take_many(self._number())
            sets.append(_Scanner(text, self.meter, has_nets=False).scan())
        rows: list[tuple[tuple[Tree, int], ...]] = []
        accepting: list[bool] = []
        for _ in range(self._number()):
            accepting.append(reader.take() == "+")
            arcs = [(self._number(","), self._number()) for _ in range(self._number())]
            rows.append(tuple((sets[kind], to) for to, kind in arcs))
        reader.take()
        return Net(tuple(rows), tuple(accepting))

    def _number(self, end: str = ";") -> int:
        return int(self.reader.until(end, 0))

    def _look(self, group: _Group, look: tuple[bool, bool]) -> None:
        if look[0] and any(it.look and not it.look[0] for it in self.groups):
            raise self.reader.unsupported(group.start, AHEAD_IN_LOOKBEHIND)
        group.look = look

    def _name(self, group: _Group, name: str) -> None:
        if not name.isidentifier() or name in self.numbers:
            raise self.reader.fault(group.start, "a bad group name")
        self.numbers[name] = group.number = self._next_number()

    def _number_of(self, name: str, position: int) -> int:
        if name not in self.numbers:
            raise self.reader.fault(position, "a backreference to an undefined group")
        return self.numbers[name]

    def _flags(self, position: int, flags: Flags) -> Flags | None:
        added = self.reader.take_while("aimsuxL")
        removed = self.reader.take_while("imsx") if self.reader.skip("-") else None
        if not added and not removed:
            raise self.reader.fault(position, "an unknown extension of a group")
        if "L" in added:
            raise self.reader.unsupported(position, "the flag L")
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
        group = self.groups[-1]
        if not group.can_repeat:
            raise self.reader.fault(position, "nothing to repeat")
        counts = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        low, high = self.reader.repeat(position) if char == "{" else counts[char]
        is_possessive = self.reader.skip("+")
        if not is_possessive:
            self.num_lazy += self.reader.skip("?")
        tree: Tree = Loop(group.items.pop(), low, high)
        if is_possessive:
            tree = self._atomic(tree, position, "possessive repeats")
        self._add(tree, can_repeat=False)


def _seq(items: list[Tree]) -> Tree:
    return items[0] if len(items) == 1 else Seq(tuple(items))


def _with(flags: Flags, letters: str, value: bool) -> Flags:
    flags = replace(flags, **{_FLAGS[letter]: value for letter in letters if letter in _FLAGS})
    return replace(flags, is_ascii=False) if "u" in letters else flags
