"""Sets of texts as trees: their lengths, their members, and their patterns as JSON strings.

Knows nothing of schemas, nor of how a pattern is read. Lengths count characters, not their escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...regex.errors import UnsupportedSchema
from ...regex.tree import Alt, Loop, Net, Seq, Set, Tree
from .machines import largest_length, least_length, of_lengths
from .spelling import alternatives, contains, one_char

MAX_SPLITS = 2_000
MAX_STEPS = 10_000
_ATOM = re.compile(r"\[(?:[^\]\\]|\\.)*\]|\(\?:[^()]*\)|\\?.")


ANY_CHAR = Set(((0, 0xD800), (0xE000, 0x110000)))
ANYTHING = Loop(ANY_CHAR, 0, None)


def lengths(texts: Tree) -> tuple[int, int | None]:
    """The least and the largest number of characters; None: no limit."""
    match texts:
        case Set():
            return 1, 1
        case Seq(items=items):
            pairs = [lengths(item) for item in items]
            highs = [high for _, high in pairs]
            return sum(low for low, _ in pairs), None if None in highs else sum(filter(None, highs))
        case Alt(options=options):
            pairs = [lengths(option) for option in options]
            highs = [high for _, high in pairs]
            largest = None if None in highs else max(filter(None, highs), default=0)
            return min((low for low, _ in pairs), default=0), largest
        case Loop(item=item, low=low, high=high):
            least, most = lengths(item)
            if high is None or most is None:
                return low * least, 0 if most == 0 or high == 0 else None
            return low * least, high * most
        case Net():
            return least_length(texts), largest_length(texts)
    raise AssertionError(texts)


def pattern(texts: Tree) -> str:
    """The pattern of these texts as they stand between the quotes of JSON."""
    match texts:
        case Set(ranges=ranges):
            return one_char(ranges)
        case Seq(items=items):
            return "".join(pattern(item) for item in items)
        case Alt(options=options):
            return alternatives([pattern(option) for option in options])
        case Loop(item=item, low=low, high=high):
            return repeated(pattern(item), low, high)
        case Net():
            return machine_pattern(texts)
    raise AssertionError(texts)


def machine_pattern(machine: Net) -> str:
    """The automaton as `syntax` reads it: how many patterns of characters there are, each after its
    length; how many states; and of each a sign whether it accepts, how many arcs it has, and of
    each arc the state and the pattern, by number."""
    numbers: dict[Tree, int] = {}
    states: list[str] = []
    for row, accepts in zip(machine.rows, machine.accepting, strict=True):
        arcs = (f"{to},{numbers.setdefault(item, len(numbers))};" for item, to in row)
        states.append(f"{'+' if accepts else '-'}{len(row)};{''.join(arcs)}")
    texts = [pattern(item) for item in numbers]
    sets = "".join(f"{len(text)};{text}" for text in texts)
    return f"(?&{len(texts)};{sets}{len(states)};{''.join(states)})"


def repeated(item: str, low: int, high: int | None) -> str:
    """A pattern so many times."""
    atom = item if _ATOM.fullmatch(item) else f"(?:{item})"
    if high == 0:
        return ""
    if (low, high) == (1, 1):
        return atom
    if (low, high) == (0, 1):
        return atom + "?"
    if high is None and low < 2:
        return atom + "*+"[low]
    return f"{atom}{{{low}}}" if low == high else f"{atom}{{{low},{'' if high is None else high}}}"


def holds(texts: Tree, text: str) -> bool:
    """Whether this text is one of them. Raises UnsupportedSchema after too many steps."""
    return len(text) in _Walk(text).ends(texts, frozenset({0}))


def limited(texts: Tree, low: int, high: int | None) -> Tree | None:
    """Those of `low` to `high` characters; None: there are none.

    Raises UnsupportedSchema where several parts of the texts would have to count together.
    """
    least, most = lengths(texts)
    if least >= low and (high is None or (most is not None and most <= high)):
        return texts
    if (high is not None and least > high) or (most is not None and most < low):
        return None
    match texts:
        case Alt(options=options):
            return _either(limited(option, low, high) for option in options)
        case Loop(item=item, low=first, high=last):
            return _limited_repeat(item, first, last, low, high)
        case Seq(items=items):
            return _limited_row(items, low, high)
        case Net():
            return of_lengths(texts, low, high)
    return None


def squeezed(texts: Tree, room: int) -> Tree | None:
    """Some of the texts of at most `room` characters: each part gets its share; None: no room."""
    least, most = lengths(texts)
    if most is not None and most <= room:
        return texts
    if least > room:
        return None
    match texts:
        case Alt(options=options):
            return _either(squeezed(option, room) for option in options)
        case Loop(item=item, low=low, high=high):
            return _squeezed_repeat(item, low, high, room)
        case Seq(items=items):
            return _squeezed_row(items, room)
        case Net():
            return of_lengths(texts, 0, room)
    return None


def _squeezed_repeat(item: Tree, low: int, high: int | None, room: int) -> Tree | None:
    part = squeezed(item, room // max(low, 1))
    if part is None:
        return None if low else Seq()
    count = room // max(lengths(part)[1] or 0, 1)
    return Loop(part, low, count if high is None else min(high, count))


def _squeezed_row(items: tuple[Tree, ...], room: int) -> Tree | None:
    sizes = [lengths(item) for item in items]
    spare = room - sum(low for low, _ in sizes)
    by_need = sorted(range(len(items)), key=lambda i: _need(sizes[i]))
    out = list(items)
    for num_done, i in enumerate(by_need):
        share = sizes[i][0] + spare // (len(items) - num_done)
        smaller = squeezed(items[i], share)
        if smaller is None:
            return None
        out[i] = smaller
        spare -= (lengths(smaller)[1] or 0) - sizes[i][0]
    return Seq(tuple(out))


def _need(size: tuple[int, int | None]) -> float:
    return float("inf") if size[1] is None else size[1] - size[0]


def _is_one(item: Tree, code: int) -> bool:
    return isinstance(item, Set) and contains(item.ranges, code)


def _limited_repeat(
    item: Tree, first: int, last: int | None, low: int, high: int | None
) -> Tree | None:
    if last == 1 and not first:
        part = limited(item, low, high)
        return part if low or part is None else Alt((Seq(), part))
    least, most = lengths(item)
    if least != most or not least:
        raise UnsupportedSchema("a length beside a pattern whose repeats are of one length")
    first = max(first, -(-low // least))
    highs = [last] if last is not None else []
    highs += [high // least] if high is not None else []
    last = min(highs, default=None)
    return None if last is not None and first > last else Loop(item, first, last)


def _limited_row(items: tuple[Tree, ...], low: int, high: int | None) -> Tree | None:
    """Where one part varies, it takes all of the limit; else the first part's lengths are split."""
    sizes = [lengths(item) for item in items]
    varied = [i for i, (least, most) in enumerate(sizes) if least != most]
    fixed = sum(least for i, (least, _) in enumerate(sizes) if i not in varied[:1])
    first = varied[0]
    if len(varied) == 1:
        part = limited(items[first], low - fixed, None if high is None else high - fixed)
        return None if part is None else Seq((*items[:first], part, *items[first + 1 :]))
    num_splits = 1 if high is None else (high - fixed + 1) ** (len(varied) - 1)
    if high is None or num_splits > MAX_SPLITS or not all(_is_simple(items[i]) for i in varied):
        raise UnsupportedSchema("a length beside a pattern of one varied part, or of short ones")
    rows: list[Tree | None] = []
    others, before = Seq(items[first + 1 :]), sum(least for least, _ in sizes[:first])
    for length in range(sizes[first][0], high - fixed + 1):
        part = limited(items[first], length, length)
        rest = limited(others, low - length - before, high - length - before)
        rows.append(None if part is None or rest is None else Seq((*items[:first], part, rest)))
    return _either(rows)


