"""Splits Unicode into the classes that a constraint distinguishes.

Two characters are of one class where every set of the constraint holds both or neither. Class 0
holds what is in no set, and the surrogates, which are not characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .chars import END, Ranges
from .limits import Meter

SURROGATES = (0xD800, 0xE000)
MAX_CELLS = 50_000_000


class Partition(NamedTuple):
    """Classes of characters.

    starts: [segments] first code point of each segment, ascending from 0.
    kinds: [segments] its class.
    """

    starts: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.intp]

    def sets(self) -> list[Ranges]:
        """The characters of each class."""
        ends = np.append(self.starts[1:], END).tolist()
        found: list[list[tuple[int, int]]] = [[] for _ in range(int(self.kinds.max()) + 1)]
        for kind, start, end in zip(self.kinds.tolist(), self.starts.tolist(), ends, strict=True):
            found[kind].append((start, end))
        return [tuple(ranges) for ranges in found]


def cut(sets: Sequence[Ranges], meter: Meter) -> tuple[Partition, list[list[int]]]:
    """The classes, and for each of the sets those that it is made of, ascending."""
    edges = {0, *SURROGATES, *(edge for ranges in sets for pair in ranges for edge in pair)} - {END}
    starts = np.array(sorted(edges), np.int32)
    meter.check_limit(len(sets) * len(starts), MAX_CELLS, "cells of character classes")
    member = np.zeros((len(sets), len(starts) + 1), np.int8)
    for row, ranges in zip(member, sets, strict=True):
        bounds = np.searchsorted(starts, np.array(ranges, np.int32).reshape(-1, 2))
        row[bounds[:, 0]] += 1
        row[bounds[:, 1]] -= 1
        np.cumsum(row, out=row)
    member = member[:, :-1]
    member[:, (starts >= SURROGATES[0]) & (starts < SURROGATES[1])] = 0
    packed = np.packbits(member.astype(bool), axis=0)
    _, kinds = np.unique(packed, axis=1, return_inverse=True)
    kinds = kinds.reshape(-1)  # 0 is the empty column, the first in order
    return Partition(starts, kinds), [np.unique(kinds[row > 0]).tolist() for row in member]
