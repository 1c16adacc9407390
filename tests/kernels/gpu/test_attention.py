"""The GPU's attention against the plain one, where slots that nobody reads are NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from forkroot.kernels.gpu.attention.attention import GpuAttention
from forkroot.kernels.interface import Past
from forkroot.kernels.reference import attend

from .closeness import is_close

NUM_SLOTS = 4000


def forest(rng: np.random.Generator, root: int, tails: list[int], news: list[int]) -> Past:
    """Sequences that share a root of this length, in slots of any order."""
    free = iter(rng.permutation(NUM_SLOTS).astype(np.int32))
    shared = [next(free) for _ in range(root)]
    table = np.full((len(tails) + 2, 1500), -1, np.int32)
    rows = rng.permutation(len(table))[: len(tails)].astype(np.int32)
    for row, tail, new in zip(rows, tails, news, strict=True):
        own = [next(free) for _ in range(tail + new)]
        table[row, : root + tail + new] = shared + own
    starts = np.array([root + tail for tail in tails], np.int32)
    return Past(table, rows, starts, np.array(news, np.int32))


def pool(rng: np.random.Generator, past: Past, kv_heads: int, dim: int) -> torch.Tensor:
    kv = torch.full((2, kv_heads, NUM_SLOTS, dim), torch.nan)
    for row, end in zip(past.rows, past.starts + past.lens, strict=True):
        slots = torch.from_numpy(past.table[row, :end].astype(np.int64))
        kv[:, :, slots] = torch.from_numpy(
            rng.standard_normal((2, kv_heads, int(end), dim), np.float32)
        )
    return kv


CASES = {
    "single tokens": (0, [100, 37, 5, 0], [1, 1, 1, 1]),
    "chunks": (0, [70, 0, 33], [30, 65, 3]),
    "single tokens beside chunks": (0, [130, 20, 64, 3], [1, 40, 1, 2]),
    "a few tokens behind a long prefix": (0, [600, 3], [5, 1]),
    "a shared root": (300, [3, 40, 0, 9, 1, 8, 8, 8, 70], [1] * 9),
    "a shared root beside a chunk": (530, [3, 40, 0, 9, 8, 8, 70], [1] * 6 + [6]),
}


KINDS = [  # each number type, and each way to share heads
    *(("float32", heads) for heads in ((4, 4), (6, 2), (8, 1))),
    *(("float16", (6, 2)), ("bfloat16", (8, 1))),
]
# Two kinds for every case, and at least two cases for every kind.
PAIRS = [
    (case, *KINDS[(place + step) % len(KINDS)])
    for place, case in enumerate(CASES)
    for step in (0, 2)
]


@pytest.mark.parametrize(("case", "dtype", "heads"), PAIRS, ids=str, indirect=["dtype"])
def test_every_part_of_a_step_is_the_oracles(case, heads, dtype, device) -> None:
    rng = np.random.default_rng(len(case) + heads[0])
    past, dim = forest(rng, *CASES[case]), 16
    kv = pool(rng, past, heads[1], dim).to(dtype)
    q = torch.from_numpy(rng.standard_normal((past.lens.sum(), heads[0] + 2, dim), np.float32))
    q = q.to(dtype)[:, 1:-1]
    attention = GpuAttention(device, heads[1], dtype, heads[0] // heads[1], num_programs=16)
    plan = attention.plan(past)
    assert (plan.roots is not None) is ("root" in case)
    found = attention.attend(q.to(device), kv.to(device), plan, dim**-0.5)
    assert is_close(found, attend(q, kv, past, dim**-0.5), dtype)


@pytest.mark.parametrize(
    ("dim", "window", "softcap"),
    [
        (8, None, 5.0),
        (8, 16, None),
        (24, None, None),
        (24, 16, 5.0),
        (128, 16, None),
        (128, None, 5.0),
    ],
)
def test_windows_softcaps_and_odd_sizes_of_heads_are_the_oracles(
    dim, window, softcap, device
) -> None:
    rng = np.random.default_rng(dim)
    past = forest(rng, 0, [70, 10, 3, 150], [40, 1, 1, 1])
    kv = pool(rng, past, 2, dim)
    q = torch.from_numpy(rng.standard_normal((past.lens.sum(), 4, dim), np.float32))
    attention = GpuAttention(device, 2, torch.float32, 2)
    plan = attention.plan(past, window)
    found = attention.attend(q.to(device), kv.to(device), plan, 0.3, softcap)
    assert is_close(found, attend(q, kv, past, 0.3, window, softcap), torch.float32)


def test_slots_may_be_stored_token_by_token(device) -> None:
    rng = np.random.default_rng(3)
    past = forest(rng, 0, [20, 9], [1, 12])
    kv = pool(rng, past, 2, 16)
    q = torch.from_numpy(rng.standard_normal((13, 4, 16), np.float32))
    by_token = kv.transpose(1, 2).contiguous().transpose(1, 2).to(device)
    attention = GpuAttention(device, 2, torch.float32, 2)
    found = attention.attend(q.to(device), by_token, attention.plan(past), 0.25)
    assert is_close(found, attend(q, kv, past, 0.25), torch.float32)
