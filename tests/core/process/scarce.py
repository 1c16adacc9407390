"""A second rank for tests, whose memory is too small for some of its sums."""

from __future__ import annotations

from itertools import count

import torch
from torch import Tensor

from forkroot.core import rank
from forkroot.core.model.parallel import GroupSum

EVERY = 150


def main(fd: int) -> None:
    """As `core.rank.main`."""
    numbers, add = count(1), GroupSum.__call__

    def scarce(self: GroupSum, partial: Tensor) -> Tensor:
        if next(numbers) % EVERY == 0:
            raise torch.OutOfMemoryError("no memory")
        return add(self, partial)

    GroupSum.__call__ = scarce  # type: ignore[method-assign]
    rank.main(fd)
