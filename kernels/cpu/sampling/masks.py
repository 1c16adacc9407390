"""Token masks applied to logits on a CPU: loops compiled by numba that read packed bits, 32 tokens
a word. Only float32."""

from __future__ import annotations

import functools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..jit.jit import can_compile, compiled

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]

_ROWS, _BITS = "float32[:, ::1]", "int32[:, ::1]"
_APPLY_MASK = f"void({_ROWS}, {_BITS}, {_ROWS})"
_ARGMAX = f"void({_ROWS}, {_BITS}, int64[::1])"
_EXPONENT = 0x7F800000  # bits that are all set in a number that is not finite


class Masker:
    """Applies bits [N, vocabulary / 32, rounded up] to logits [N, vocabulary]; its loops are
    compiled when it is made."""

    def __init__(self) -> None:
        self._apply_mask = compiled(_apply_mask, _APPLY_MASK)
        self._argmax = compiled(_argmax, _ARGMAX)

    def apply(self, logits: Floats, bits: Ints) -> Floats:
        """The logits whose bit is set, and -inf for the others."""
        masked = np.empty_like(logits)
        self._apply_mask(logits, bits, masked)
        return masked

    def argmax(self, logits: Floats, bits: Ints) -> Longs:
        """[N] the argmax of the tokens whose bit is set, the first one of equals; -1 where there is
        none above -inf, or the row has a number that is not finite."""
        tokens = np.empty(len(logits), np.int64)
        self._argmax(logits, bits, tokens)
        return tokens


@functools.cache
def masker() -> Masker | None:
    """The one of this process; None where numba is not installed."""
    return Masker() if can_compile() else None


def _apply_mask(logits, bits, masked):  # type: ignore[no-untyped-def]
    size = logits.shape[1]
    whole = size - size % 32
    for row in range(len(logits)):
        x, y = logits[row], masked[row]
        for offset in range(0, whole, 32):
            word = bits[row, offset // 32]
            for i in range(32):
                is_set = word >> np.int32(i) & np.int32(1)
                y[offset + i] = x[offset + i] if is_set else np.float32(-np.inf)
        for i in range(size - whole):
            is_set = bits[row, whole // 32] >> np.int32(i) & np.int32(1)
            y[whole + i] = x[whole + i] if is_set else np.float32(-np.inf)


def _argmax(logits, bits, tokens):  # type: ignore[no-untyped-def]
    """Tokens are compared one by one only in a word that has one above the best so far."""
    size, exponent = logits.shape[1], np.int32(_EXPONENT)
    whole = size - size % 32
    for row in range(len(logits)):
        x, raw = logits[row], logits[row].view(np.int32)
        best, token, is_broken = np.float32(-np.inf), -1, np.int32(0)
        for offset in range(0, whole, 32):
            word, is_above = bits[row, offset // 32], np.int32(0)
            for i in range(32):
                is_broken |= np.int32((raw[offset + i] & exponent) == exponent)
                is_above |= np.int32(x[offset + i] > best) & (word >> np.int32(i))
            if is_above & 1:
                for i in range(32):
                    if word >> np.int32(i) & 1 and x[offset + i] > best:
                        best, token = x[offset + i], offset + i
        for i in range(whole, size):
            is_broken |= np.int32((raw[i] & exponent) == exponent)
            if bits[row, whole // 32] >> np.int32(i - whole) & 1 and x[i] > best:
                best, token = x[i], i
        tokens[row] = -1 if is_broken else token
