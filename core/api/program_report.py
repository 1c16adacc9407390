"""What an engine reports of programs: by kind, what their calls used, what was not computed again,
and how good the guesses of their hints were.

A kind is a program's name, as the hints of its calls bear it (`ForkHint.kind`). It is a text of the
client's, and is shown only to those who may see that client's figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_KIND_LEN = 128
NUM_KINDS = 1000  # of a report


@dataclass(frozen=True, slots=True)
class Guesses:
    """What hints expected, against what happened. made: by calls that have ended. The others are of
    programs that are over, as far as all their calls were watched.

    right: as expected. early: it came sooner, or less of it. late: later, or more of it. never: a
    text that was to be used again was not.
    """

    made: int = 0
    right: int = 0
    early: int = 0
    late: int = 0
    never: int = 0

    def __add__(self, other: Guesses) -> Guesses:
        return Guesses(
            self.made + other.made,
            self.right + other.right,
            self.early + other.early,
            self.late + other.late,
            self.never + other.never,
        )

    @property
    def wrong(self) -> int:
        """Those that were not right."""
        return self.early + self.late + self.never

    @property
    def judged(self) -> int:
        """Those of which it is known whether they were right."""
        return self.right + self.wrong


@dataclass(frozen=True, slots=True)
class KindUsage:
    """What the calls of one kind of program used. Only calls with a hint are counted.

    kind: "" for calls whose hints name none, and for kinds that were forgotten among too many.
    tenant: whose programs they are; None: the reader's own.
    programs: that have begun; one that has not called for a minute counts as over. open_programs:
      of these, that may call again.
    calls, failed_calls: that have ended; the tokens are those of calls that have not failed.
    cached_tokens: of the prompt_tokens, that were not computed again; root_tokens: of these, that
      are of roots which hints name, where their lengths were known when the call began.
    ahead_calls, ahead_tokens: that only put a prefix into the cache, and what they computed. They
      are not among the calls.
    saved_seconds, saved_root_seconds: estimated time in which the cached and the root tokens would
      have been computed, by what the steps of this engine take.
    next_use, calls_left, tokens_left: guesses of these fields of hints.
    """

    kind: str = ""
    tenant: str | None = None
    programs: int = 0
    open_programs: int = 0
    calls: int = 0
    failed_calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    root_tokens: int = 0
    completion_tokens: int = 0
    ahead_calls: int = 0
    ahead_tokens: int = 0
    saved_seconds: float = 0.0
    saved_root_seconds: float = 0.0
    next_use: Guesses = field(default_factory=Guesses)
    calls_left: Guesses = field(default_factory=Guesses)
    tokens_left: Guesses = field(default_factory=Guesses)

    def __add__(self, other: KindUsage) -> KindUsage:
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMMED}
        return KindUsage(self.kind, self.tenant, **sums)

    @property
    def guesses(self) -> Guesses:
        """Those of all fields together."""
        return self.next_use + self.calls_left + self.tokens_left


SUMMED = tuple(name for name in KindUsage.__slots__ if name not in ("kind", "tenant"))


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """The kinds of programs that an engine has run, those whose cached tokens are most first.

    num_left_out: kinds that are not in the report, because it is limited.
    """

    kinds: tuple[KindUsage, ...] = ()
    num_left_out: int = 0

    @property
    def total(self) -> KindUsage:
        """The sum of all its kinds."""
        return sum(self.kinds, KindUsage())


def ordered(kinds: list[KindUsage], most: int, num_left_out: int = 0) -> ProgramReport:
    """A report of these kinds, at most so many."""
    kinds = sorted(kinds, key=lambda it: (-it.cached_tokens, -it.calls, it.tenant or "", it.kind))
    return ProgramReport(tuple(kinds[:most]), num_left_out + max(0, len(kinds) - most))


def kind_of(text: object) -> str:
    """A name of a kind as it is counted and sent: at most 128 characters, all of which can be
    printed; "" for what is no text. No name makes a call fail."""
    if not isinstance(text, str):
        return ""
    cut = text[:MAX_KIND_LEN]
    return cut if cut.isprintable() else "".join(it if it.isprintable() else "?" for it in cut)


def is_kind(value: object) -> bool:
    """Whether this is such a name, and not empty."""
    return isinstance(value, str) and value != "" and kind_of(value) == value
