"""Norms, turns, gates and writes against plain torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from forkroot.kernels.gpu.activation import silu_mul
from forkroot.kernels.gpu.attention.kv_write import write
from forkroot.kernels.gpu.norms import rms_norm
from forkroot.kernels.gpu.rotary import apply_rotary

from .closeness import is_close, poisoned


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * weight.double()


@pytest.mark.parametrize("size", [64, 100, 1024])
def test_a_norm_scales_every_row(size, dtype, device) -> None:
    torch.manual_seed(size)
    x, weight = torch.randn(5, size).to(dtype), torch.randn(size).to(dtype)
    out = poisoned(5, size, dtype=dtype, device=device)
    assert is_close(rms_norm(x.to(device), weight.to(device), 1e-5, out), normed(x, weight), dtype)


def test_a_norm_of_heads_may_write_where_it_read(dtype, device) -> None:
    torch.manual_seed(1)
    x, weight = torch.randn(5, 7, 16).to(dtype), torch.randn(3, 16).to(dtype)
    wanted, on_device = normed(x[:, 1:4], weight), x.clone().to(device)
    rms_norm(on_device[:, 1:4], weight.to(device), 1e-5, on_device[:, 1:4])
    assert is_close(on_device[:, 1:4], wanted, dtype)
    assert torch.equal(on_device[:, 4:].cpu(), x[:, 4:])


def test_pairs_are_rotated_in_place_and_nothing_else(dtype, device) -> None:
    torch.manual_seed(3)
    x, angles = (
        torch.randn(5, 9, 16).to(dtype),
        torch.polar(torch.ones(5, 1, 8), torch.randn(5, 1, 8)),
    )
    pairs = torch.view_as_complex(x[:, :7].float().reshape(5, 7, 8, 2)) * angles
    on_device = x.clone().to(device)
    apply_rotary(on_device[:, :7], angles.to(device))
    assert is_close(on_device[:, :7], torch.view_as_real(pairs).reshape(5, 7, 16), dtype)
    assert torch.equal(on_device[:, 7:].cpu(), x[:, 7:])


def test_a_gate_is_silu_times_the_other_half(dtype, device) -> None:
    torch.manual_seed(4)
    x = torch.randn(3, 2 * 1500).to(dtype)
    wanted = F.silu(x[:, :1500].double()) * x[:, 1500:].double()
    assert is_close(silu_mul(x.to(device)), wanted, dtype)


@pytest.mark.parametrize("heads", [1, 10])
@pytest.mark.parametrize("is_by_token", [False, True])
def test_keys_and_values_go_to_their_slots_only(heads, is_by_token, dtype, device) -> None:
    torch.manual_seed(5)
    kv, slots = torch.randn(5, 2 * heads, 24).to(dtype), torch.tensor([3, 9, 0, 44, 7])
    shape = (2, 50, heads, 24) if is_by_token else (2, heads, 50, 24)
    pool = poisoned(*shape, dtype=dtype, device=device)
    pool = pool.transpose(1, 2) if is_by_token else pool
    write(pool, slots.to(device), kv.to(device))
    found = pool[:, :, slots.to(device)].permute(2, 0, 1, 3).flatten(1, 2)
    assert torch.equal(found.cpu(), kv)
    assert int(pool.isnan().sum()) == 2 * heads * 45 * 24
