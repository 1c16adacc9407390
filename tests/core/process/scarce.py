"""A second rank for tests, whose memory is too small for some of its sums."""

from __future__ import annotations

from itertools import count

import torch
from torch import Tensor

from forkroot.core import rank
from forkroot.core.model.parallel import GroupCollectives

EVERY = 150


def main(fd: int, device: str) -> None:
    """As `core.rank.main`."""
    numbers, add = count(1), GroupCollectives.all_reduce

    def scarce(self: GroupCollectives, partial: Tensor) -> Tensor:
        if next(numbers) % EVERY == 0:
            raise torch.OutOfMemoryError("no memory")
        return add(self, partial)

    GroupCollectives.all_reduce = scarce  # type: ignore[method-assign]
    rank.main(fd, device)
