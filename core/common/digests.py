"""Prefixes as short byte strings: one digest of eight bytes for each chunk of a key.

Two keys have as many leading digests in common as whole chunks, but for collisions, which are rare.
Engines and routers of one version compute the same digests, so that a router can tell from a report
what an engine has forgotten, and no report holds a prompt. Knows nothing of trees.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Any

import numpy as np
import numpy.typing as npt

CHUNK = 64  # bytes of a key, as 16 tokens of four bytes
DIGEST = 8  # bytes
VERSION = 1
_WORDS = CHUNK // 8
_MULTIPLIERS = np.random.default_rng(0x666F726B).integers(1, 2**63, _WORDS, np.uint64) | np.uint64(
    1
)
_SHIFT, _MIX = np.uint64(29), np.uint64(0xBF58476D1CE4E5B9)
_FEW = 4  # chunks that take less time in Python than calls of numpy do
_FACTORS, _FACTOR = [int(it) for it in _MULTIPLIERS], int(_MIX)
_ALL_BITS = (1 << 64) - 1


def digests(key: bytes | memoryview) -> bytes:
    """The digests of the whole chunks of a key; what is left at its end has none."""
    num_chunks = len(key) // CHUNK
    if num_chunks <= _FEW:
        return b"".join([_digest(key, CHUNK * index) for index in range(num_chunks)])
    words: npt.NDArray[Any] = np.frombuffer(key, "<u8", num_chunks * _WORDS)
    words = words.reshape(num_chunks, _WORDS)
    words = words ^ (words >> _SHIFT)
    found = (words * _MULTIPLIERS).sum(1, dtype=np.uint64)
    found = (found ^ (found >> _SHIFT)) * _MIX
    mixed: npt.NDArray[np.uint64] = (found ^ (found >> _SHIFT)).astype("<u8")
    return mixed.tobytes()


def _digest(key: bytes | memoryview, start: int) -> bytes:
    """The digest of one chunk."""
    words: tuple[int, ...] = unpack_from(f"<{_WORDS}Q", key, start)
    found: int = sum(
        [(it ^ (it >> 29)) * factor for it, factor in zip(words, _FACTORS, strict=True)]
    )
    found &= _ALL_BITS
    found = (found ^ (found >> 29)) * _FACTOR & _ALL_BITS
    return (found ^ (found >> 29)).to_bytes(8, "little")
