"""Rewrites lookaround of one character into the parts next to it.

`[a-z-]+(?<!-)\\.` is `[a-z-]*[a-z]\\.`, and a word boundary after a letter asks that no letter
follows. The counts of a pattern stay as they are, so that it stays as small as it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, product
from typing import NamedTuple

from ...regex.chars import EVERYTHING, Ranges, complement, union
from ...regex.tree import END, NOTHING, START, Alt, Lookaround, Loop, Seq, Set, Tree, every
from .spelling import common

MAX_BRANCHES = 64
MAX_UNROLLED = 6
MAX_NODES = 5_000


class TooFar(Exception):
    """Lookaround that is not of one character, or repeated too often."""


class Edge(NamedTuple):
    """What may be next to it: characters, and the end of the text."""

    ranges: Ranges = EVERYTHING
    can_end: bool = True

    def intersect(self, other: Edge) -> Edge:
        """What both allow."""
        return Edge(common(self.ranges, other.ranges), self.can_end and other.can_end)

    @property
    def is_never(self) -> bool:
        """Whether nothing may be there."""
        return not (self.ranges or self.can_end)


ANY = Edge()
ENDED = Edge((), True)


class Branch(NamedTuple):
    """A tree without lookaround, and what must precede and follow its match."""

    tree: Tree = Seq()
    before: Edge = ANY
    after: Edge = ANY


def without_looks(tree: Tree) -> Tree:
    """The same whole texts by a tree without lookaround. Raises TooFar."""
    kept = [it.tree for it in _branches(tree) if it.before.can_end and it.after.can_end]
    found = kept[0] if len(kept) == 1 else Alt(tuple(kept))
    if _size(found) > max(MAX_NODES, _size(tree)):
        raise TooFar
    return found


def _branches(tree: Tree) -> list[Branch]:
    if not _has_look(tree):
        return _merged([Branch(tree)])
    match tree:
        case Lookaround():
            edge = _edge(tree)
            branch = Branch(after=edge) if tree.is_ahead else Branch(before=edge)
            return [] if edge.is_never else [branch]
        case Alt(options=options):
            return _merged(branch for option in options for branch in _branches(option))
        case Seq(items=items):
            found = [Branch()]
            for has_look, some in groupby(items, _has_look):
                for item in some if has_look else [Seq(tuple(some))]:
                    found = _joined(found, _branches(item))
            return found
        case Loop(item=item, low=low, high=high):
            return _loop(_branches(item), low, high)
    raise TooFar


def _size(tree: Tree) -> int:
    return sum(1 for _ in every(tree))


def _has_look(tree: Tree) -> bool:
    return any(isinstance(it, Lookaround) for it in every(tree))


def _edge(look: Lookaround) -> Edge:
    """What lookaround of one character allows beside it."""
    found = _wanted(look.item, look.is_ahead)
    return found if look.is_wanted else Edge(complement(found.ranges), not found.can_end)


def _wanted(item: Tree, is_ahead: bool) -> Edge:
    if item == (END if is_ahead else START):
        return ENDED
    match item:
        case Set(ranges=ranges):
            return Edge(ranges, False)
        case Seq(items=(inner,)):
            return _wanted(inner, is_ahead)
        case Alt(options=options):
            edges = [_wanted(option, is_ahead) for option in options]
            ranges = union(pair for edge in edges for pair in edge.ranges)
            return Edge(ranges, any(edge.can_end for edge in edges))
        case Seq(items=(first, *_)) if is_ahead and _is_free(item):
            return _wanted(first, is_ahead)
    raise TooFar


def _is_free(item: Seq) -> bool:
    """Whether all but the first may be missing."""
    return all(isinstance(it, Loop) and it.low == 0 for it in item.items[1:])


def _loop(branches: list[Branch], low: int, high: int | None) -> list[Branch]:
    if all(branch.before == ANY == branch.after for branch in branches):
        trees = tuple(branch.tree for branch in branches)
        return [Branch(Loop(trees[0] if len(trees) == 1 else Alt(trees), low, high))]
    if high is None or high > MAX_UNROLLED:
        raise TooFar
    found: list[Branch] = []
    row = [Branch()]
    for times in range(high + 1):
        if times >= low:
            found += row
        row = _joined(row, branches) if times < high else row
    return _merged(found)


def _joined(left: list[Branch], right: list[Branch]) -> list[Branch]:
    """Each branch followed by each other one."""
    if len(left) * len(right) > MAX_BRANCHES:
        raise TooFar
    return _merged(branch for one, other in product(left, right) for branch in _pair(one, other))


def _pair(one: Branch, other: Branch) -> Iterable[Branch]:
    if one.after == ANY == other.before:
        trees = [tree for tree in (one.tree, other.tree) if tree != Seq()]
        tree = trees[0] if len(trees) == 1 else Seq(tuple(trees))
        yield Branch(tree, one.before, other.after)
        return
    if (one.after, other.before) in ((ENDED, ANY), (ANY, ENDED)):  # an anchor: one side is empty
        kept, empty = (one, other) if one.after == ENDED else (other, one)
        if _is_nullable(empty.tree):
            before = kept.before if kept is one else one.before.intersect(other.before)
            after = kept.after if kept is other else one.after.intersect(other.after)
            yield Branch(kept.tree, before, after)
        return
    head = _restricted(one.tree, other.before.ranges, -1)
    tail = _restricted(other.tree, one.after.ranges, 0)
    yield Branch(Seq((head, tail)), one.before, other.after)
    if _is_nullable(one.tree):
        yield Branch(tail, one.before.intersect(other.before), other.after)
    if _is_nullable(other.tree):
        yield Branch(head, one.before, one.after.intersect(other.after))
    if _is_nullable(one.tree) and _is_nullable(other.tree):
        yield Branch(Seq(), one.before.intersect(other.before), one.after.intersect(other.after))


def _merged(branches: Iterable[Branch]) -> list[Branch]:
    """Branches that ask for the same in one, without those that match nothing."""
    found: dict[tuple[Edge, Edge], list[Tree]] = {}
    for tree, before, after in branches:
        if not (before.is_never or after.is_never or _is_nothing(tree)):
            found.setdefault((before, after), []).append(tree)
    if len(found) > MAX_BRANCHES:
        raise TooFar
    return [
        Branch(trees[0] if len(trees) == 1 else Alt(tuple(dict.fromkeys(trees))), *edges)
        for edges, trees in found.items()
    ]


def _is_nothing(tree: Tree) -> bool:
    match tree:
        case Set(ranges=ranges):
            return not ranges
        case Seq(items=items):
            return any(map(_is_nothing, items))
        case Alt(options=options):
            return all(map(_is_nothing, options))
        case Loop(item=item, low=low):
            return low > 0 and _is_nothing(item)
    return False


def _is_nullable(tree: Tree) -> bool:
    match tree:
        case Seq(items=items):
            return all(map(_is_nullable, items))
        case Alt(options=options):
            return any(map(_is_nullable, options))
        case Loop(item=item, low=low):
            return low == 0 or _is_nullable(item)
    return False


def _restricted(tree: Tree, ranges: Ranges, end: int) -> Tree:
    """The texts that are not empty, with one of these characters at one end (0 or -1)."""
    if ranges == EVERYTHING and not _is_nullable(tree):
        return tree
    match tree:
        case Set(ranges=own):
            return Set(common(own, ranges))
        case Alt(options=options):
            kept = [_restricted(option, ranges, end) for option in options]
            return Alt(tuple(it for it in kept if not _is_nothing(it)))
        case Seq(items=items) if items:
            item, others = items[end], Seq(items[1:] if end == 0 else items[:-1])
            found = _around(_restricted(item, ranges, end), others, end)
            if not _is_nullable(item):
                return found
            return Alt((found, _restricted(others, ranges, end)))
        case Loop(item=item, low=low, high=high):
            if high == 0:
                return NOTHING
            rest = Loop(item, max(low - 1, 0), None if high is None else high - 1)
            return _around(_restricted(item, ranges, end), rest, end)
    return NOTHING


def _around(item: Tree, rest: Tree, end: int) -> Tree:
    return Seq((item, rest)) if end == 0 else Seq((rest, item))
