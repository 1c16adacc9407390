"""Tracks a known end of a text while the text grows, byte by byte.

A byte either begins the known end, or leaves it valid, or requires a repair that makes it longer.
The end depends on the text alone, not on when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from heapq import heappop, heappush
from itertools import chain, islice

from .ending import RANK_COST, WIDTH, Endings, Walk, is_end
from .matcher import Matcher

MAX_REPAIR = 200
MAX_GREEDY_STEPS = 64
MAX_NODES = 24
SLACK = 4
WINDOW = 16


class EndTracker:
    """A text under a grammar.

    matcher: of bytes, at the start; moved along with the text. end: of the empty text; None: none
      is known.
    """

    def __init__(self, endings: Endings, matcher: Matcher, end: bytes | None) -> None:
        self._endings = endings
        self.matcher = matcher
        self._known = end
        self._first = end or b""
        self._offset = 0
        self._num_failures = 0
        self.written = b""
        quoted = endings.quoted
        self._position = None if quoted is None else quoted.position(b"")

    @property
    def end(self) -> bytes | None:
        """Bytes that end the text; None: none are known."""
        return None if self._known is None else self._known[self._offset :]

    def copy(self) -> EndTracker:
        """A tracker of the same text that goes on by itself."""
        other = copy(self)
        other.matcher = self.matcher.deep_copy()
        return other

    def advance(self, data: bytes) -> None:
        """Let these bytes, which are allowed, come next."""
        for byte in data:
            self.matcher.consume_token(byte)
            self.written += bytes([byte])
            if self._endings.quoted is not None and self._position is not None:
                self._position = self._endings.quoted.after(self._position, byte)
            if self._known is None:
                self._search_again()
            elif self._known[self._offset : self._offset + 1] == bytes([byte]):
                self._offset += 1
            elif not self._end_still_fits():
                self._repair()

    def _end_still_fits(self) -> bool:
        """Whether the end is one here too, or what is left of it without its first byte."""
        assert self._known is not None
        for offset in (self._offset + 1, self._offset):
            if offset <= len(self._known) and is_end(self.matcher, self._known[offset:]):
                self._offset = offset
                return True
        return False

    def _repair(self) -> None:
        """Find something short after which a part of the known end fits again."""
        self._known = self._repaired()
        self._offset, self._num_failures = 0, 0
        if self._known is None:
            self._search_again()

    def _search_again(self) -> None:
        """Look for an end from here, more and more rarely while there is none."""
        self._num_failures += 1
        if not self._num_failures & (self._num_failures - 1):
            found = self._endings.find(self.matcher, self.written, position=self._position)
            self._known = self._repaired() if found is None and self._first else found

    def _repaired(self) -> bytes | None:
        """The shortest end found that is something new and then a part of the known one."""
        walk = Walk(self._endings, self.matcher, self.written, self._position)
        best = self._greedy_search(walk)
        queue = [(0, b"")]
        for _ in range(MAX_NODES):
            if not queue:
                break
            cost, path = heappop(queue)
            if best is not None and len(path) >= len(best):
                continue
            walk.move(path)
            options = walk.follow_forced(MAX_REPAIR)
            best = self._with_known_end(walk, options, best)
            best = best or self._beyond_known_end(walk, options)
            for rank, byte in enumerate(list(islice(walk.choices(), WIDTH))):
                heappush(queue, (cost + 1 + RANK_COST * rank, bytes(walk.path) + bytes([byte])))
            if best is not None and cost >= SLACK:
                break
        walk.move(b"")
        return best

    def _greedy_search(self, walk: Walk) -> bytes | None:
        """The first end on the way that seems best."""
        best = None
        for _ in range(MAX_GREEDY_STEPS):
            best = self._with_known_end(walk, walk.follow_forced(MAX_REPAIR), None)
            byte = next(walk.choices(), None) if best is None else None
            if byte is None or len(walk.path) >= MAX_REPAIR:
                break
            walk.step(byte)
        walk.move(b"")
        return best

    def _with_known_end(self, walk: Walk, options: int, best: bytes | None) -> bytes | None:
        """The path, and after it nothing or a part of the known end, where that is an end; or what
        is best, if this is longer."""
        if walk.matcher.is_accepting():
            return bytes(walk.path) if best is None or len(walk.path) < len(best) else best
        for tail in chain(self._tails(options), self._first_tails(options)):
            is_shorter = best is None or len(walk.path) + len(tail) < len(best)
            if is_shorter and is_end(self.matcher, tail):
                return bytes(walk.path) + tail
        return best

    def _beyond_known_end(self, walk: Walk, options: int) -> bytes | None:
        """The path, a part of the known end and little more, where that is an end."""
        path = bytes(walk.path)
        for tail in self._tails(options):
            if walk.matcher.validate_tokens([*tail]) < len(tail):
                continue
            walk.move(path + tail)
            for _ in range(SLACK):
                byte = None if walk.matcher.is_accepting() else next(walk.choices(), None)
                if byte is None:
                    break
                walk.step(byte)
            found = bytes(walk.path) if walk.matcher.is_accepting() else None
            walk.move(path)
            if found is not None:
                return found
        return None

    def _tails(self, options: int) -> Iterator[bytes]:
        """Parts of the known end, of those that begin near the text or with it, which begin with
        one of these bytes; the shortest first."""
        if self._known is None:
            return
        near = range(max(0, self._offset - WINDOW), min(len(self._known), self._offset + WINDOW))
        for start in sorted({0, *near}, reverse=True):
            if self._known[start:] and options >> self._known[start] & 1:
                yield self._known[start:]

    def _first_tails(self, options: int) -> Iterator[bytes]:
        """The same of the end of the empty text, as far as one of these bytes begins it: it has all
        that an answer needs."""
        size = len(self._first)
        for start in range(size - 1, max(-1, size - 1 - MAX_REPAIR), -1):
            if options >> self._first[start] & 1:
                yield self._first[start:]
