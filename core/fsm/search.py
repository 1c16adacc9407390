"""Looks for a way on that repeats no item: depth first, with what ends soon before the rest."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from .grammar.ending import ORDER, options_of
from .grammar.grammar import GrammarCursor
from .grammar.matcher import Matcher
from .json_schema.tracker import Tracker
from .tokens.regular import RegularCursor, RegularGuide

MAX_NODES = 3_000
FEW, COST_OF_MANY = 16, 10  # where few bytes may come next, as in a number, all ways can be tried
MAX_ENDING = 1_500  # where each costs more
MAX_STEPS = 6_000  # bytes that are tried for them
MAX_FOLLOWED = 48  # bytes of an end that is known
MAX_WAYS, MAX_DETOURS = 10, 300
MAX_DEPTH = 4_000
MAX_KNOWN = 10_000
FIRST = b'"]},:'
SOONER = 2  # tokens by which a byte that closes something is preferred


class Found(NamedTuple):
    """end: the bytes that were looked for; None: none were found. is_exhausted: there are none.
    num_nodes: places that were tried; one where many bytes may come next counts for several."""

    end: bytes | None
    is_exhausted: bool = False
    num_nodes: int = 0


class Goal(Enum):
    """What a way leads to: the end of the answer; where nothing is open that must differ; or where
    the current items and names differ from all others, whatever follows."""

    END = "end"
    CLOSED = "closed"
    DIFFERENT = "different"


def _is_reached(goal: Goal, steps: Steps, here: Tracker) -> bool:
    if goal is Goal.END:
        return steps.is_accepting
    return here.num_unique == 0 or (goal is Goal.DIFFERENT and not here.is_watching)


def _ordered_by(options: bytes, here: Tracker, goal: Goal) -> Iterator[int]:
    """The bytes that may come next; those last after which an item is still as one before."""
    same = frozenset() if goal is Goal.CLOSED else here.repeating
    return iter(sorted(options, key=same.__contains__) if same else options)


def find(steps: Steps, tracker: Tracker, goal: Goal, max_nodes: int = MAX_NODES) -> Found:
    """Bytes that lead to a goal and on the way repeat no item."""
    path, num_nodes = bytearray(), 0
    trackers, left = [tracker], [_ordered_by(steps.options(), tracker, goal)]
    while num_nodes < max_nodes and not steps.is_over:
        num_nodes += 1
        here = trackers[-1]
        if _is_reached(goal, steps, here):
            return Found(bytes(path), num_nodes=num_nodes)
        byte = next(left[-1], None) if len(path) < MAX_DEPTH else None
        if byte is None:
            trackers.pop()
            left.pop()
            if not trackers:
                return Found(None, is_exhausted=True, num_nodes=num_nodes)
            steps.pop()
            path.pop()
            continue
        after = here.after(bytes((byte,)))
        if after is None:
            continue
        steps.push(byte)
        path.append(byte)
        trackers.append(after)
        options = steps.options()
        left.append(_ordered_by(options, after, goal))
        num_nodes += COST_OF_MANY if len(options) > FEW else 0
    return Found(None, num_nodes=num_nodes)


def steps_of(cursor: RegularCursor | GrammarCursor, data: bytes, known: dict[int, bytes]) -> Steps:
    """The place of a cursor after more bytes, which are allowed. known: what may come next in the
    states of an automaton; grows."""
    if isinstance(cursor, RegularCursor):
        state = cursor.guide.dfa.run(cursor.state, data)
        return _RegularSteps(cursor.guide, state, known)
    return _GrammarSteps(cursor, data)


def find_end(
    cursor: RegularCursor | GrammarCursor, data: bytes, known: dict[int, bytes], tracker: Tracker
) -> Found:
    """As `find`, of an end of the answer."""
    if isinstance(cursor, RegularCursor):
        return find(steps_of(cursor, data, known), tracker, Goal.END)
    found = find(_EndingSteps(cursor, data), tracker, Goal.END, MAX_ENDING)
    if found.end is not None or found.is_exhausted:
        return found
    return Found(_Detours(_EndingSteps(cursor, data), tracker).found())


class _Detours:
    """Looks for an end that leaves the known one at one byte: the last first, before it repeats an
    item."""

    def __init__(self, steps: Steps, tracker: Tracker) -> None:
        self._steps = steps
        self._path = bytearray()
        self._trackers = [tracker]
        self._left = MAX_DETOURS

    def found(self) -> bytes | None:
        """The end; None: there is none of this kind, or it was not found soon."""
        if self._follow():
            return bytes(self._path)
        while self._left > 0 and not self._steps.is_over:
            size, options = len(self._path), self._steps.options()
            for byte in options[1:MAX_WAYS]:
                if self._push(byte) and self._follow():
                    return bytes(self._path)
                while len(self._path) > size:
                    self._pop()
            if not size:
                break
            self._pop()
        return None

    def _follow(self) -> bool:
        """Go on as the known ends do; whether that leads to an end. Stops where it repeats an
        item."""
        for _ in range(MAX_FOLLOWED):
            if self._steps.is_accepting:
                return True
            options = self._steps.options()
            if not options or not self._push(options[0]):
                break
        return False

    def _push(self, byte: int) -> bool:
        after = self._trackers[-1].after(bytes((byte,)))
        self._left -= 1
        if after is None or self._left < 0:
            return False
        self._steps.push(byte)
        self._trackers.append(after)
        self._path.append(byte)
        return True

    def _pop(self) -> None:
        self._steps.pop()
        self._trackers.pop()
        self._path.pop()


class _RegularSteps:
    """A place in an automaton that moves byte by byte, to and fro. is_over: looking on would take
    too long."""

    is_over = False

    def __init__(self, guide: RegularGuide, state: int, known: dict[int, bytes]) -> None:
        self._guide = guide
        self._states = [state]
        self._known = known

    @property
    def is_accepting(self) -> bool:
        return self._guide.dfa.is_accepting(self._states[-1])

    def options(self) -> bytes:
        """The bytes that may come next, those first that seem to lead to an end."""
        state = self._states[-1]
        known = self._known.get(state)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[state] = self._sorted(state)
        return known

    def _sorted(self, state: int) -> bytes:
        dfa, finish = self._guide.dfa, self._guide.finish
        order = dict.fromkeys((*FIRST, *ORDER))
        found = [(byte, to) for byte in order if (to := dfa.step(state, byte))]
        needs = {to: finish.tokens(to) for _, to in found}
        here = finish.tokens(state)

        def rank(pair: tuple[int, int]) -> tuple[bool, int]:
            byte, to = pair
            closes = byte in FIRST and needs[to] < here  # in a text it may be a plain character
            return to == state, needs[to] - SOONER * closes

        return bytes(byte for byte, _ in sorted(found, key=rank))

    def push(self, byte: int) -> None:
        self._states.append(self._guide.dfa.step(self._states[-1], byte))

    def pop(self) -> None:
        self._states.pop()


class _GrammarSteps:
    """The same in a grammar."""

    is_over = False

    def __init__(self, cursor: GrammarCursor, data: bytes) -> None:
        self._matcher = cursor.matcher.deep_copy()
        self._matcher.consume_tokens(list(data))

    @property
    def is_accepting(self) -> bool:
        return bool(self._matcher.is_accepting())

    def options(self) -> bytes:
        """The bytes that may come next."""
        return _ordered(self._matcher, b"")

    def push(self, byte: int) -> None:
        self._matcher.consume_token(byte)

    def pop(self) -> None:
        self._matcher.rollback(1)


class _EndingSteps:
    """The same where an end is looked for: along the ends that the grammar's guide knows."""

    def __init__(self, cursor: GrammarCursor, data: bytes) -> None:
        tracker = cursor.end_tracker().copy()
        tracker.advance(data)
        self._trackers = [tracker]
        self._endings = cursor.guide.endings
        self._most_steps = self._endings.num_steps + MAX_STEPS

    @property
    def is_over(self) -> bool:
        return self._endings.num_steps > self._most_steps

    @property
    def is_accepting(self) -> bool:
        return bool(self._trackers[-1].matcher.is_accepting())

    def options(self) -> bytes:
        """The bytes that may come next, that of a known end first."""
        return _ordered(self._trackers[-1].matcher, self._trackers[-1].end or b"")

    def push(self, byte: int) -> None:
        tracker = self._trackers[-1].copy()
        tracker.advance(bytes((byte,)))
        self._trackers.append(tracker)

    def pop(self) -> None:
        self._trackers.pop()


def _ordered(matcher: Matcher, end: bytes) -> bytes:
    """The bytes that may come next, the first of an end before the others."""
    options = _sorted_bytes(options_of(matcher))
    first = end[:1]
    return first + options.replace(first, b"") if first and first in options else options


@lru_cache(MAX_KNOWN)
def _sorted_bytes(bits: int) -> bytes:
    return bytes(byte for byte in dict.fromkeys((*FIRST, *ORDER)) if bits >> byte & 1)


Steps: TypeAlias = _RegularSteps | _GrammarSteps | _EndingSteps
