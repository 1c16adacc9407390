"""Which part of a model this process holds. Passed to whoever needs it; there is no global one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import torch
from torch import Tensor
from torch.distributed import (
    AllreduceOptions,
    BroadcastOptions,
    GatherOptions,
    ProcessGroup,
    Work,
)

BLOCK = 64  # rows of a vocabulary that stay together: then a product gives each the same numbers
_POLL_INTERVAL = timedelta(seconds=0.1)  # after which a wait is looked at


class Progress:
    """What this rank has done; its own thread writes, any may read.

    num_started, num_done: batches. num_collectives: those that have ended. is_waiting: whether it
    waits for other ranks now. is_over: nobody here waits for them any more; any thread may set it.
    """

    __slots__ = ("is_over", "is_waiting", "num_collectives", "num_done", "num_started")

    def __init__(self) -> None:
        self.num_started = self.num_done = self.num_collectives = 0
        self.is_waiting = self.is_over = False

    def snapshot(self) -> tuple[int, int, int, bool]:
        """(num_started, num_done, num_collectives, is_waiting)."""
        return self.num_started, self.num_done, self.num_collectives, self.is_waiting

    def wait(self, work: Work | None, is_far: bool) -> None:
        """Until what a group began has ended; nothing where the device's queue waits. Raises
        RuntimeError where a rank is gone.

        gloo may not notice that: a message to a rank that dies just then is waited for until its
        time-out. So a wait on a CPU is looked at now and then.
        """
        if work is not None and is_far:
            work.wait()
        elif work is not None:
            self.is_waiting = True
            try:
                work.wait(_POLL_INTERVAL)
            except RuntimeError:
                self._wait_on(work)
            finally:
                self.is_waiting = False
        self.num_collectives += 1

    def _wait_on(self, work: Work) -> None:
        """After it has failed, or not yet ended."""
        while not work.is_completed():
            if self.is_over:
                raise RuntimeError("another rank is gone")
            with contextlib.suppress(RuntimeError):
                work.wait(_POLL_INTERVAL)
        work.wait()  # for what it failed of


class GroupCollectives:
    """The collectives of a process group of torch: gloo on a CPU, NCCL on GPUs. On a GPU they only
    enqueue work on the current stream, so that it can be recorded in a CUDA graph. They raise
    RuntimeError where a rank is gone."""

    def __init__(self, group: ProcessGroup, progress: Progress) -> None:
        self._group, self._progress = group, progress

    def all_reduce(self, partial: Tensor) -> Tensor:
        """As `Ranks.all_reduce`."""
        options = AllreduceOptions()
        options.asyncOp = False  # NCCL: on the current stream, as whatever else is recorded
        self._progress.wait(self._group.allreduce([partial], options), partial.is_cuda)
        return partial

    def gather(self, part: Tensor) -> list[Tensor]:
        """As `Ranks.gather`."""
        is_first = self._group.rank() == 0
        parts = [torch.empty_like(part) for _ in range(self._group.size())] if is_first else []
        options = GatherOptions()
        options.asyncOp = False
        work = self._group.gather([parts] if is_first else [], [part], options)
        self._progress.wait(work, part.is_cuda)
        return parts

    def broadcast(self, tensor: Tensor) -> None:
        """As `Ranks.broadcast`."""
        options = BroadcastOptions()
        options.rootRank, options.rootTensor, options.asyncOp = 0, 0, False
        self._progress.wait(self._group.broadcast([tensor], options), tensor.is_cuda)


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place among the processes that hold one model together.

    all_reduce: the sum of every rank's tensor, which it may overwrite. gather: on rank 0 every
    rank's tensor, all of one shape, in the order of ranks; on the others nothing. broadcast:
    overwrites a tensor, of one shape on all, with rank 0's. None for one rank alone.
    abort: lets nobody here wait for another rank any more, from any thread; what was waited for is
    then worth nothing. progress: what is done here.
    """

    rank: int = 0
    size: int = 1
    all_reduce: Callable[[Tensor], Tensor] | None = None
    gather: Callable[[Tensor], list[Tensor]] | None = None
    broadcast: Callable[[Tensor], None] | None = None
    abort: Callable[[], None] | None = None
    progress: Progress = field(default_factory=Progress, compare=False)

    def part(self, count: int) -> int:
        """How many of `count` things are this rank's."""
        assert count % self.size == 0, f"{count} does not divide by {self.size} ranks"
        return count // self.size

    def share(self, count: int) -> slice:
        """This rank's even part of `count` things, as half-open positions."""
        part = self.part(count)
        return slice(self.rank * part, (self.rank + 1) * part)

    def block(self, count: int, rank: int | None = None) -> slice:
        """The rows that a rank (None: this one) holds of a vocabulary of `count`, as half-open
        positions: whole blocks, as many on each rank until there are no more."""
        rank = self.rank if rank is None else rank
        size = self.block_len(count)
        return slice(min(rank * size, count), min((rank + 1) * size, count))

    def block_len(self, count: int) -> int:
        """Rows of a vocabulary of `count` that a rank has room for."""
        return -(-count // (self.size * BLOCK)) * BLOCK

    def sum(self, partial: Tensor) -> Tensor:
        """The sum of every rank's partial result, which may be overwritten; with one rank, the
        result itself. Raises RuntimeError where a rank is gone."""
        if self.all_reduce is None or not partial.numel():
            return partial
        return self.all_reduce(partial)

    def broadcast_from_first(self, tensor: Tensor) -> None:
        """Overwrite `tensor` with rank 0's, on every rank at once; nothing where there is but one.
        Raises RuntimeError where a rank is gone."""
        if self.broadcast is not None:
            self.broadcast(tensor)

    def gathered(self, part: Tensor) -> list[Tensor]:
        """Every rank's part, all of one shape, on rank 0; on the others nothing. Raises
        RuntimeError where a rank is gone."""
        return [part] if self.gather is None else self.gather(part)
