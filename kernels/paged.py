"""Single tokens over keys in any slots, read where they lie: loops compiled by numba.

Torch has no operator for this: it copies every key first. Products and sums are compiled here, what
stands between them (softmax and its like) is torch's. Only for float32 on a CPU.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .parts import TokenPart

_SPREAD = 1 << 19  # numbers to read from which a second thread is worth its wake-up
_REORDERED = {
    "reassoc",
    "contract",
    "nsz",
}  # sums in any order; NaN and infinity stay what they are
_INTS = "int32[::1]"
_TAIL = f"int32[:, ::1], {_INTS}, {_INTS}, {_INTS}, int64, int64"
_SCORES = f"void(float32[:, :, ::1], float32[:, :, :, ::1], float32[:, :, ::1], float32, {_TAIL})"
_MIXED = f"void(float32[:, :, ::1], float32[:, :, :, ::1], float32[:, :, ::1], {_TAIL})"
_WRITE = "void(float32[:, :, ::1], int64[::1], float32[:, :, :])"


def can_compile() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


class PagedReader:
    """Scores of single tokens over keys in place, and sums of values by their probabilities."""

    def __init__(self, num_threads: int | None = None) -> None:
        self._num_threads = num_threads or torch.get_num_threads()
        self._score, self._mix = compiled(_score, _SCORES), compiled(_mix, _MIXED)

    def scores(self, q: Tensor, kv: Tensor, part: TokenPart, scale: float) -> Tensor:
        """[tokens, heads, longest]: q [tokens, heads, dim] times the keys of its part, scaled;
        -inf behind a token's last key."""
        out = q.new_empty(*q.shape[:2], part.longest)
        arrays = q.contiguous().numpy(), kv.numpy(), out.numpy()
        self._run(self._score, kv, part, *arrays, np.float32(scale))
        return out

    def mixed(self, probs: Tensor, kv: Tensor, part: TokenPart) -> Tensor:
        """[tokens, heads, dim]: the values of the part, each by its probability in `probs`
        [tokens, heads, longest]."""
        out = probs.new_empty(*probs.shape[:2], kv.shape[-1])
        self._run(self._mix, kv, part, probs.numpy(), kv.numpy(), out.numpy())
        return out

    def _run(self, loop: Callable[..., None], kv: Tensor, part: TokenPart, *args: Any) -> None:
        """Run a loop over the tokens, by several threads where there is much to read."""
        of_part = part.table, part.rows, part.firsts, part.ends
        num_tokens, reads = len(part.rows), part.reads
        num_threads = min(self._num_threads, num_tokens)
        if num_threads == 1 or reads[-1] * kv.shape[1] * kv.shape[3] < _SPREAD:
            loop(*args, *of_part, 0, num_tokens)
            return
        goals = reads[-1] * np.arange(1, num_threads) / num_threads
        borders = [0, *(np.searchsorted(reads, goals) + 1).tolist(), num_tokens]
        others = [
            helpers(self._num_threads).submit(loop, *args, *of_part, start, stop)
            for start, stop in itertools.pairwise(borders[1:])
        ]
        loop(*args, *of_part, 0, borders[1])
        for other in others:
            other.result()


@functools.cache
def helpers(num_threads: int) -> ThreadPoolExecutor:
    """Threads beside the caller's; the loops need no interpreter."""
    return ThreadPoolExecutor(num_threads - 1, "forkroot-attention")


def slot_writer() -> Callable[[Tensor, Tensor, Tensor], None]:
    """A function that puts kv [tokens, heads, dim] into slots [tokens] of a pool [heads, slots,
    dim], all float32 but for the slots."""
    loop = compiled(_write, _WRITE)

    def write(pool: Tensor, slots: Tensor, kv: Tensor) -> None:
        loop(pool.numpy(), slots.numpy(), kv.numpy())

    return write


@functools.cache
def compiled(
    function: Callable[..., None], signature: str, is_reordered: bool = True
) -> Callable[..., None]:
    """The function in machine code, which is kept for later processes where files can be.
    is_reordered: whether its sums may be taken in any order."""
    import numba

    compiler = functools.partial(
        numba.njit,
        signature,
        fastmath=_REORDERED if is_reordered else False,
        nogil=True,
        error_model="numpy",
    )
    try:
        found = compiler(cache=True)(function)
    except RuntimeError:  # no folder to keep it in
        found = compiler()(function)
    loop: Callable[..., None] = found
    return loop


def _score(q, pool, out, scale, table, rows, firsts, ends, start, stop):  # type: ignore[no-untyped-def]
    """Four keys at a time: a query's numbers are then loaded once for four products."""
    num_heads, num_kv_heads, dim = q.shape[1], pool.shape[1], q.shape[2]
    group = num_heads // num_kv_heads
    for t in range(start, stop):
        slots, num_keys = table[rows[t], firsts[t] : ends[t]], ends[t] - firsts[t]
        num_fours = num_keys - num_keys % 4
        for head in range(num_heads):
            out[t, head, num_keys:] = -np.inf
        for kv_head in range(num_kv_heads):
            keys, heads = pool[0, kv_head], range(kv_head * group, (kv_head + 1) * group)
            for j in range(0, num_fours, 4):
                k0, k1 = keys[slots[j]], keys[slots[j + 1]]
                k2, k3 = keys[slots[j + 2]], keys[slots[j + 3]]
                for head in heads:
                    x = q[t, head]
                    s0 = s1 = s2 = s3 = np.float32(0)
                    for d in range(dim):
                        s0 += x[d] * k0[d]
                        s1 += x[d] * k1[d]
                        s2 += x[d] * k2[d]
                        s3 += x[d] * k3[d]
                    scores = out[t, head]
                    scores[j], scores[j + 1] = s0 * scale, s1 * scale
                    scores[j + 2], scores[j + 3] = s2 * scale, s3 * scale
            for j in range(num_fours, num_keys):
                key = keys[slots[j]]
                for head in heads:
                    total = np.float32(0)
                    for d in range(dim):
                        total += q[t, head, d] * key[d]
                    out[t, head, j] = total * scale


def _mix(probs, pool, out, table, rows, firsts, ends, start, stop):  # type: ignore[no-untyped-def]
    """Four values at a time: sums are then written once for four."""
    num_heads, num_kv_heads, dim = out.shape[1], pool.shape[1], out.shape[2]
    group = num_heads // num_kv_heads
    for t in range(start, stop):
        slots, num_keys = table[rows[t], firsts[t] : ends[t]], ends[t] - firsts[t]
        num_fours = num_keys - num_keys % 4
        out[t] = 0
        for kv_head in range(num_kv_heads):
            values, heads = pool[1, kv_head], range(kv_head * group, (kv_head + 1) * group)
            for j in range(0, num_fours, 4):
                v0, v1 = values[slots[j]], values[slots[j + 1]]
                v2, v3 = values[slots[j + 2]], values[slots[j + 3]]
                for head in heads:
                    shares, total = probs[t, head], out[t, head]
                    p0, p1, p2, p3 = shares[j], shares[j + 1], shares[j + 2], shares[j + 3]
                    for d in range(dim):
                        total[d] += p0 * v0[d] + p1 * v1[d] + p2 * v2[d] + p3 * v3[d]
            for j in range(num_fours, num_keys):
                value = values[slots[j]]
                for head in heads:
                    for d in range(dim):
                        out[t, head, d] += probs[t, head, j] * value[d]


def _write(pool, slots, kv):  # type: ignore[no-untyped-def]
    for head in range(pool.shape[0]):
        for t in range(len(slots)):
            pool[head, slots[t]] = kv[t, head]
