"""The parse tree of a regular expression, with lookaround, captures and backreferences.

Knows nothing of any dialect, nor of automata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TypeAlias

from .chars import EVERYTHING, Ranges, complement, single, union


@dataclass(frozen=True, slots=True)
class Set:
    """Any one character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other."""

    items: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Alt:
    """Any of these; none: nothing at all."""

    options: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Something `low` to `high` times; None: without end."""

    item: Tree
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Lookaround:
    """Lookaround: whether the item matches what follows (`is_ahead`) or what precedes is as
    wanted."""

    item: Tree
    is_ahead: bool
    is_wanted: bool = True


@dataclass(frozen=True, slots=True)
class Capture:
    """A group to which backreferences may refer."""

    item: Tree
    number: int


@dataclass(frozen=True, slots=True)
class Back:
    """The text that a group has matched. position: in the pattern."""

    number: int
    position: int


@dataclass(frozen=True, slots=True)
class Net:
    """What an automaton accepts. rows: [states] what leads to which state. It starts in state 0."""

    rows: tuple[tuple[tuple[Tree, int], ...], ...]
    accepting: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A text of another rule of a grammar."""

    name: str


Tree: TypeAlias = Set | Seq | Alt | Loop | Lookaround | Capture | Back | Net | Ref

NOTHING = Alt(())
START = Lookaround(Set(EVERYTHING), is_ahead=False, is_wanted=False)
END = Lookaround(Set(EVERYTHING), is_ahead=True, is_wanted=False)
NEWLINE = Set(single("\n"))
LAST = Alt((END, Lookaround(Seq((NEWLINE, END)), is_ahead=True)))  # `$`, as `re` has it
LINE_START = Alt((START, Lookaround(NEWLINE, is_ahead=False)))
LINE_END = Alt((END, Lookaround(NEWLINE, is_ahead=True)))
_STARTS = (START, LINE_START)
_ENDS = (END, LAST, LINE_END)


def boundary(word: Ranges, other: Ranges | None = None) -> Tree:
    """A position between a character of `word` and one of `other` (None: any other one), or
    an end of the text."""
    behind, ahead = _beside(word)
    other_behind, other_ahead = _beside(complement(word) if other is None else other)
    at_end, at_start = Alt((END, other_ahead)), Alt((START, other_behind))
    return Alt((Seq((behind, at_end)), Seq((at_start, ahead))))


def no_boundary(*kinds: Ranges) -> Tree:
    """A position between two characters of one kind; the last kind includes the ends of the text.
    Never that in an empty text."""
    alike = [Seq(_beside(kind)) for kind in kinds[:-1]]
    behind, ahead = _beside(kinds[-1])
    at_start, at_end = Seq((START, ahead)), Seq((behind, END))
    return Alt((*alike, Seq((behind, ahead)), at_start, at_end))


def _beside(ranges: Ranges) -> tuple[Tree, Tree]:
    return Lookaround(Set(ranges), is_ahead=False), Lookaround(Set(ranges), is_ahead=True)


def parts(tree: Tree) -> tuple[Tree, ...]:
    """The trees right below."""
    match tree:
        case Seq(items=items) | Alt(options=items):
            return items
        case Loop() | Lookaround() | Capture():
            return (tree.item,)
    return ()


def with_parts(tree: Tree, parts: Iterable[Tree]) -> Tree:
    """The tree with other trees right below."""
    match tree:
        case Seq():
            return Seq(tuple(parts))
        case Alt():
            return Alt(tuple(parts))
        case Loop() | Lookaround() | Capture():
            (item,) = parts
            return replace(tree, item=item)
    return tree


def every(tree: Tree) -> Iterator[Tree]:
    """All trees in a tree, and itself."""
    yield tree
    for part in parts(tree):
        yield from every(part)


def first_chars(tree: Tree) -> Ranges | None:
    """The characters with which every match begins; None where that is not known, or where a match
    may be empty."""
    match tree:
        case Set(ranges=ranges):
            return ranges
        case Capture(item=item):
            return first_chars(item)
        case Seq(items=items) if items:
            return first_chars(items[0])
        case Loop(item=item, low=low) if low:
            return first_chars(item)
        case Alt(options=options):
            return _union(map(first_chars, options))
        case Net(rows=rows, accepting=accepting) if not accepting[0]:
            return _union(first_chars(item) for item, _ in rows[0])
    return None


def _union(firsts: Iterable[Ranges | None]) -> Ranges | None:
    found = [*firsts]
    return None if None in found else union(pair for first in found for pair in first or ())


def trimmed(tree: Tree, at_start: bool = True, at_end: bool = True) -> Tree:
    """The same set of whole texts without anchors at its ends, where they restrict nothing."""
    if (at_start and tree in _STARTS) or (at_end and tree in _ENDS):
        return Seq()
    match tree:
        case Seq(items=items):
            return Seq(_trimmed_items(items, at_start, at_end))
        case Alt(options=options):
            return Alt(tuple(trimmed(option, at_start, at_end) for option in options))
        case Loop(item=item, low=low, high=1):
            return Loop(trimmed(item, at_start, at_end), low, 1)
    return tree


def _trimmed_items(items: tuple[Tree, ...], at_start: bool, at_end: bool) -> tuple[Tree, ...]:
    num_first = _num_anchors(items, _STARTS) if at_start else 0
    items = items[num_first:]
    num_last = _num_anchors(items[::-1], _ENDS) if at_end else 0
    items = items[: len(items) - num_last]
    if len(items) == 1:
        return (trimmed(items[0], at_start, at_end),)
    if items and at_start:
        items = (trimmed(items[0], True, False), *items[1:])
    if items and at_end:
        items = (*items[:-1], trimmed(items[-1], False, True))
    return items


def _num_anchors(items: tuple[Tree, ...], anchors: tuple[Tree, ...]) -> int:
    return sum(1 for _ in takewhile(anchors.__contains__, items))
