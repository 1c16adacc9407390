"""A batch cut into rectangles of rows, for model code that takes [rows, tokens] and a cache of one
length. Knows slots, not tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....kernels.interface import Ints, Past

Longs = npt.NDArray[np.int64]

MOST_TOKENS = 32_768  # cached tokens that one group reads, padding included
_WASTE = 2  # the longest past of a group may be so many times the shortest, and _SHORT tokens more
_SHORT = 64


@dataclass(frozen=True, slots=True)
class Group:
    """Rows with the same number of new tokens.

    tokens: [rows, new] positions in the batch. slots: [rows, length] of past and new tokens, those
    of shorter rows padded on the left with a slot of their own new tokens. padding: [rows] how many
    slots of each row are padding.
    """

    tokens: Longs
    slots: Longs
    padding: Longs

    @property
    def past_len(self) -> int:
        """Cached tokens of the longest row."""
        return int(self.slots.shape[1] - self.tokens.shape[1])


def grouped(past: Past, can_pad: bool) -> Iterator[Group]:
    """The rows of a batch in groups, each row once. can_pad: whether rows with pasts of different
    lengths may share a group."""
    firsts = np.cumsum(past.lens) - past.lens
    order = np.lexsort((-past.starts, past.lens)).tolist()
    group: list[int] = []
    for row in order:
        if group and not _fits(past, group, row, can_pad):
            yield _group(past, firsts, group)
            group = []
        group.append(row)
    if group:
        yield _group(past, firsts, group)


def _fits(past: Past, group: list[int], row: int, can_pad: bool) -> bool:
    """Whether a row, which has no longer past than those of the group, may join them."""
    longest, start, count = past.starts[group[0]], past.starts[row], past.lens[row]
    if count != past.lens[group[0]]:
        return False
    if (len(group) + 1) * (longest + count) > MOST_TOKENS:
        return False
    return bool(start == longest or (can_pad and longest <= _WASTE * start + _SHORT))


def _group(past: Past, firsts: Ints, rows: list[int]) -> Group:
    longest, count = int(past.starts[rows[0]]), int(past.lens[rows[0]])
    slots = np.empty((len(rows), longest + count), np.int64)
    padding = np.array([longest - past.starts[row] for row in rows], np.int64)
    for line, row, pad in zip(slots, rows, padding.tolist(), strict=True):
        mine = past.table[past.rows[row], : past.starts[row] + count]
        line[:pad], line[pad:] = mine[past.starts[row]], mine
    tokens = firsts[rows][:, None] + np.arange(count)
    return Group(tokens.astype(np.int64), slots, padding)
