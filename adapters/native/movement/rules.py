"""The reorderer that asks nobody: as many constant parts to the front as the checks accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .checks import Checks, Refusal
from .parts import Part, Stretch
from .ties import is_constant


class Reorderer(Protocol):
    """Proposes another order of the parts between two primitives; what it proposes is checked."""

    def propose(self, stretch: Stretch) -> Sequence[Part]:
        """The parts of a stretch in a new order, or in their own."""


class Rules:
    """Moves constant parts ahead of the first argument: from the first one on, as many as may."""

    def propose(self, stretch: Stretch) -> Sequence[Part]:
        """The accepted order with the longest constant prefix; their own if there is no better."""
        checks = Checks(stretch)
        blocks = checks.ties.blocks
        movable = [block for block in behind_arguments(blocks) if is_constant(block)]
        for num in range(len(movable), 0, -1):
            order = moved_first(blocks, movable[:num])
            if checks.refusal(order) is None:
                return order
        return stretch.parts


def why_not(checks: Checks) -> Refusal | None:
    """Why the first constant block behind an argument stays there; None: it need not."""
    blocks = checks.ties.blocks
    movable = [block for block in behind_arguments(blocks) if is_constant(block)]
    if movable:
        return checks.refusal(moved_first(blocks, movable[:1]))
    joined = (tie for tie in checks.ties.all if tie.kind == "reference" and tie.is_joined)
    tie = next(joined, None)
    if tie is not None:
        return Refusal(tie.kind, tie.reason)
    return Refusal("no gain", "no constant part stands by itself behind an argument")


def behind_arguments(blocks: Sequence[Sequence[Part]]) -> Sequence[Sequence[Part]]:
    """The blocks from the first one with an argument on."""
    first = next((at for at, it in enumerate(blocks) if not is_constant(it)), len(blocks))
    return blocks[first:]


def moved_first(
    blocks: Sequence[Sequence[Part]], moved: Sequence[Sequence[Part]]
) -> tuple[Part, ...]:
    """The parts of these blocks, with the moved ones ahead of the first that has an argument."""
    behind = behind_arguments(blocks)
    head = blocks[: len(blocks) - len(behind)]
    rest = [block for block in behind if block not in moved]
    return tuple(part for block in (*head, *moved, *rest) for part in block)
