"""What a scenario gets and what it gives: a plan, and a verdict made of bars."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Plan:
    """seed: of all choices. seconds: that the scenario should take. is_full: with all repetitions.
    slack: seconds for starts, and for the ends of processes; see `bound`."""

    seed: int = 0
    seconds: float = 20.0
    is_full: bool = False
    slack: float = 60.0

    @property
    def bound(self) -> float:
        """Seconds after which the scenario is ended, and has failed; enough for a busy machine."""
        return 3 * self.seconds + self.slack


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a scenario ended. passed: None where it was skipped. reason: why it was skipped or has
    failed. seconds: of the whole scenario."""

    name: str
    passed: bool | None
    figures: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return {True: "passed", False: "FAILED", None: "skipped"}[self.passed]

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


class Skipped(Exception):
    """The scenario cannot run here; its text says what is missing."""


class Bars:
    """The figures of a scenario, and which of them miss their bar."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.missed: list[str] = []

    def note(self, **figures: Any) -> None:
        """Figures without a bar."""
        self.figures.update(figures)

    def equal(self, name: str, value: Any, expected: Any) -> None:
        """A figure that must have this value."""
        self._add(name, value, value == expected, f"expected {expected}")

    def at_most(self, name: str, value: float | None, limit: float) -> None:
        """A figure with an upper bar; None, for what never came, misses it."""
        self._add(name, value, value is not None and value <= limit, f"expected at most {limit:g}")

    def at_least(self, name: str, value: float, limit: float) -> None:
        """A figure with a lower bar."""
        self._add(name, value, value >= limit, f"expected at least {limit:g}")

    def verdict(self, name: str) -> Verdict:
        """Passed if no bar was missed."""
        return Verdict(name, not self.missed, self.figures, "; ".join(self.missed))

    def _add(self, name: str, value: Any, is_good: bool, expected: str) -> None:
        self.figures[name] = value
        if not is_good:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            self.missed.append(f"{name} is {shown[:200]}, {expected}")
