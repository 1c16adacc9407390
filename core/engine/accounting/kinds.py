"""What one kind of program has used, and the guesses of its hints, as sums that can be joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ...api.program_report import Guesses, KindUsage
from ...api.protocol import ForkHint, Usage
from .guesses import FIELDS, Field, Outcome

Seconds = Callable[[int, int], float]
_OUTCOMES: tuple[Outcome, ...] = ("made", "right", "early", "late", "never")


@dataclass(slots=True)
class Sums:
    """Sums of fields of `KindUsage`, and of the products by which attention to the cached and the
    root tokens costs."""

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
    cached_pairs: int = 0
    root_pairs: int = 0

    def add(self, usage: Usage) -> None:
        """Count a call that has ended well."""
        cached, root = usage.cached_tokens, usage.root_tokens
        self.calls += 1
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += cached
        self.root_tokens += root
        self.completion_tokens += usage.completion_tokens
        self.cached_pairs += cached * (cached // 2)
        self.root_pairs += root * (root // 2)

    def add_ahead(self, usage: Usage) -> None:
        """Count one that put a prefix into the cache."""
        self.ahead_calls += 1
        self.ahead_tokens += usage.prompt_tokens - usage.cached_tokens

    def add_sums(self, other: Sums) -> None:
        """Count all of another kind."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Kind:
    """What one kind used. guesses: how many, by field and outcome."""

    def __init__(self) -> None:
        self.sums = Sums()
        self.guesses = Counter[tuple[Field, Outcome]]()

    def join(self, others: Kind) -> None:
        """Count here and from now on as one of `others`."""
        others.sums.add_sums(self.sums)
        others.guesses.update(self.guesses)
        self.sums, self.guesses = others.sums, others.guesses

    def add_guesses(self, hint: ForkHint) -> None:
        """Count the guesses of a call that has ended well."""
        for name in FIELDS:
            if getattr(hint, name) is not None:
                self.guesses[name, "made"] += 1

    def usage(self, name: str, tenant: str, seconds: Seconds) -> KindUsage:
        """All of it. seconds: as in `ProgramCounts.report`."""
        it, guesses = self.sums, self._guesses
        return KindUsage(
            name,
            tenant,
            *(it.programs, it.open_programs, it.calls, it.failed_calls),
            *(it.prompt_tokens, it.cached_tokens, it.root_tokens, it.completion_tokens),
            *(it.ahead_calls, it.ahead_tokens),
            saved_seconds=seconds(it.cached_tokens, it.cached_pairs),
            saved_root_seconds=seconds(it.root_tokens, it.root_pairs),
            next_use=guesses("next_use"),
            calls_left=guesses("calls_left"),
            tokens_left=guesses("tokens_left"),
        )

    def _guesses(self, name: Field) -> Guesses:
        return Guesses(*(self.guesses[name, outcome] for outcome in _OUTCOMES))
