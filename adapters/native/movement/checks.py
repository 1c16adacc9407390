"""Whether another order of a prompt says the same: accepted, or refused with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .joins import quoted
from .parts import Part, Stretch
from .shapes import is_ended
from .ties import Tie, Ties


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an order was refused. check: which of the checks it was."""

    check: str
    reason: str

    def __str__(self) -> str:
        return f"{self.check}: {self.reason}"


class Checks:
    """The checks of one stretch, made once for all orders that are proposed."""

    def __init__(self, stretch: Stretch) -> None:
        self._stretch, self.ties = stretch, Ties(stretch)

    def refusal(self, order: Sequence[Part]) -> Refusal | None:
        """Why this order of the parts is refused; None: it is accepted."""
        return (
            _same_parts(self._stretch.parts, order)
            or _tied(self.ties.all, order)
            or _open_end(self._stretch, order)
        )


def _same_parts(parts: Sequence[Part], order: Sequence[Part]) -> Refusal | None:
    """Exactly the parts that were there, each once."""
    for item in order:
        if not isinstance(item, Part):
            return Refusal("same parts", f"{item!r} is no part of the prompt")
        if item not in parts:
            is_known = 0 <= item.place < len(parts)
            what = "was altered" if is_known else "is no part of the prompt"
            return Refusal("same parts", f"{quoted(item)} {what}")
    counts = Counter(part.place for part in order)
    for part in parts:
        if counts[part.place] != 1:
            what = "was dropped" if counts[part.place] == 0 else "comes twice"
            return Refusal("same parts", f"{quoted(part)} {what}")
    return None


def _tied(ties: Sequence[Tie], order: Sequence[Part]) -> Refusal | None:
    place = {part.place: index for index, part in enumerate(order)}
    for tie in ties:
        distance = place[tie.second] - place[tie.first]
        if distance < 1 or (tie.is_joined and distance > 1):
            return Refusal(tie.kind, tie.reason)
    return None


def _open_end(stretch: Stretch, order: Sequence[Part]) -> Refusal | None:
    """An answer in the same message goes on with no other text than it did before."""
    is_moved = bool(order) and order[-1] != stretch.parts[-1]
    if not stretch.is_answered or not is_moved or "\n" in stretch.tail or is_ended(order[-1]):
        return None
    return Refusal("cue", f"the answer would go on with {quoted(order[-1])}")
