"""A batch that was launched and is not waited for: the device's side of overlap.

Forward passes, draws and copies go into one queue of the device, in the order in which they are
asked for; the drawn tokens stay there, and the next batch takes them from there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .batch import Draw, Outcome


class DeviceFlight:
    """Keeps what a forward pass gave until it is said how tokens are drawn from it.

    begin: asks the device for all that is wanted of it, and gives what waits for that.
    """

    def __init__(self, begin: Callable[[tuple[Draw, ...]], Callable[[], Outcome]]) -> None:
        self._begin = begin
        self._wait: Callable[[], Outcome] | None = None

    def draw(self, draws: tuple[Draw, ...]) -> None:
        """Let tokens be drawn so; comes before the next launch."""
        self._wait = self._begin(draws)

    def outcome(self) -> Outcome:
        """Wait for what it gave, and for nothing that was launched after it."""
        assert self._wait is not None, "it was not said how tokens are drawn"
        return self._wait()


def fill_in(ids: Tensor, drawn: Tensor) -> None:
    """Put tokens in the place of ids [n] that name draws: -1 - i names drawn[i]. One that is
    negative itself, for its sequence's numbers were none, becomes some token: what is computed
    after it counts for nothing."""
    named = drawn.index_select(0, (-1 - ids).clamp_(min=0).long()).clamp_(min=0)
    torch.where(ids < 0, named.to(ids.dtype), ids, out=ids)
