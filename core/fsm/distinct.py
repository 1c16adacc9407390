"""Guides of JSON schemas some of whose arrays must not repeat an item, or objects a name.

Another guide knows the rest of the schema; what it allows is narrowed by what was written: a token
is left out that would repeat an item, or after which every way on would. Knows nothing of schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TypeAlias

from ..api.protocol import CallFailed, InvalidCall
from .grammar.grammar import GrammarCursor, GrammarGuide
from .json_schema.alike import BLANKS
from .json_schema.shapes import NOWHERE, Shapes
from .json_schema.tracker import Tracker
from .search import Goal, find, find_end, steps_of
from .tokens.regular import RegularCursor, RegularGuide
from .tokens.vocabulary import NEVER, Mask

Inner: TypeAlias = RegularGuide | GrammarGuide
InnerCursor: TypeAlias = RegularCursor | GrammarCursor

FIELD = "json_schema"
MARGIN = 16
MAX_REFUSED = 8
NODES_PER_MASK = 1_000
MAX_IN_TEXT = 64  # tokens, where each of them may decide what a text can be
BREAKS, OPENERS = frozenset(b",]}"), frozenset(b"[{")
QUOTES = frozenset(b'"\\')  # with which a string ends, or a character of one begins


class DistinctGuide:
    """As `Guide`. inner: of the schema without uniqueItems. shapes: where items must differ.

    Raises InvalidCall where no text was found that repeats nothing.
    """

    def __init__(self, inner: Inner, shapes: Shapes) -> None:
        self.inner = inner
        self.vocabulary = inner.vocabulary
        self._shapes = shapes
        self.options: dict[int, bytes] = {}
        self.quoting = self._flags(lambda data: bool(QUOTES & set(data)))
        self.breaking = self._flags(lambda data: bool(BREAKS & set(data)))
        self.blank = self._flags(lambda data: data[0] in BLANKS or data[-1] in BLANKS)
        self.entering = self._flags(lambda data: bool(OPENERS & set(data)) and b"," in data)
        if self.cursor().is_stuck:
            allowed = "arrays that have as many different items as they need"
            raise InvalidCall(FIELD, "#", allowed)

    @property
    def num_bytes(self) -> int:
        """As `Guide.num_bytes`."""
        return self.inner.num_bytes + 4 * self.quoting.nbytes

    def cursor(self, written: bytes = b"", required: bytes = b"") -> DistinctCursor:
        """As `Guide.cursor`."""
        tracker = Tracker(self._shapes).after(written)
        if tracker is None or tracker.after(required) is None:
            raise CallFailed(f"the constraint does not allow {written + required!r}")
        return DistinctCursor(self, self.inner.cursor(written, required), tracker)

    def _flags(self, holds: Callable[[bytes], bool]) -> Mask:
        vocabulary = self.vocabulary
        tokens = [
            token
            for token, data in enumerate(vocabulary.token_bytes)
            if data and not vocabulary.is_end[token] and holds(data)
        ]
        return vocabulary.mask_of(tokens)


class DistinctCursor:
    """As `Cursor`. inner: of the guide that knows the rest. tracker: of what was written."""

    __slots__ = (
        *(
            "_closest",
            "_end",
            "_end_after",
            "_has_end",
            "_mask",
            "_need",
            "_num_failed",
            "_refused",
            "_unsure",
        ),
        *("guide", "inner", "tracker"),
    )

    def __init__(self, guide: DistinctGuide, inner: InnerCursor, tracker: Tracker) -> None:
        self.guide = guide
        self.inner = inner
        self.tracker = tracker
        self._mask: Mask | None = None
        self._refused: tuple[int, ...] = ()
        self._closest: tuple[int, ...] = ()
        self._unsure: frozenset[int] = frozenset()
        self._end: bytes | None = None
        self._end_after = (-1, b"")
        self._has_end = False
        self._num_failed = 0
        self._need = NEVER

    @property
    def is_accepting(self) -> bool:
        """As `Cursor.is_accepting`."""
        return self.inner.is_accepting

    @property
    def is_finished(self) -> bool:
        """As `Cursor.is_finished`."""
        return self.inner.is_finished

    def advance(self, token: int) -> None:
        """As `Cursor.advance`."""
        vocabulary = self.guide.vocabulary
        is_text = 0 <= token < vocabulary.size and not vocabulary.is_end[token]
        after = self.tracker.after(vocabulary.token_bytes[token]) if is_text else self.tracker
        if after is None:
            raise CallFailed(f"token {token} is not allowed by the constraint here")
        self.inner.advance(token)
        self.tracker = after
        self._need = min(NEVER, self._need + MARGIN)
        self._forget(token, vocabulary.token_bytes[token] if is_text else b"")

    def mask(self) -> Mask:
        """As `Cursor.mask`."""
        if self._mask is None:
            self._mask = self._filtered(self.inner.mask())
            self._mask.flags.writeable = False
        return self._mask

    def mask_within(self, budget: int) -> Mask:
        """As `Cursor.mask_within`; `fits` finds which token does not fit. Once it has found
        several, the tokens with which a known end begins."""
        mask = self.mask() & ~self.guide.vocabulary.mask_of(self._refused)
        if not self._refused or (len(self._refused) < MAX_REFUSED and mask.any()):
            return mask
        end = self.end()
        if end is not None:
            leading = self.guide.vocabulary.beginnings(end)
            needs = {token: self._spell(rest) for token, rest in leading.items()}
            least = min(needs.values(), default=0)
            closest = tuple(it for it, need in needs.items() if need < budget or need == least)
            ends = self.mask() & self.guide.vocabulary.mask_of(self.guide.vocabulary.end_ids)
            mask = (self.guide.vocabulary.mask_of(closest) & self.mask()) | ends
            self._closest = closest
        if not mask.any():  # better an answer that is cut off than none
            mask = self.mask()
            self._closest = tuple(self.guide.vocabulary.tokens(mask))
        return mask

    def fits(self, token: int, budget: int) -> bool:
        """As `Cursor.fits`."""
        vocabulary = self.guide.vocabulary
        is_end = not 0 <= token < vocabulary.size or bool(vocabulary.is_end[token])
        if token in self._closest:
            return True
        if token in self._unsure and not self._leads_on(vocabulary.token_bytes[token]):
            self._refused = (*self._refused, token)
            return False
        if is_end or not self._is_near(budget):
            return True  # where no end was found, the inner one would repeat something
        end, data = self.end(), vocabulary.token_bytes[token]
        is_known = end is not None and end.startswith(data)
        is_soon = is_known and self._spell((end or b"")[len(data) :]) < budget
        if is_soon:
            return True
        end = self._end_behind(data)
        if end is not None and self._spell(end) < budget:
            self._end_after = (token, end)
            return True
        self._refused = (*self._refused, token)
        return False

    def _leads_on(self, data: bytes) -> bool:
        after = self.tracker.after(data)
        return after is not None and self._goes_on(data, after)[0]

    def _is_near(self, budget: int) -> bool:
        """Whether a token could put off the end further than the budget goes."""
        if self._need + MARGIN >= budget:
            self._need = self._spell(self.end())
        return self._need < NEVER and self._need + MARGIN >= budget

    def forced(self) -> bytes:
        """As `Cursor.forced`."""
        forced = self.inner.forced()
        while self.tracker.after(forced) is None:  # every way on repeats something
            forced = forced[:-1]
        return forced

    def joins(self, tail: bytes) -> bool:
        """As `Cursor.joins`."""
        return self.inner.joins(tail)

    def shortest_finish(self) -> int:
        """As `Cursor.shortest_finish`; 0 where no end was found, so that none is waited for."""
        need = self._spell(self.end())
        return 0 if need >= NEVER else need

    def after(self, data: bytes) -> DistinctCursor:
        """As `Cursor.after`."""
        tracker = self.tracker.after(data)
        if tracker is None:
            raise CallFailed(f"the constraint does not allow {data!r} here")
        return DistinctCursor(self.guide, self.inner.after(data), tracker)

    def copy(self) -> DistinctCursor:
        """As `Cursor.copy`."""
        other = copy(self)
        other.inner = self.inner.copy()
        return other

    @property
    def is_stuck(self) -> bool:
        """Whether every way to go on repeats an item."""
        return find_end(self.inner, b"", self.guide.options, self.tracker).is_exhausted

    def end(self) -> bytes | None:
        """Bytes that end the answer from here and repeat nothing; None: none were found."""
        if not self._has_end:
            self._has_end = True
            self._num_failed += 1
            if not self._num_failed & (self._num_failed - 1):  # more and more rarely
                self._end = self._end_behind(b"")
                self._num_failed = 0 if self._end is not None else self._num_failed
        return self._end

    def _end_behind(self, data: bytes) -> bytes | None:
        """Bytes that end the answer behind these, with what they leave of the required; None: none
        were found."""
        end = self.inner.end_behind(data) if isinstance(self.inner, GrammarCursor) else None
        if end is not None and self.tracker.after(data + end) is not None:
            return end
        rest = self.inner.required[len(data) :]
        tracker = self.tracker.after(data + rest)
        if tracker is None:
            return None
        found = find_end(self.inner, data + rest, self.guide.options, tracker)
        return None if found.end is None else rest + found.end

    def _forget(self, token: int, data: bytes) -> None:
        """A token was taken: what is known of the answer's end, if anything, is that behind it."""
        end = self._end
        known, behind = self._end_after
        self._end = end[len(data) :] if end is not None and end.startswith(data) else None
        self._end = behind if known == token else self._end
        self._has_end = self._end is not None
        self._mask, self._end_after = None, (-1, b"")
        self._refused, self._closest, self._unsure = (), (), frozenset()

    def _filtered(self, mask: Mask) -> Mask:
        """The tokens of a mask that repeat nothing and leave a way on; where it would take long to
        try each of them, some are left for `fits`."""
        vocabulary, table = self.guide.vocabulary, self.guide.vocabulary.token_bytes
        left, refused, unsure = NODES_PER_MASK, list[int](), set[int]()
        for token in vocabulary.tokens(mask & self._doubtful()):
            after = self.tracker.after(table[token])
            if after is None:
                refused.append(token)
            elif left <= 0:
                unsure.add(token)
            else:
                goes_on, num_nodes = self._goes_on(table[token], after)
                left -= num_nodes
                refused += () if goes_on else (token,)
        self._unsure = frozenset(unsure)
        return mask & ~vocabulary.mask_of(refused)

    def _doubtful(self) -> Mask:
        """The tokens that may repeat an item, or lead to where every way on does."""
        guide, tracker = self.guide, self.tracker
        if tracker.frame is None:
            return guide.entering
        is_free = (
            tracker.in_string and len(guide.vocabulary.tokens(self.inner.mask())) > MAX_IN_TEXT
        )
        if not is_free and (_is_tight(tracker) or (tracker.is_watching and not tracker.in_string)):
            return self.inner.mask()
        if not tracker.in_string:
            return guide.breaking | guide.entering | guide.blank
        near = {it for rest in tracker.rests for it in guide.vocabulary.beginnings(rest)}
        return guide.quoting | guide.vocabulary.mask_of(near)

    def _goes_on(self, data: bytes, tracker: Tracker) -> tuple[bool, int]:
        """Whether more items can follow, or the array can end, after these bytes, and how many
        places were tried. tracker: after them."""
        is_blank = not tracker.in_string and data[-1] in BLANKS  # what a comma begins with, maybe
        if not is_blank and not tracker.is_watching and not _is_tight(tracker):
            return True, 0
        steps = steps_of(self.inner, data, self.guide.options)
        if is_blank:
            while len(options := steps.options()) == 1 and not steps.is_accepting:
                after = tracker.after(options)
                if after is None:
                    return False, 1
                tracker = after
                steps.push(options[0])
        goal = Goal.CLOSED if _is_tight(tracker) else Goal.DIFFERENT
        found = find(steps, tracker, goal)
        return not found.is_exhausted, found.num_nodes + 1

    def _spell(self, end: bytes | None) -> int:
        return NEVER if end is None else self.guide.vocabulary.spell(end)


def _is_tight(tracker: Tracker) -> bool:
    """Whether an item may take a value that a later one needs."""
    rows = tracker.shapes
    return any(
        f.seen is not None and f.shape != NOWHERE and f.number < rows[f.shape].num_tight
        for f in tracker.frames
        if f.is_array
    )
