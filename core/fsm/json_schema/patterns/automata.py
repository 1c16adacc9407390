"""Trees with lookaround as sets of texts: written without it, or as the automaton of the tree."""

from __future__ import annotations

from functools import lru_cache

from ....api.protocol import InvalidCall
from ...regex.chars import single, union
from ...regex.errors import InvalidSchema, UnsupportedSchema
from ...regex.limits import Limits, Meter
from ...regex.regex import EmptyPattern, automaton_of
from ...regex.tree import (
    END,
    LAST,
    NEWLINE,
    NOTHING,
    START,
    Alt,
    Lookaround,
    Loop,
    Net,
    Seq,
    Set,
    Tree,
    every,
)
from .neighbours import TooFar, without_looks
from .spelling import common
from .strings import ANY_CHAR, ANYTHING

MAX_ARCS = 30_000
SECONDS = 2.0
_LIMITS = Limits(states=10_000, work=1_000_000, seconds=SECONDS)


def texts_of(tree: Tree, source: str) -> Tree:
    """The texts in which a tree is found. source: the pattern that it was read from. Raises
    InvalidSchema."""
    tree = _at_end(tree)
    looks = (it for it in every(tree) if isinstance(it, Lookaround))
    is_split = isinstance(tree, Alt) and all(it in (START, END) for it in looks)
    options = tree.options if is_split and isinstance(tree, Alt) else (tree,)
    try:
        rows = (_plain(without_looks(Seq((ANYTHING, option, ANYTHING)))) for option in options)
        kept = tuple(row for row in rows if row != NOTHING)
    except TooFar:
        return machine_of(Seq((ANYTHING, tree, ANYTHING)), source)
    if not kept:
        raise Empty("patterns that are found in some text")
    return Alt(kept)


def _at_end(tree: Tree) -> Tree:
    """The same where `$` at the end, before which Python allows a line break, takes it."""
    match tree:
        case Alt() if tree == LAST:
            return Seq((Loop(NEWLINE, 0, 1), END))
        case Seq(items=items) if items:
            return Seq((*items[:-1], _at_end(items[-1])))
        case Alt(options=options):
            return Alt(tuple(map(_at_end, options)))
    return tree


@lru_cache(maxsize=256)
def common_texts(
    found: tuple[Tree, ...], unlike: tuple[Tree, ...], others: tuple[str, ...]
) -> Net | None:
    """The texts that are in all of `found`, in none of `unlike` and none of `others`; None: there
    are none. Raises UnsupportedSchema where their automaton is too large."""
    first, *rest = sorted(found, key=_is_free)
    looks: list[Tree] = [Lookaround(Seq((tree, END)), is_ahead=True) for tree in rest]
    never = [*unlike, *map(_text, others)]
    looks += [Lookaround(Seq((tree, END)), is_ahead=True, is_wanted=False) for tree in never]
    try:
        return machine_of(Seq((*looks, first)), "the keywords of a string")
    except Empty:
        return None
    except InvalidSchema as error:
        raise UnsupportedSchema(str(error)) from None


def _is_free(tree: Tree) -> bool:
    """Whether a tree is a number of any characters."""
    return isinstance(tree, Loop) and tree.item == ANY_CHAR


def _text(text: str) -> Tree:
    return Seq(tuple(Set(single(char)) for char in text))


class Empty(InvalidSchema):
    """Patterns that are found in no text."""


def machine_of(tree: Tree, source: str) -> Net:
    """The automaton of a tree. Raises InvalidSchema where it is too large, or accepts nothing."""
    meter = Meter("pattern", source, _LIMITS)
    try:
        rows, accepting, start, partition = automaton_of(tree, meter)
    except EmptyPattern:
        raise Empty("patterns that are found in some text") from None
    except InvalidCall as error:
        allowed = getattr(error, "allowed", "smaller patterns")
        raise InvalidSchema(f"{allowed}, in {source[:60]!r}") from None
    order = [start, *(state for state in range(1, len(rows)) if state != start)]
    number = {state: i for i, state in enumerate(order)}
    sets = partition.sets()
    found = []
    for state in order:
        to: dict[int, list[tuple[int, int]]] = {}
        for kind, after in rows[state].items():
            if after:
                to.setdefault(number[after], []).extend(sets[kind])
        arcs = ((common(union(pairs), ANY_CHAR.ranges), after) for after, pairs in to.items())
        found.append(tuple((Set(ranges), after) for ranges, after in arcs if ranges))
    if sum(map(len, found)) > MAX_ARCS:
        raise InvalidSchema(
            f"patterns whose automaton has at most {MAX_ARCS} arcs; {source[:60]!r}"
        )
    return Net(tuple(found), tuple(accepting[state] for state in order))


def _plain(tree: Tree) -> Tree:
    """A tree without lookaround, of which something matches, as texts."""
    match tree:
        case Set(ranges=ranges):
            return tree if ranges else NOTHING
        case Seq(items=items):
            texts = [_plain(item) for item in items]
            return NOTHING if NOTHING in texts else _row(texts)
        case Alt(options=options):
            kept = [it for it in map(_plain, options) if it != NOTHING]
            return kept[0] if len(kept) == 1 else Alt(tuple(dict.fromkeys(kept)))
        case Loop(item=item, low=low, high=high):
            text = _plain(item)
            if text == NOTHING:
                return text if low else Seq()
            return Loop(text, low, high)
    return NOTHING


def _row(texts: list[Tree]) -> Tree:
    items: list[Tree] = []
    for text in texts:
        items += text.items if isinstance(text, Seq) else [text]
    return items[0] if len(items) == 1 else Seq(tuple(items))
