"""Rotation, head norm and the write of keys and values in one launch: the numbers of three."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from forkroot.kernels.backend import FusedRows
from forkroot.kernels.cpu.linear.rows import PlainRows
from forkroot.kernels.gpu.attention.kv_write import write
from forkroot.kernels.gpu.rows import GpuRows

from .closeness import poisoned


@pytest.mark.parametrize("heads", [(3, 1), (14, 2)], ids=str)
@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("dim", [16, 24])
def test_one_launch_gives_the_numbers_of_three(heads, has_norm, dim, dtype, device) -> None:
    torch.manual_seed(dim)
    num_heads, kv_heads = heads
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


def test_only_devices_with_launches_fuse_them() -> None:
    assert isinstance(GpuRows(), FusedRows)
    assert not isinstance(PlainRows(), FusedRows)
