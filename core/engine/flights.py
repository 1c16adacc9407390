"""Batches on their way: sent to the device before what it computes now has come back.

While the device runs step n, its thread here writes and launches step n + 1; then it looks at what
step n gave. Two facts make that right. A token that step n draws need not be known to be computed:
the batch names the draw, and the device fills it in. And the device works in the order of launches:
what a batch reads was written by those before it, so that slots are given away, freed and cached
in this order too, and never wait for a batch that still uses them. How tokens are drawn after step
n + 1 is said once step n has landed: masks, penalties and forced text know every token before them.

A step that was given up meanwhile (its call ended, its tokens were taken back) is known by its
sequence's epoch; what it gives counts for nothing. Nothing is retracted while a batch is away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from ..api.batch import Batch, Draw, Outcome
from ..api.protocol import BackendClosed
from .batches import Part

T = TypeVar("T")


class Runner(Protocol):
    """Whatever computes a batch."""

    def run(self, batch: Batch) -> Outcome:
        """One forward pass; writes the KV of the batch's tokens into their slots."""


class Flight(Protocol):
    """A launched batch."""

    def draw(self, draws: tuple[Draw, ...]) -> None:
        """Let tokens be drawn so after the batch's `sampled`; the next batch may name these draws.
        Does not wait. At most once; without it the batch's KV is computed all the same."""

    def outcome(self) -> Outcome:
        """Wait for what it gave; `draw` comes first. At most once, in the order of launches."""


@runtime_checkable
class Launcher(Protocol):
    """A runner that does not wait for what it computes."""

    def launch(self, batch: Batch) -> Flight:
        """Begin to compute a batch that has no draws yet, after all that was launched before.

        Its id -1 - i stands for the token of draw i of the batch launched before it: any token
        where that is -1. The batch's arrays, the table too, were read when this returns. What
        becomes of it, its copies are made.
        """


class Trip:
    """Parts that were sent off together, and their flight, or what it failed of."""

    def __init__(self, parts: list[Part], launch: Callable[[], Flight]) -> None:
        self.parts = parts
        self._flight = attempt(launch)

    @property
    def has_failed(self) -> bool:
        """Whether it is known already that it will give nothing."""
        return isinstance(self._flight, Exception)

    def draw(self, draws: tuple[Draw, ...]) -> None:
        """As `Flight.draw`; what that raises is what `land` gives."""
        flight = self._flight
        if not isinstance(flight, Exception):
            error = attempt(lambda: flight.draw(draws))
            self._flight = error or flight

    def land(self) -> Outcome | Exception:
        """Wait for what it gave, or for what it failed of."""
        flight = self._flight
        return flight if isinstance(flight, Exception) else attempt(flight.outcome)


def attempt(action: Callable[[], T]) -> T | Exception:
    """What it gives, or what it raises. Raises BackendClosed: a runner that is gone for good is no
    call's fault, and there is no going on."""
    try:
        return action()
    except BackendClosed:
        raise
    except Exception as error:
        return error