def _is_simple(texts: Tree) -> bool:
    """Whether this repeats something of one length."""
    if not isinstance(texts, Loop):
        return False
    least, most = lengths(texts.item)
    return least == most and least > 0


def _either(options: Iterable[Tree | None]) -> Tree | None:
    kept = tuple(option for option in options if option is not None)
    return Alt(kept) if kept else None


class _Walk:
    """Where in a text members may begin and end; its steps are counted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._num_steps = 0

    def ends(self, texts: Tree, starts: frozenset[int]) -> frozenset[int]:
        """Where a member may end that begins at one of these places."""
        self._num_steps += 1 + len(starts)
        if self._num_steps > MAX_STEPS:
            raise UnsupportedSchema(f"patterns that are found in a text in {MAX_STEPS} steps")
        match texts:
            case Set(ranges=ranges):
                text = self._text
                return frozenset(
                    i + 1 for i in starts if i < len(text) and contains(ranges, ord(text[i]))
                )
            case Seq(items=items):
                for item in items:
                    if not starts:
                        break
                    starts = self.ends(item, starts)
                return starts
            case Alt(options=options):
                return frozenset().union(*(self.ends(option, starts) for option in options))
            case Loop(item=item, low=low, high=high):
                return self._repeat_ends(item, low, high, starts)
            case Net():
                return frozenset().union(*(self._machine_ends(texts, start) for start in starts))
        raise AssertionError(texts)

    def _machine_ends(self, machine: Net, start: int) -> frozenset[int]:
        found, state, position = set[int](), 0, start
        while True:
            self._num_steps += 1
            if machine.accepting[state]:
                found.add(position)
            code = ord(self._text[position]) if position < len(self._text) else -1
            after = [to for item, to in machine.rows[state] if _is_one(item, code)]
            if not after:
                return frozenset(found)
            state, position = after[0], position + 1

    def _repeat_ends(
        self, item: Tree, low: int, high: int | None, starts: frozenset[int]
    ) -> frozenset[int]:
        """A repeat that no longer moves on has been everywhere that it can go."""
        for _ in range(low):
            after = self.ends(item, starts)
            if after == starts:
                break
            starts = after
        found, times = starts, low
        while starts and (high is None or times < high):
            starts = self.ends(item, starts) - found
            found |= starts
            times += 1
        return found
