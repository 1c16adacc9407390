"""Which part of a model this process holds. Passed to whoever needs it; there is no global one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place among the processes that hold one model together."""

    rank: int = 0
    size: int = 1

    def share(self, count: int) -> slice:
        """This rank's even part of `count` things, as half-open positions."""
        assert count % self.size == 0, f"{count} does not divide by {self.size} ranks"
        part = count // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def sum(self, partial: Tensor) -> Tensor:
        """Add up every rank's partial result, in place; with one rank, the result itself."""
        if self.size > 1:
            import torch.distributed as dist

            dist.all_reduce(partial)
        return partial
