"""One model held by several processes, each a rank, with the face of a single runner.

The scheduler, the tree and the drawing of tokens are with rank 0. It shows every batch to the other
ranks, which compute along: their parts are added up inside the layers, and nothing else is
synchronised. A rank that is gone ends the runtime: what the others hold is of no use without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ..protocol import BackendClosed
from .batch import Batch, Copy, Ints, Outcome
from .parallel import GroupSum, Ranks
from .runner import ModelRunner

SECONDS = 60
_ARRAYS = ("ids", "positions", "slots", "rows", "starts", "lens", "sampled", "scored", "queried")


def join(rank: int, size: int, meeting_place: str, device: torch.device) -> Ranks:
    """Meet the other ranks of this machine through a file, and wait until all are there. Raises
    RuntimeError where they do not come."""
    groups: Any = dist  # its stubs know little of groups that are not global
    store = groups.FileStore(meeting_place, size)
    if device.type == "cuda":
        return Ranks(rank, size, GroupSum(groups.ProcessGroupNCCL(store, rank, size)))
    options = groups.ProcessGroupGloo._Options()
    options._devices = [groups.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = timedelta(seconds=SECONDS)
    return Ranks(rank, size, GroupSum(groups.ProcessGroupGloo(store, rank, size, options)))


class RankedRunner:
    """Rank 0's runner over all of them. show: gives the other ranks a message."""

    def __init__(self, runner: ModelRunner, show: Callable[[Any], None]) -> None:
        self._runner = runner
        self._show = show
        self._table: Ints | None = None

    def run(self, batch: Batch) -> Outcome:
        """As `ModelRunner.run`. Raises BackendClosed where a rank is gone, or is not in step."""
        try:
            self._show(self._message(batch))
            hidden = self._runner.hidden(batch)
        except Exception as error:
            raise BackendClosed(f"a rank of the model is gone ({_short(error)})") from error
        return self._runner.outcome(hidden, batch)

    def _message(self, batch: Batch) -> Any:
        """The batch as plain data: of the slot table only what changed since it was last shown."""
        if self._table is None:
            self._table = np.full_like(batch.table, -1)
        rows, columns, slots = [], [], []
        for row, end in zip(batch.rows.tolist(), (batch.starts + batch.lens).tolist(), strict=True):
            new, known = batch.table[row, :end], self._table[row, :end]
            changed = np.flatnonzero(new != known)
            known[changed] = new[changed]
            rows.append(np.full(len(changed), row, np.int32))
            columns.append(changed.astype(np.int32))
            slots.append(new[changed])
        table = [np.concatenate(part) for part in (rows, columns, slots)]
        arrays = [getattr(batch, name) for name in _ARRAYS]
        copies = [(_plain(it.slots), _plain(it.host), it.is_load) for it in batch.copies]
        return batch.table.shape, [_plain(array) for array in (*table, *arrays)], copies


def follow(messages: Iterable[Any], runner: ModelRunner) -> None:
    """Compute along with rank 0 until it says no more."""
    table: Ints | None = None
    for shape, plain, told in messages:
        if table is None:
            table = np.zeros(shape, np.int32)
        rows, columns, slots, *arrays = (_array(item) for item in plain)
        table[rows, columns] = slots
        fields: dict[str, Any] = dict(zip(_ARRAYS, arrays, strict=True))
        copies = tuple(Copy(_array(slots), _array(host), is_load) for slots, host, is_load in told)
        runner.hidden(Batch(**fields, table=table, draws=(), copies=copies))


def _short(error: Exception) -> str:
    return str(error).partition(". ")[0][-160:]


def _plain(array: np.ndarray[Any, Any]) -> tuple[str, bytes]:
    return array.dtype.str, np.ascontiguousarray(array).tobytes()


def _array(plain: tuple[str, bytes]) -> np.ndarray[Any, Any]:
    kind, data = plain
    return np.frombuffer(bytearray(data), kind)
