"""Which part of a model this process holds. Passed to whoever needs it; there is no global one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.distributed import ProcessGroup


class AllReduce(Protocol):
    """Adds up what every rank holds. On a GPU it only enqueues work on the current stream, so that
    it can be recorded in a CUDA graph."""

    def __call__(self, partial: Tensor) -> Tensor:
        """The sum of every rank's `partial`, which it may overwrite. Raises RuntimeError where a
        rank is gone."""


class GroupSum:
    """The `AllReduce` of a process group of torch: gloo on a CPU, NCCL on GPUs."""

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    def __call__(self, partial: Tensor) -> Tensor:
        self._group.allreduce([partial]).wait()
        return partial


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place among the processes that hold one model together.

    all_reduce: by which they add up; None for one alone.
    """

    rank: int = 0
    size: int = 1
    all_reduce: AllReduce | None = None

    def part(self, count: int) -> int:
        """How many of `count` things are this rank's."""
        assert count % self.size == 0, f"{count} does not divide by {self.size} ranks"
        return count // self.size

    def share(self, count: int) -> slice:
        """This rank's even part of `count` things, as half-open positions."""
        part = self.part(count)
        return slice(self.rank * part, (self.rank + 1) * part)

    def sum(self, partial: Tensor) -> Tensor:
        """The sum of every rank's partial result, which may be overwritten; with one rank, the
        result itself. Raises RuntimeError where a rank is gone."""
        return partial if self.all_reduce is None else self.all_reduce(partial)
