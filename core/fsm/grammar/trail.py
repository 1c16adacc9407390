"""The end that is known for a text while it grows, byte by byte.

Each byte either begins the known end, or leaves it standing, or makes it longer by what mends it.
The end depends on the text alone, not on when it was asked for.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice

from .ending import END, LEAVING, WIDTH, Endings, Walk
from .matcher import Matcher

MAX_PATCH = 200
MAX_DIVE = 64
MAX_NODES = 24
SLACK = 4
WINDOW = 16


class Trail:
    """A text under a grammar.

    matcher: of bytes, at the start; moved from here on. end: of the empty text; None: not known.
    """

    def __init__(self, endings: Endings, matcher: Matcher, end: bytes | None) -> None:
        self._endings = endings
        self._matcher = matcher
        self._known = end
        self._place = 0
        self._num_lost = 0
        self.written = b""

    @property
    def end(self) -> bytes | None:
        """Bytes that end the text; None: none are known."""
        return None if self._known is None else self._known[self._place :]

    def copy(self) -> Trail:
        """A trail of the same text that goes on by itself."""
        other = Trail(self._endings, self._matcher.deep_copy(), self._known)
        other._place, other._num_lost = self._place, self._num_lost
        other.written = self.written
        return other

    def advance(self, data: bytes) -> None:
        """Let these bytes, which are allowed, come next."""
        for byte in data:
            self._matcher.consume_token(byte)
            self.written += bytes([byte])
            if self._known is None:
                self._find_again()
            elif self._known[self._place : self._place + 1] == bytes([byte]):
                self._place += 1
            elif not self._stands():
                self._mend()

    def _stands(self) -> bool:
        """Whether the end is one here too, or what is left of it without its first byte."""
        assert self._known is not None
        for place in (self._place + 1, self._place):
            if place <= len(self._known) and self._ends(self._known[place:]):
                self._place = place
                return True
        return False

    def _ends(self, data: bytes) -> bool:
        return bool(self._matcher.validate_tokens([*data, END]) == len(data) + 1)

    def _mend(self) -> None:
        """Find something short after which a part of the known end fits again."""
        self._known = self._patched()
        self._place, self._num_lost = 0, 0
        if self._known is None:
            self._find_again()

    def _find_again(self) -> None:
        """Look for an end from here, more and more rarely while there is none."""
        self._num_lost += 1
        if not self._num_lost & (self._num_lost - 1):
            self._known = self._endings.find(self._matcher, self.written)

    def _patched(self) -> bytes | None:
        """The shortest end found that is something new and then a part of the known one."""
        walk = Walk(self._endings, self._matcher, self.written)
        best = self._dive(walk)
        queue = [(0, b"")]
        for _ in range(MAX_NODES):
            if not queue:
                break
            cost, path = heappop(queue)
            if best is not None and len(path) >= len(best):
                continue
            walk.move(path)
            best = self._joined(walk, walk.force(MAX_PATCH), best)
            for rank, byte in enumerate(list(islice(walk.choices(), WIDTH))):
                heappush(queue, (cost + 1 + LEAVING * rank, bytes(walk.path) + bytes([byte])))
            if best is not None and cost >= SLACK:
                break
        walk.move(b"")
        return best

    def _dive(self, walk: Walk) -> bytes | None:
        """The first end on the way that seems best."""
        best = None
        for _ in range(MAX_DIVE):
            best = self._joined(walk, walk.force(MAX_PATCH), None)
            byte = next(walk.choices(), None) if best is None else None
            if byte is None or len(walk.path) >= MAX_PATCH:
                break
            walk.step(byte)
        walk.move(b"")
        return best

    def _joined(self, walk: Walk, options: int, best: bytes | None) -> bytes | None:
        """The path, and after it nothing or a part of the known end, where that is an end; or what
        is best, if this is longer."""
        assert self._known is not None
        if walk.matcher.is_accepting():
            return bytes(walk.path) if best is None or len(walk.path) < len(best) else best
        near = range(max(0, self._place - WINDOW), min(len(self._known), self._place + WINDOW))
        for start in sorted({0, *near}, reverse=True):
            tail = self._known[start:]
            is_shorter = best is None or len(walk.path) + len(tail) < len(best)
            if is_shorter and tail and options >> tail[0] & 1 and self._ends(tail):
                return bytes(walk.path) + tail
        return best
