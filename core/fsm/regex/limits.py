"""What a constraint may cost, and the typed error of one that would cost more.

Knows nothing of patterns or automata: only numbers, caps and the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import thread_time

from ...api.protocol import InvalidCall


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps on one constraint.

    length: characters of the pattern, or of all choices together.
    depth: groups inside groups.
    repeat: a count in braces.
    positions: places in the pattern once its counts are written out.
    states, cells: of the automaton; cells are states times character classes.
    work: places visited while the automaton is built.
    seconds: of the processor, in the thread that compiles.
    """

    length: int = 1_000_000
    depth: int = 64
    repeat: int = 10_000
    positions: int = 200_000
    states: int = 100_000
    cells: int = 5_000_000
    work: int = 2_000_000
    seconds: float = 5.0


class TooSlow(InvalidCall):
    """A constraint that takes more time than it was given; elsewhere it may be given more."""


class Meter:
    """Holds one compilation to its limits.

    field: what the caller's constraint is called in errors.
    """

    def __init__(self, field: str, value: object, limits: Limits) -> None:
        self.limits = limits
        self._field = field
        self._value = value
        self._ends_at = thread_time() + limits.seconds

    def refuse(self, allowed: str, kind: type[InvalidCall] = InvalidCall) -> InvalidCall:
        """The error with what is allowed."""
        return kind(self._field, self._value, allowed)

    def check_limit(self, number: float, cap: float, what: str) -> None:
        """Raise InvalidCall where the number is over its cap, with both."""
        if number > cap:
            raise self.refuse(f"at most {cap} {what}; this one has {number}")

    def check_time(self) -> None:
        """Raise InvalidCall once the time is up."""
        if thread_time() > self._ends_at:
            allowed = f"a constraint that compiles in {self.limits.seconds} s of processor time"
            raise TooSlow(self._field, self._value, allowed)
