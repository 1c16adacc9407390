"""Atomic groups and possessive repeats of single characters, without giving anything back.

`[a-z]*+` is `[a-z]*(?![a-z])`. What gives back nothing in any case is left as it is.
"""

from __future__ import annotations

from .chars import Ranges, union
from .tree import Alt, Capture, Lookaround, Loop, Seq, Set, Tree, first_chars


def without_backtracking(tree: Tree) -> Tree | None:
    """The tree as `(?>tree)`, which keeps to its first match; None where that is not known."""
    match tree:
        case Set():
            return tree
        case Capture(item=item, number=number):
            found = without_backtracking(item)
            return None if found is None else Capture(found, number)
        case Loop(item=Capture(item=item), low=low, high=high):
            return without_backtracking(Loop(item, low, high))
        case Loop(item=item, low=low, high=high) if first_chars(item) is not None and _has_one_way(
            item
        ):
            return _greedy(item, low, high)
        case Seq(items=items):
            return _sequence(items)
        case Alt(options=options):
            return tree if _are_disjoint(options) else None
    return None


def _greedy(item: Tree, low: int, high: int | None) -> Tree:
    """As often as possible: not again, unless it was done as often as allowed."""
    never = Lookaround(item, is_ahead=True, is_wanted=False)
    if high is None:
        return Seq((Loop(item, low, None), never))
    full = Loop(item, high, high)
    if low == high:
        return full
    return Alt((full, Seq((Loop(item, low, high - 1), never))))


def _sequence(items: tuple[Tree, ...]) -> Tree | None:
    """Parts with one way each; the last, which may have more, gives nothing back to the others."""
    if not items:
        return Seq()
    if not all(map(_has_one_way, items[:-1])):
        return None
    last = without_backtracking(items[-1])
    return None if last is None else Seq((*items[:-1], last))


def _has_one_way(tree: Tree) -> bool:
    """Whether no two texts that it matches begin alike, so that there is only one way to match."""
    match tree:
        case Set():
            return True
        case Capture(item=item):
            return _has_one_way(item)
        case Seq(items=items):
            return all(map(_has_one_way, items))
        case Loop(item=item, low=low, high=high):
            return low == high and _has_one_way(item)
        case Alt(options=options):
            return _are_disjoint(options)
    return False


def _are_disjoint(options: tuple[Tree, ...]) -> bool:
    """Whether options begin with different characters, and each has one way."""
    firsts = [first_chars(option) for option in options]
    if None in firsts or not all(map(_has_one_way, options)):
        return False
    sizes = [_size(first or ()) for first in firsts]
    return sum(sizes) == _size(union(pair for first in firsts for pair in first or ()))


def _size(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges)
