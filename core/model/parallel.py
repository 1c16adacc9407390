"""Which part of a model this process holds. Passed to whoever needs it; there is no global one."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.distributed import ProcessGroup


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place among the processes that hold one model together.

    group: through which they add up; None for one alone.
    """

    rank: int = 0
    size: int = 1
    group: ProcessGroup | None = None

    def part(self, count: int) -> int:
        """How many of `count` things are this rank's."""
        assert count % self.size == 0, f"{count} does not divide by {self.size} ranks"
        return count // self.size

    def share(self, count: int) -> slice:
        """This rank's even part of `count` things, as half-open positions."""
        part = self.part(count)
        return slice(self.rank * part, (self.rank + 1) * part)

    def sum(self, partial: Tensor) -> Tensor:
        """Add up every rank's partial result, in place; with one rank, the result itself. Raises
        RuntimeError where a rank is gone."""
        if self.group is not None:
            self.group.allreduce([partial]).wait()
        return partial
