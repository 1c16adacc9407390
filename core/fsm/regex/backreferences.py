"""Backreferences to groups that match few texts: one alternative for each of these texts.

`(['"])[a-z]*\\1` is `'[a-z]*'|"[a-z]*"`. Each alternative replaces the group and all references
to it, so that a repeat around them takes another text each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from .chars import Ranges, single
from .tree import Alt, Back, Capture, Loop, Seq, Set, Tree, every, parts, with_parts

MAX_TEXTS = 128
MAX_NODES = 20_000


class Unbounded(Exception):
    """A backreference that cannot be expanded. position: in the pattern. what: it refers to."""

    def __init__(self, position: int, what: str) -> None:
        super().__init__(position, what)
        self.position, self.what = position, what


def expanded(tree: Tree, fold: Callable[[Ranges], Ranges] | None = None) -> Tree:
    """The same texts without backreferences and captures. Raises Unbounded.

    fold: adds to a character those that a reference takes for it; None: none.
    """
    while (back := next((it for it in every(tree) if isinstance(it, Back)), None)) is not None:
        tree = _without(tree, back, fold)
        if sum(1 for _ in every(tree)) > MAX_NODES:
            raise Unbounded(back.position, "groups of few texts, a few times")
    return _without_captures(tree)


def _without(tree: Tree, back: Back, fold: Callable[[Ranges], Ranges] | None) -> Tree:
    """The tree without references to the group of one of them."""
    groups = (it for it in every(tree) if isinstance(it, Capture) and it.number == back.number)
    group = next(groups, None)
    if group is None:
        raise Unbounded(back.position, "a group before it")
    found = dict.fromkeys(_spelled(group.item))
    texts = [text for text in found if text is not None]
    if len(texts) < len(found):  # too many, or they depend on others
        raise Unbounded(back.position, f"a group of at most {MAX_TEXTS} texts")
    return _substituted(tree, back, texts, fold)


def _substituted(
    tree: Tree, back: Back, texts: list[str], fold: Callable[[Ranges], Ranges] | None
) -> Tree:
    """Expand in the smallest part that holds the group and all references to it."""
    index = _below(tree, back.number)
    if index is not None:
        below = [*parts(tree)]
        below[index] = _substituted(below[index], back, texts, fold)
        return with_parts(tree, below)
    if not isinstance(tree, Seq):
        raise Unbounded(back.position, "a group that is matched before it, once")
    is_met = False
    for item in tree.items:
        refers = any(isinstance(it, Back) and it.number == back.number for it in every(item))
        if refers and not is_met:
            raise Unbounded(back.position, "a group that is matched before it, once")
        is_met = is_met or _always_once(item, back.number)
    return Alt(tuple(_with_text(tree, back.number, text, fold) for text in texts))


def _below(tree: Tree, number: int) -> int | None:
    """The index of the one part that holds all that is of a group; None where there are more."""
    if isinstance(tree, Capture) and tree.number == number:
        return None
    found = [
        i
        for i, part in enumerate(parts(tree))
        if any(isinstance(it, Capture | Back) and it.number == number for it in every(part))
    ]
    return found[0] if len(found) == 1 else None


def _with_text(tree: Tree, number: int, text: str, fold: Callable[[Ranges], Ranges] | None) -> Tree:
    """The tree where a group matches this text alone, and references to it do."""
    match tree:
        case Back() if tree.number == number:
            sets = (single(char) for char in text)
            return Seq(tuple(Set(fold(it) if fold else it) for it in sets))
        case Capture(number=own) if own == number:
            return Capture(Seq(tuple(Set(single(char)) for char in text)), number)
    return with_parts(tree, (_with_text(part, number, text, fold) for part in parts(tree)))


def _without_captures(tree: Tree) -> Tree:
    if isinstance(tree, Capture):
        return _without_captures(tree.item)
    return with_parts(tree, map(_without_captures, parts(tree)))


def _always_once(tree: Tree, number: int) -> bool:
    """Whether every match of the tree matches the group, exactly once."""
    match tree:
        case Capture(item=item, number=own):
            return own == number or _always_once(item, number)
        case Seq(items=items):
            return any(_always_once(item, number) for item in items)
        case Loop(item=item, low=1, high=1):
            return _always_once(item, number)
    return False


def _spelled(tree: Tree) -> Iterator[str | None]:
    """Each text of a tree; None where there are more than MAX_TEXTS."""
    match tree:
        case Set(ranges=ranges):
            if sum(end - start for start, end in ranges) > MAX_TEXTS:
                yield None
                return
            yield from (chr(code) for start, end in ranges for code in range(start, end))
        case Seq(items=items):
            rows: list[str] = [""]
            for item in items:
                texts = list(dict.fromkeys(_spelled(item)))
                if None in texts or len(rows) * len(texts) > MAX_TEXTS:
                    yield None
                    return
                rows = [row + (text or "") for row, text in product(rows, texts)]
            yield from rows
        case Alt(options=options):
            for option in options:
                yield from _spelled(option)
        case Loop(item=item, low=low, high=high) if high is not None and high <= MAX_TEXTS:
            for times in range(low, high + 1):
                yield from _spelled(Seq((item,) * times))
        case Capture(item=item):
            yield from _spelled(item)
        case _:
            yield None
