"""New keys and values into their slots: a compiled loop. Only for float32 on a CPU; needs numba."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="call-arg"

from __future__ import annotations

from .vectors import fetch

_LINE = 16  # numbers that a cache fetches at a time
SIGNATURE = "void(float32[:, :, ::1], int64[::1], float32[:, :, :])"


def write(pool, slots, kv):
    """Put kv [tokens, heads, dim] into slots [tokens] of a pool [heads, slots, dim]. All places are
    fetched first: one after another, each would be waited for."""
    num_slots, dim = pool.shape[1:]
    numbers = pool.reshape(-1)
    for head in range(pool.shape[0]):
        for slot in slots:
            at = (head * num_slots + slot) * dim
            for d in range(0, dim, _LINE):
                fetch(numbers, at + d)
    for head in range(pool.shape[0]):
        for t in range(len(slots)):
            pool[head, slots[t]] = kv[t, head]
