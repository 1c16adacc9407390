"""What is found out about a grammar before any answer: short texts of its rules, and a whole one.

All of it is plain data, so that it may be found in one process and used in another.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from time import thread_time
from typing import NamedTuple

from ...api.protocol import InvalidCall
from ..regex.limits import TooSlow
from ..tokens.vocabulary import NEVER
from .ending import Endings, is_end
from .lark import START, Lark
from .matcher import FIELD, Library, Matcher
from .quoted import QuotedTexts
from .shortest import shortest_texts

MAX_PHRASES = 64
MAX_LEARNED = 100_000
MAX_SECONDS = 2.0
STEP_SECONDS = 0.0002
MIN_MARGIN = 16


class Known(NamedTuple):
    """A grammar in Lark, and what was found out about it.

    margin: tokens by which one token can put off the end, about.
    end: a text of the grammar, found to be short; None: none was found, or not in time.
    phrases: texts that are whole in themselves, as `Endings.learn` takes them.
    quoted: patterns of texts in quotes that want some last letters.
    """

    source: str
    margin: int
    end: bytes | None
    phrases: tuple[bytes, ...]
    quoted: tuple[str, ...] = ()

    def endings(self, library: Library) -> Endings:
        """What finds ends for the texts of this grammar."""
        endings = Endings(library.usable, QuotedTexts(self.quoted, library.usable))
        for phrase in self.phrases:
            endings.learn(phrase)
        return endings


def explore(
    lark: Lark, library: Library, field: str = "grammar", seconds: float | None = None
) -> Known:
    """Find out about a grammar, called `field` in errors. A grammar too slow to be tried is given
    no end.

    seconds: of processor time, after which it raises TooSlow; None: as much as is allowed.
    Raises InvalidCall where the grammar is not sound.
    """
    return _Explorer(lark, library, field, seconds).known()


class _Explorer:
    def __init__(self, lark: Lark, library: Library, field: str, seconds: float | None) -> None:
        self._lark = lark
        self._library = library
        self._field = field
        self._has_time_limit = seconds is not None
        began = thread_time()
        self._texts = shortest_texts(lark) if seconds is None else shortest_texts(lark, seconds)
        self._quoted = QuotedTexts(lark.quoted, library.usable)
        self._start = thread_time()  # of what the matcher takes
        self._endings = Endings(library.usable, self._quoted)
        limit = self._start + MAX_SECONDS if seconds is None else began + seconds
        self._endings.ends_at = limit
        self._phrases: list[bytes] = []

    def known(self) -> Known:
        matcher, endings = self._library.byte_matcher(self._lark.source, self._field), self._endings
        margin = MIN_MARGIN + 2 * self._learn_all()
        end = self._shortest_text(matcher) or endings.find(matcher, b"", is_thorough=True)
        self._check_time()
        seconds = thread_time() - self._start
        is_slow = seconds > STEP_SECONDS * max(1_000, endings.num_steps) or endings.is_timed_out
        endings.ends_at = inf
        end = None if is_slow else end
        return Known(self._lark.source, margin, end, tuple(self._phrases), self._quoted.patterns)

    def _shortest_text(self, matcher: Matcher) -> bytes | None:
        """The shortest text by the definitions; None: none is known, or tokens cannot spell it."""
        text = self._texts.get(START, "").encode(errors="surrogatepass")
        is_usable = all(self._library.usable >> byte & 1 for byte in text)
        return text if text and is_usable and is_end(matcher, text) else None

    def _learn_all(self) -> int:
        """Find short texts for each rule; the most tokens that one of them has."""
        most = 0
        for literal in self._lark.literals[:MAX_PHRASES]:
            self._learn(literal)
        missing = self._parts()
        is_new = True
        while missing and is_new:
            is_new = False
            for rule, matcher in tuple(missing.items()):
                self._check_time()
                phrases = self._endings.branches(matcher)
                most = max([most, *map(self._learn, phrases)])
                if phrases:
                    del missing[rule]
                    is_new = True
        rest = (self._texts.get(rule, "").encode(errors="surrogatepass") for rule in missing)
        return max([most, *map(self._learn, rest)])

    def _parts(self) -> dict[str, Matcher]:
        """Matchers of bytes for single rules, as many as do not cost much."""
        found, size = dict[str, Matcher](), 0
        for rule in self._lark.rules[:MAX_PHRASES]:
            self._check_time()
            source = self._lark.started_at(rule)
            size += len(source)
            if size > MAX_LEARNED:
                break
            with suppress(InvalidCall):  # not sound alone
                found[rule] = self._library.byte_matcher(source, FIELD)
        return found

    def _learn(self, phrase: bytes) -> int:
        """Remember a phrase; how many tokens it takes."""
        self._phrases.append(phrase)
        self._endings.learn(phrase)
        count = self._library.vocabulary.spell(phrase)
        return count if count < NEVER else len(phrase)

    def _check_time(self) -> None:
        if self._has_time_limit and self._endings.is_timed_out:
            raise TooSlow(self._field, "a grammar", "one that is explored in less time")
