"""Rotation, head norm and the write of keys and values in one launch, by itself or within decode
attention: the numbers of three."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from forkroot.kernels.backend import FusedAttention, FusedRows
from forkroot.kernels.cpu.linear.rows import PlainRows
from forkroot.kernels.gpu.attention.attention import GpuAttention
from forkroot.kernels.gpu.attention.kv_write import write
from forkroot.kernels.gpu.rows import GpuRows
from forkroot.kernels.interface import Past

from .closeness import poisoned


@pytest.mark.parametrize("heads", [(3, 1), (14, 2)], ids=str)
@pytest.mark.parametrize("has_norm", [False, True])
def test_one_launch_gives_the_numbers_of_three(heads, has_norm, dtype, device) -> None:
    torch.manual_seed(1)
    (num_heads, kv_heads), dim = heads, 24
    rows, slots = GpuRows(), torch.tensor([3, 9, 0, 44, 7], device=device)
    qkv = torch.randn(5, num_heads + 2 * kv_heads, dim).to(dtype).to(device)
    angles = torch.polar(torch.ones(5, 1, dim // 2), torch.randn(5, 1, dim // 2)).to(device)
    weight = torch.randn(num_heads + kv_heads, dim).to(dtype).to(device)
    norm = rows.norm(weight, 1e-5) if has_norm else None
    pools = [poisoned(2, 50, kv_heads, dim, dtype=dtype, device=device) for _ in range(2)]
    fused, apart = (pool.transpose(1, 2) for pool in pools)  # a slot's heads beside each other

    wanted = qkv.clone()
    rotary_heads = wanted[:, : num_heads + kv_heads]
    if norm is not None:
        norm(rotary_heads, rotary_heads)
    rows.apply_rotary(rotary_heads, angles)
    write(apart, slots, wanted[:, num_heads:])

    rows.rotate_and_write(qkv, norm, angles, fused, slots)
    assert torch.equal(qkv[:, :num_heads], wanted[:, :num_heads])
    assert torch.equal(fused.isnan(), apart.isnan())
    assert torch.equal(fused.nan_to_num(), apart.nan_to_num())


@pytest.mark.parametrize(
    ("case", "has_norm"),
    [("one program", True), ("several programs", False), ("chunks", True), ("a window", False)],
)
def test_attention_of_new_keys_is_that_of_written_ones(has_norm, case, dtype, device) -> None:
    """One new token each, behind 150, 0 and 70 others; or two of one sequence."""
    torch.manual_seed(3)
    num_heads, kv_heads, dim = 6, 2, 24
    lens = np.array([1, 1, 2 if case == "chunks" else 1], np.int32)
    table = np.random.default_rng(3).permutation(600).astype(np.int32).reshape(3, 200)
    past = Past(table, np.array([2, 0, 1], np.int32), np.array([150, 0, 70], np.int32), lens)
    spans = zip(past.rows, past.starts, lens, strict=True)
    new_slots = [table[row, start : start + count] for row, start, count in spans]
    slots = torch.from_numpy(np.concatenate(new_slots)).long().to(device)
    qkv = torch.randn(len(slots), num_heads + 2 * kv_heads, dim).to(dtype).to(device)
    angles = torch.polar(torch.ones(len(slots), 1, 12), torch.randn(len(slots), 1, 12)).to(device)
    kv = torch.randn(2, 600, kv_heads, dim).to(dtype).to(device).transpose(1, 2)
    kv[:, :, slots] = torch.nan
    weight = torch.randn(num_heads + kv_heads, dim).to(dtype).to(device)
    rows = GpuRows()
    norm = rows.norm(weight, 1e-5) if has_norm else None
    num_programs = 64 if case == "several programs" else 1
    attention = GpuAttention(
        device, kv_heads, dtype, num_heads // kv_heads, num_programs=num_programs
    )
    plan = attention.plan(past, 20 if case == "a window" else None)
    assert (plan.num_partials > 0) is (case == "several programs")

    wanted_qkv, wanted_kv = qkv.clone(), kv.clone()
    rows.rotate_and_write(wanted_qkv, norm, angles, wanted_kv, slots)
    wanted = attention.attend(wanted_qkv[:, :num_heads], wanted_kv, plan, 0.2)
    found = attention.attend_new(qkv, norm, angles, kv, slots, plan, 0.2)
    assert torch.equal(found, wanted)
    assert torch.equal(kv, wanted_kv)


def test_only_devices_with_launches_fuse_them() -> None:
    assert isinstance(GpuAttention(torch.device("cpu"), 1, torch.float32), FusedAttention)
    assert isinstance(GpuRows(), FusedRows)
    assert not isinstance(PlainRows(), FusedRows)
