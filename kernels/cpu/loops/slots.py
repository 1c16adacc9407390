"""Writes new keys and values into their slots: a compiled loop. The pool holds float32 numbers, or
the bits of bfloat16 or float16 ones. Only on a CPU; needs numba."""

from __future__ import annotations

from ..jit.attention_lanes import FEW, few
from ..jit.vectors import STORED, fetch, load, single, spread, store

_SOON = 4  # how many tokens ahead slots are prefetched
SIGNATURES = {
    name: f"void({stored}[:, :, ::1], int64[::1], float32[:, :, :])"
    for name, stored in STORED.items()
}


def write(pool, slots, kv):
    """Write kv [tokens, heads, dim] into slots [tokens] of a pool [heads, slots, dim]. Slots are
    prefetched some tokens ahead; otherwise every write would wait for memory."""
    (heads, num_slots, dim), tokens = pool.shape, len(slots)
    numbers, size = pool.reshape(-1), kv.itemsize
    whole = dim // FEW * FEW if kv.strides[2] == size else 0
    for t in range(tokens):
        slot, soon = slots[t], slots[min(t + _SOON, tokens - 1)]
        for head in range(heads):
            at, ahead = (head * num_slots + slot) * dim, (head * num_slots + soon) * dim
            begin = (t * kv.strides[0] + head * kv.strides[1]) // size
            for d in range(0, whole, FEW):
                fetch(numbers, ahead + d)
                store(numbers, at + d, load(kv, begin + d, few()))
            for d in range(whole, dim):
                store(numbers, at + d, spread(kv[t, head, d], single()))
