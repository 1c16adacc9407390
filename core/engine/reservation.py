"""How many slots are reserved for tokens that are not generated yet."""

from __future__ import annotations

from dataclasses import dataclass

from .sequence import Sequence


@dataclass(slots=True)
class NewTokenRatio:
    """The share of a call's unknown output length that is reserved at admission: an estimate
    between `low` and 1 that decays with each step and increases with each retraction."""

    ratio: float = 0.4
    low: float = 0.1

    def decay(self) -> None:
        """Lower the ratio after a step."""
        self.ratio = max(self.low, self.ratio * 0.999)

    def increase(self) -> None:
        """Raise the ratio after a retraction."""
        self.ratio = min(1.0, self.ratio + 0.2)

    def expected(self, sequence: Sequence) -> int:
        """Slots that generated tokens of this sequence will still take."""
        return int(self.ratio * max(0, sequence.rules.max_new - sequence.num_new))
