"""Many small numbers beside a large one: loops that read any slots lose none of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("numba")

from forkroot.kernels.cpu.attention.attention import CpuAttention
from forkroot.kernels.cpu.jit import amx
from forkroot.kernels.cpu.linear.linear import Bf16x3Linear, PackedBf16Linear, PackedLinear
from forkroot.kernels.interface import Past

NUM_KEYS = 6000
HEADS, KV_HEADS = 4, 2


def sink(dim: int, gap: float) -> tuple[Tensor, Tensor]:
    """Queries of 40 tokens and keys and values, the first of which has scores so far above all
    others."""
    rng = np.random.default_rng(0)
    q = torch.from_numpy(rng.standard_normal((40, HEADS, dim), np.float32)) * 0.3
    kv = torch.from_numpy(rng.standard_normal((2, KV_HEADS, NUM_KEYS, dim), np.float32))
    q[:, :, 0], kv[0] = 8, kv[0] * 0.3
    kv[0, :, :, 0] = 0
    kv[0, :, 0] = 0
    kv[0, :, 0, 0] = gap * dim**0.5 / 8
    kv[1] += 1
    kv[1, :, 0] = -1
    return q, kv


def exact(q: Tensor, kv: Tensor) -> Tensor:
    keys, values = kv.double().repeat_interleave(HEADS // KV_HEADS, 1)
    scores = torch.einsum("thd,hnd->htn", q.double(), keys) * q.shape[2] ** -0.5
    hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(NUM_KEYS - len(q) + 1)
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ values).transpose(0, 1)


@pytest.mark.parametrize("dim", [8, 40, 64, 128])
@pytest.mark.parametrize("gap", [5.0, 12.0, 17.0])
@pytest.mark.parametrize("length", [1, 3, 40])
def test_keys_that_count_little_each_count_together(dim: int, gap: float, length: int) -> None:
    q, kv = sink(dim, gap)
    lens = np.array([length], np.int32)
    table = np.arange(NUM_KEYS, dtype=np.int32)[None]
    past = Past(table, np.zeros(1, np.int32), NUM_KEYS - lens, lens)
    attention = CpuAttention(torch.float32)
    found = attention.attend(q[-length:], kv, attention.plan(past), dim**-0.5)
    assert (found - exact(q, kv)[-length:]).abs().max() < 3e-5


LAYOUTS = [
    (PackedLinear, 2e-6),
    (PackedBf16Linear, 2e-6),
    pytest.param(
        Bf16x3Linear,
        4e-6,
        marks=pytest.mark.skipif(not amx.can_multiply(), reason="needs a processor with AMX"),
    ),
]


@pytest.mark.parametrize(("layout", "most"), LAYOUTS)
def test_long_sums_are_exact_to_a_few_of_the_last_bits(
    layout: type[PackedLinear], most: float
) -> None:
    random = torch.Generator().manual_seed(0)
    weight = (torch.randn(70, 8192, generator=random) / 8192**0.5).bfloat16().float()
    x = torch.randn(20, 8192, generator=random)
    assert (layout(weight)(x) - x.double() @ weight.double().T).abs().max() < most
