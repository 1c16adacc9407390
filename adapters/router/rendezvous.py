"""Rendezvous hashing: routers side by side choose the same replica for a prefix without talking.

Each pair of a replica and a prefix has a score, and the replica with the highest one is chosen;
where one is added or removed, only the prefixes that it wins or had move.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

_SHIFT, _MIX = np.uint64(31), np.uint64(0x9E3779B97F4A7C15)


class Rendezvous:
    """Scores of replicas, by the positions of their bits."""

    def __init__(self) -> None:
        self._seeds: npt.NDArray[Any] = np.zeros(0, np.uint64)

    def enter(self, index: int, name: str) -> None:
        """The replica at this position has this name, by which all routers know it."""
        if index >= len(self._seeds):
            self._seeds = np.concatenate([self._seeds, np.zeros(index + 1, np.uint64)])
        self._seeds[index] = hash_of(name.encode())

    def best(self, key: bytes, among: int) -> int:
        """The bit of the replica of this set that wins a key; 0 for the empty set."""
        if not among & (among - 1):
            return among
        size = (among.bit_length() + 7) // 8
        packed = np.frombuffer(among.to_bytes(size, "little"), np.uint8)
        indices = np.flatnonzero(np.unpackbits(packed, bitorder="little"))
        scores = self._seeds[indices] ^ np.uint64(hash_of(key))
        scores = (scores ^ (scores >> _SHIFT)) * _MIX
        scores = (scores ^ (scores >> _SHIFT)) * _MIX
        return 1 << int(indices[scores.argmax()])


def hash_of(data: bytes) -> int:
    """64 bits of a stable hash."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
