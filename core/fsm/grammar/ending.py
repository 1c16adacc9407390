"""Short endings of a grammar's texts, found by search, byte by byte.

A matcher gives the bytes allowed next, not the distance to the end. So the search follows a greedy
path (complete known phrases, close brackets, avoid bytes that change nothing), then tries paths
that leave it for a shorter end. Everything is counted in steps, not in
time, so that the same answer ends the same way everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain, islice
from math import inf
from time import thread_time

from ..tokens.trie import num_shared
from .matcher import Matcher
from .quoted import Position, QuotedTexts

LIMITS = (48, 200, 800)
MAX_STEPS = 10_000
MAX_QUICK = 4_000
MAX_CONTEXT = 48
MAX_TRIED = 16
NUM_SAME = 3
WIDTH = 8
RANK_COST = 2  # a choice that is not the best counts as so many that are
END = 256
FREE = 64  # with more options than these the text is free, as within quotes
BRACKETS = {ord("]"): b"[", ord("}"): b"{", ord(")"): b"(", ord(">"): b"<"}
CLOSERS = b"]})>\"'`;\n"
OPENERS = b"([{"
FEW = b",:@.=</|&+-* 0aA"
ORDER = bytes(dict.fromkeys((*CLOSERS, *FEW, *range(32, 128), *range(256))))
ALL_BYTES = (1 << 256) - 1


def options_of(matcher: Matcher) -> int:
    """Bits of the bytes that may come next."""
    return int.from_bytes(matcher.compute_bitmask(), "little") & ALL_BYTES


def is_end(matcher: Matcher, data: bytes) -> bool:
    """Whether these bytes end the text."""
    return bool(matcher.validate_tokens([*data, END]) == len(data) + 1)


class Endings:
    """Finds ends for the texts of one grammar.

    usable: bits of the bytes that tokens can spell. quoted: texts in quotes of the grammar.
    num_steps: bytes that were tried in all. ends_at: processor time when searches give up.
    """

    def __init__(self, usable: int = ALL_BYTES, quoted: QuotedTexts | None = None) -> None:
        self.quoted = quoted or None
        self.num_steps = 0
        self.ends_at = inf
        self._usable = usable
        self._follow: dict[bytes, list[int]] = {}
        self._firsts: list[int] = []
        self._shortest = dict.fromkeys(OPENERS, inf)
        self._ranked: dict[int, tuple[list[int], list[int]]] = {}

    def learn(self, phrase: bytes) -> None:
        """Remember a text that is whole in itself; those learned first are preferred."""
        for size in range(1, min(len(phrase), MAX_CONTEXT)):
            after = self._follow.setdefault(phrase[:size], [])
            if phrase[size] not in after:
                after.append(phrase[size])
        if phrase and phrase[0] not in self._firsts:
            self._firsts.append(phrase[0])
            self._ranked.clear()
        if len(phrase) > 1 and len(phrase) < self._shortest.get(phrase[0], 0):
            self._shortest[phrase[0]] = len(phrase)
            self._ranked.clear()

    def find(
        self,
        matcher: Matcher,
        written: bytes,
        is_thorough: bool = False,
        position: Position | None = None,
    ) -> bytes | None:
        """Bytes that end the text from here, soon; None: no such bytes were found.

        matcher: of bytes; left as it was. written: the text so far. is_thorough: look for something
        shorter than the first that is found. position: of the text, as `quoted` has it; None: it is
        found out.
        """
        return Search(self, matcher, written, position).best(is_thorough)

    def branches(self, matcher: Matcher) -> list[bytes]:
        """Whole texts, one for each way to begin that was found to lead to an end."""
        return Search(self, matcher, b"").branches()

    def options(self, matcher: Matcher) -> int:
        """Bits of the bytes that may come next."""
        return options_of(matcher) & self._usable

    def learned(self, options: int, tail: bytes) -> list[int]:
        """The bytes among these options with which a phrase goes on after such a tail."""
        found: dict[int, None] = {}
        if options and tail:
            for size in range(min(len(tail), MAX_CONTEXT - 1), 0, -1):
                for byte in self._follow.get(tail[-size:], ()):
                    if options >> byte & 1:
                        found[byte] = None
        return list(found)

    @property
    def is_timed_out(self) -> bool:
        """Whether it is time to give up."""
        return self.ends_at < inf and thread_time() > self.ends_at

    def is_later(self, byte: int) -> bool:
        """Whether no phrase begins with this byte."""
        return byte not in self._firsts

    def ranked(self, options: int) -> tuple[list[int], list[int]]:
        """The bytes among these options that often close something, and some others; those first
        that seem to lead to an end, and last those that open what has to be closed again."""
        known = self._ranked.get(options)
        if known is None:
            order = dict.fromkeys((*self._firsts, *ORDER))
            closers, openers = (
                [byte for byte in some if options >> byte & 1] for some in (CLOSERS, OPENERS)
            )
            apart = CLOSERS + OPENERS
            others = [byte for byte in order if options >> byte & 1 and byte not in apart]
            others = others[: MAX_TRIED - len(openers)]
            others += sorted(openers, key=lambda byte: self._shortest[byte])
            known = self._ranked[options] = closers, others
        return known


class Walk:
    """A matcher of bytes that moves along paths from its position and back.

    path: bytes tried. num_steps: how many were tried in all.
    """

    def __init__(
        self,
        endings: Endings,
        matcher: Matcher,
        written: bytes,
        position: Position | None = None,
    ) -> None:
        self.endings = endings
        self.matcher = matcher
        self.path = bytearray()
        self.num_steps = 0
        self._written = written
        # of the text, before each byte of the path and after it
        self._positions = [] if position is None else [position]

    @property
    def tail(self) -> bytes:
        """What was written last, the path included."""
        return self._written[-MAX_CONTEXT:] + bytes(self.path)

    def options(self) -> int:
        """Bits of the bytes that may come next."""
        return self.endings.options(self.matcher)

    def move(self, path: bytes) -> None:
        """Stand after these bytes."""
        shared = num_shared(self.path, path)
        self.back(len(self.path) - shared)
        for byte in path[shared:]:
            self.step(byte)

    def step(self, byte: int) -> None:
        """Go on with a byte that is allowed."""
        self.matcher.consume_token(byte)
        self.path.append(byte)
        self.num_steps += 1
        self.endings.num_steps += 1

    def back(self, count: int) -> None:
        """Forget the last bytes."""
        if count:
            self.matcher.rollback(count)
            del self.path[-count:]
            del self._positions[len(self.path) + 1 :]

    def follow_forced(self, limit: int) -> int:
        """Go on as long as there is no choice; the options where there is one, or at the end."""
        options = self.options()
        while not options & (options - 1) and options and len(self.path) < limit:
            if self.matcher.is_accepting():
                break
            self.step(options.bit_length() - 1)
            options = self.options()
        return options

    def choices(self) -> Iterator[int]:
        """Bytes that may come next, those first that seem to lead to an end: with which a phrase
        goes on, that close something, after which something else is allowed than before; and a few
        others. The path must be the same whenever the next one is taken."""
        options = self.options()
        if not options & (options - 1):
            yield from (options.bit_length() - 1,) if options else ()
            return
        learned = self._leading() if options.bit_count() > FREE else []
        learned = [byte for byte in learned if options >> byte & 1]
        learned = learned or self.endings.learned(options, self.tail)
        (closers, others), same = self.endings.ranked(options), list[int]()
        yield from learned
        closers = [byte for byte in closers if byte not in learned]
        yield from self._changing(closers, options, same)
        closing = [byte for byte in same if self.closes(byte)]
        yield from closing
        others = [byte for byte in others if byte not in learned]
        yield from self._changing(others, options, same)
        rest = [byte for byte in same if byte not in closing]
        yield from sorted(rest, key=self.endings.is_later)[:NUM_SAME]

    def _leading(self) -> list[int]:
        """The bytes that lead to the end of a text in quotes that is written here."""
        quoted = self.endings.quoted
        if quoted is None:
            return []
        if not self._positions:
            self._positions.append(quoted.position(self._written))
        for byte in self.path[len(self._positions) - 1 :]:
            self._positions.append(quoted.after(self._positions[-1], byte))
        return list(dict.fromkeys(quoted.leading(self._positions[-1])))

    def _changing(self, bytes_: list[int], options: int, same: list[int]) -> Iterator[int]:
        """The bytes after which something else is allowed; those after which it is not go to
        `same`. In free text those come first that leave it, and then those after which more is
        allowed, as the quote that ends a name of which a pattern wants some last letter."""
        is_free = options.bit_count() > FREE
        later: tuple[list[int], list[int]] = [], []
        for byte in bytes_:
            self.step(byte)
            after = self.options()
            self.back(1)
            if after == options:
                same.append(byte)
            elif not is_free or after.bit_count() <= FREE:
                yield byte
            else:
                later[not after & ~options].append(byte)
        yield from chain(*later)

    def closes(self, byte: int) -> bool:
        """Whether this is a bracket for one that is open in what was written."""
        opener = BRACKETS.get(byte, b"")
        texts = (self._written, self.path)
        return bool(opener) and sum(t.count(opener) - t.count(byte) for t in texts) > 0


class Search(Walk):
    """One search for an end."""

    _max_steps = MAX_QUICK

    def best(self, is_thorough: bool) -> bytes | None:
        """The shortest end found; long ones are looked for where there are no short ones."""
        for limit in LIMITS:
            self._max_steps = MAX_STEPS if is_thorough else MAX_QUICK
            self.num_steps = 0
            best = self._greedy_end(limit)
            best = self._shorter(best, limit) if is_thorough else best
            if best is not None:
                return best
        return None

    def branches(self) -> list[bytes]:
        """As `Endings.branches`."""
        self.follow_forced(LIMITS[0])
        start = bytes(self.path)
        found: dict[bytes, bytes] = {}
        for limit in LIMITS:
            self.num_steps = 0
            for way in self._ways(start):
                end = self._end(way, limit)
                if end is not None:
                    found.setdefault(way, end)
        self.move(b"")
        return sorted(found.values(), key=len)

    def _shorter(self, best: bytes | None, limit: int) -> bytes | None:
        """An end that is shorter, on ways that leave the first one now and then."""
        queue = [(0, b"")]
        while queue and self.num_steps < MAX_STEPS and not self.endings.is_timed_out:
            cost, path = heappop(queue)
            limit = limit if best is None else len(best)
            if len(path) + 1 >= limit:
                continue
            self.move(path)
            self.follow_forced(limit)
            for rank, way in enumerate(self._ways(bytes(self.path))):
                best = self._end(way, limit if best is None else len(best)) or best
                heappush(queue, (cost + 1 + RANK_COST * rank, way))
        self.move(b"")
        return best

    def _ways(self, path: bytes) -> list[bytes]:
        """What can come after a path, the best first."""
        self.move(path)
        return [path + bytes([byte]) for byte in islice(self.choices(), WIDTH)]

    def _end(self, path: bytes, limit: int) -> bytes | None:
        """An end of less than `limit` bytes that begins with a path."""
        self.move(path)
        return self._greedy_end(limit)

    def _greedy_end(self, limit: int) -> bytes | None:
        """An end of less than `limit` bytes that begins with the path."""
        start = bytes(self.path)
        end = None
        while len(self.path) < limit and self.num_steps < self._max_steps:
            if self.endings.is_timed_out:
                break
            if self.matcher.is_accepting():
                end = bytes(self.path)
                break
            byte = next(self.choices(), None)
            if byte is None:
                break
            self.step(byte)
        self.move(start)
        return end
