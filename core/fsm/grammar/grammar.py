"""Guides of grammars: two matchers of llguidance, one that reads tokens and one that reads bytes.

Masks come from the first; the second finds forced bytes and short endings.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from copy import copy
from threading import Lock

from ...api.protocol import CallFailed
from ..regex.utf8 import CONTINUATION
from ..tokens.vocabulary import NEVER, Mask, left_over
from .end_tracker import EndTracker
from .ending import is_end, options_of
from .explore import Known
from .matcher import Bits, Library, Matcher, call_error, check, library_errors

NUM_BYTES = 1_000_000
MAX_FORCED = 1_024
MAX_TRACKERS = 64
MAX_REFUSED = 8
NUM_FIRST, NUM_SPREAD, NUM_SEARCHED = 64, 128, 12  # tokens that are tried near the end


class GrammarGuide:
    """As `Guide`. known: what was found out about the grammar. field: what the constraint is called
    in errors.

    end, margin: as in `Known`. Raises InvalidCall where the grammar is not sound.
    """

    def __init__(self, known: Known, library: Library, field: str = "grammar") -> None:
        self.vocabulary = library.vocabulary
        self.bits = Bits(self.vocabulary)
        self._lock = Lock()
        self._token_matcher, self._byte_matcher = library.compile(known.source, field)
        self.endings = known.endings(library)
        self.margin, self.end = known.margin, known.end
        self._trackers = {b"": EndTracker(self.endings, self._byte_matcher.deep_copy(), self.end)}

    @property
    def num_bytes(self) -> int:
        """As `Guide.num_bytes`; what the library holds is not known."""
        return NUM_BYTES

    def cursor(self, written: bytes = b"", required: bytes = b"") -> GrammarCursor:
        """As `Guide.cursor`."""
        matcher = self.byte_matcher(written)
        if matcher is None or matcher.validate_tokens(list(required)) < len(required):
            raise CallFailed(f"the constraint does not allow {written + required!r}")
        return GrammarCursor(self, matcher, written, required)

    def byte_matcher(self, written: bytes) -> Matcher | None:
        """A matcher of bytes after these; None where they are not allowed."""
        with self._lock, library_errors(call_error):
            matcher = self._byte_matcher.deep_copy()
        is_allowed = matcher.try_consume_tokens(list(written)) == len(written)
        return matcher if is_allowed else None

    def token_matcher(self, written: bytes) -> Matcher:
        """A matcher of tokens after these bytes."""
        with self._lock, library_errors(call_error):
            matcher = self._token_matcher.deep_copy()
        self.follow(matcher, written)
        return matcher

    def follow(self, matcher: Matcher, data: bytes) -> None:
        """Let a matcher of tokens read bytes that are allowed."""
        with library_errors(call_error):
            matcher.consume_tokens([self.vocabulary.size + byte for byte in data])
        check(matcher, call_error)

    def end_tracker(self, written: bytes, near: EndTracker | None = None) -> EndTracker:
        """The known end of a text, read-only for the caller; the last ones used are cached. near:
        one of a text with which this one begins, from which it is cheap to go on."""
        with self._lock:
            found = self._trackers.get(written)
            if found is None and (near is None or not written.startswith(near.written)):
                near = self._closest(written)
        if found is None:
            assert near is not None
            found = near.copy()
            found.advance(written[len(near.written) :])
            with self._lock:
                self._trackers[written] = found
                if len(self._trackers) > MAX_TRACKERS:
                    del self._trackers[next(key for key in self._trackers if key)]
        return found

    def _closest(self, written: bytes) -> EndTracker:
        sizes = range(len(written) - 1, -1, -1)
        return next(found for size in sizes if (found := self._trackers.get(written[:size])))


class GrammarCursor:
    """As `Cursor`.

    matcher: of bytes, after all tokens taken. required: bytes that the next tokens must spell.
    has_ended: an end token was taken.
    """

    __slots__ = (
        *("_end", "_ends_after", "_mask", "_need", "_num_read", "_refused", "_token_matcher"),
        "_tracker",
        *("guide", "has_ended", "matcher", "required", "written"),
    )

    def __init__(
        self, guide: GrammarGuide, matcher: Matcher, written: bytes = b"", required: bytes = b""
    ) -> None:
        self.guide = guide
        self.matcher = matcher
        self.written = written
        self.required = required
        self.has_ended = False
        self._token_matcher: Matcher | None = None
        self._tracker: EndTracker | None = None
        self._num_read = 0
        self._mask: Mask | None = None
        self._end: bytes | None = None
        self._ends_after: dict[int, bytes] = {}
        self._need = NEVER
        self._refused: tuple[int, ...] = ()

    @property
    def is_accepting(self) -> bool:
        """As `Cursor.is_accepting`."""
        return not self.required and bool(self.matcher.is_accepting())

    @property
    def is_finished(self) -> bool:
        """As `Cursor.is_finished`."""
        return self.has_ended or (self.is_accepting and not options_of(self.matcher))

    def advance(self, token: int) -> None:
        """As `Cursor.advance`."""
        vocabulary = self.guide.vocabulary
        is_known = 0 <= token < vocabulary.size
        if is_known and vocabulary.is_end[token]:
            is_allowed = self.is_accepting
            self.has_ended = is_allowed or self.has_ended
        else:
            is_allowed = is_known and self._take(token, vocabulary.token_bytes[token])
        if not is_allowed:
            raise CallFailed(f"token {token} is not allowed by the constraint here")

    def mask(self) -> Mask:
        """As `Cursor.mask`."""
        if self._mask is None:
            mask = self.guide.bits.mask(self._matcher_of_tokens(), self.is_accepting)
            self._mask = self.guide.vocabulary.spelling(mask, self.required)
            self._mask.flags.writeable = False
        return self._mask

    def mask_within(self, budget: int) -> Mask:
        """As `Cursor.mask_within`; of tokens that are too many to be tried, `fits` finds which one
        does not fit. Once it has found several, the tokens after which an end that fits was
        found."""
        if not self._refused:
            return self.mask()
        left = self.mask() & ~self.guide.bits.of([*self._refused], False)
        if len(self._refused) < MAX_REFUSED and left.any():
            return left
        end = self.known_end()
        if end is not None:
            return self._within(end, budget)
        return left if left.any() else self.mask()

    def fits(self, token: int, budget: int) -> bool:
        """As `Cursor.fits`."""
        guide, vocabulary = self.guide, self.guide.vocabulary
        is_end = not 0 <= token < vocabulary.size or vocabulary.is_end[token]
        if is_end or guide.end is None or token in self._ends_after or not self._is_near(budget):
            return True
        end = self.end_behind(vocabulary.token_bytes[token])
        if end is not None and self._spell(end) < budget:
            self._ends_after = {token: end}
            return True
        self._refused = (*self._refused, token)
        return False

    def forced(self) -> bytes:
        """As `Cursor.forced`."""
        forced = bytearray(self.required)
        self.matcher.consume_tokens(list(forced))
        while not self.matcher.is_accepting() and len(forced) < MAX_FORCED:
            options = options_of(self.matcher)
            if not options or options & (options - 1):
                break
            forced.append(options.bit_length() - 1)
            self.matcher.consume_token(forced[-1])
        self._back(len(forced))
        return _whole(self.written, bytes(forced))

    def joins(self, tail: bytes) -> bool:
        """As `Cursor.joins`."""
        return self.guide.vocabulary.is_extended(tail, self._allows)

    def shortest_finish(self) -> int:
        """As `Cursor.shortest_finish`; 0 where no end was found, so that none is waited for."""
        need = self._spell(self.known_end())
        return 0 if need >= NEVER else need

    def after(self, data: bytes) -> GrammarCursor:
        """As `Cursor.after`."""
        other = self.copy()
        if data and not other._take(None, data):
            raise CallFailed(f"the constraint does not allow {data!r} here")
        return other

    def copy(self) -> GrammarCursor:
        """As `Cursor.copy`."""
        other = copy(self)
        with library_errors(call_error):
            other.matcher = self.matcher.deep_copy()
            if self._token_matcher is not None:
                other._token_matcher = self._token_matcher.deep_copy()
        return other

    def known_end(self) -> bytes | None:
        """The shortest text found so far that ends the answer from here. It begins with
        `required`. None: no such text was found."""
        self._tracker = self.guide.end_tracker(self.written + self.required, self._tracker)
        end = self._tracker.end
        ends = [] if end is None else [self.required + end]
        ends += [] if self._end is None else [self._end]
        return min(ends, key=self._spell, default=None)

    def end_tracker(self) -> EndTracker:
        """The known end of the text so far; read-only for the caller."""
        if self._tracker is None or self._tracker.written != self.written:
            self._tracker = self.guide.end_tracker(self.written, self._tracker)
        return self._tracker

    def _take(self, token: int | None, data: bytes) -> bool:
        """Move over the bytes of a token (None: of several); False, and not moved, where they are
        not allowed."""
        rest = left_over(self.required, data)
        if not data or rest is None or self.has_ended:
            return False
        count = self.matcher.try_consume_tokens(list(data))
        check(self.matcher, call_error)
        if count < len(data):
            self._back(count)
            return False
        end = self._end
        trimmed = end[len(data) :] if end is not None and end.startswith(data) else None
        self._end = trimmed if token is None else self._ends_after.get(token, trimmed)
        self._ends_after, self._refused, self._mask = {}, (), None
        self._need = NEVER if token is None else min(NEVER, self._need + self.guide.margin)
        self.written += data
        self.required = rest
        return True

    def _allows(self, data: bytes) -> bool:
        """Whether these bytes may come next."""
        return bool(self.matcher.validate_tokens(list(data)) == len(data))

    def _is_near(self, budget: int) -> bool:
        """Whether a token could put off the end further than the budget goes."""
        if self._need + self.guide.margin >= budget:
            self._need = self._spell(self.known_end())
        return self._need < NEVER and self._need + self.guide.margin >= budget

    def end_behind(self, data: bytes) -> bytes | None:
        """A known end behind a token of these bytes, with what they leave of the required."""
        rest = left_over(self.required, data)
        if rest is None:
            return None
        end = self.guide.end_tracker(self.written + data + rest, self.end_tracker()).end
        ends = [] if end is None else [rest + end]
        here = self.known_end()
        ends += [here[len(data) :]] if here is not None and here.startswith(data) else []
        return min(ends, key=self._spell, default=None)

    def _within(self, end: bytes, budget: int) -> Mask:
        """The tokens after which some end is known that fits; else those that come closest.

        Not every token can be tried, so this is a part of what would fit, near the end of a budget
        only: beginnings of an end that is known, and of all other tokens a sample. end: of the
        answer from here; it begins with what is required.
        """
        end_tracker, vocabulary = self.end_tracker(), self.guide.vocabulary
        spell, table = vocabulary.spell, vocabulary.token_bytes
        leading = vocabulary.beginnings(end)
        found = {token: rest for token, rest in leading.items() if spell(rest) < budget}
        sample = _sample(vocabulary.tokens(self.mask()))
        others = [token for token in sample if table[token] and token not in leading]
        tail = end[len(self.required) :]
        if spell(tail) < budget:
            found |= {token: tail for token in others if is_end(self.matcher, table[token] + tail)}
        left = [token for token in others if token not in found]
        left.sort(key=lambda token: len(table[token]))
        for token in left[:NUM_SEARCHED]:
            other = self._end_after(end_tracker, table[token])
            if other is not None and spell(other) < budget:
                found[token] = other
        if not found and not self.is_accepting:
            least = min(map(spell, leading.values()), default=0)
            found = {token: rest for token, rest in leading.items() if spell(rest) == least}
        self._ends_after = found
        return self.guide.bits.of([*found], self.is_accepting)

    def _end_after(self, end_tracker: EndTracker, data: bytes) -> bytes | None:
        """The end that is known after a token of these bytes, with what it leaves of the required.
        end_tracker: of the text so far."""
        step = data + self.required[len(data) :]
        if self.matcher.validate_tokens(list(step)) < len(step):
            return None
        end_tracker = end_tracker.copy()
        end_tracker.advance(step)
        return None if end_tracker.end is None else step[len(data) :] + end_tracker.end

    def _spell(self, end: bytes | None) -> int:
        return NEVER if end is None else self.guide.vocabulary.spell(end)

    def _back(self, count: int) -> None:
        if count:
            self.matcher.rollback(count)

    def _matcher_of_tokens(self) -> Matcher:
        """The matcher of tokens, where the other one is."""
        if self._token_matcher is None:
            self._token_matcher = self.guide.token_matcher(self.written)
        else:
            self.guide.follow(self._token_matcher, self.written[self._num_read :])
        self._num_read = len(self.written)
        return self._token_matcher


def _sample(tokens: Sequence[int]) -> Sequence[int]:
    """The first of these tokens, and some that are spread over the others."""
    rest = tokens[NUM_FIRST:]
    return [*tokens[:NUM_FIRST], *rest[:: max(1, len(rest) // NUM_SPREAD)]]


def _whole(written: bytes, forced: bytes) -> bytes:
    """As much of the forced bytes as ends between characters."""
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    decoder.decode(written[-3:].lstrip(bytes(CONTINUATION)))
    decoder.decode(forced)
    size = len(forced) - len(decoder.getstate()[0])
    return forced[:size] if size > 0 else b""
