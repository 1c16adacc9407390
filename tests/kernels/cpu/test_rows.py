"""What layers do to rows on a CPU, against plain formulas in float64."""

from __future__ import annotations

import pytest
import torch

from forkroot.kernels.cpu.linear.rows import PlainRows


@pytest.mark.parametrize(("rows", "half"), [(1, 1), (3, 40), (8, 1408), (2, 67)])
def test_silu_mul_matches_its_formula(rows: int, half: int) -> None:
    random = torch.Generator().manual_seed(half)
    gate_up = torch.randn(rows, 2 * half, generator=random) * 5
    gate, up = gate_up.double().chunk(2, dim=-1)
    wanted = gate / (1 + (-gate).exp()) * up
    result = PlainRows.silu_mul(gate_up)
    assert result.shape == (rows, half)
    assert ((result - wanted).abs() <= 2e-6 * wanted.abs() + 1e-30).all()


def test_gates_of_any_size_stay_finite_and_nan_stays_nan() -> None:
    gates = torch.tensor([-1e30, -200.0, -88.5, -0.0, 88.5, 200.0, 1e30, torch.nan] * 8)
    result = PlainRows.silu_mul(torch.cat((gates, torch.ones(64)))[None])[0, :8]
    assert result[7].isnan()
    assert torch.allclose(result[3:7], torch.tensor([0.0, 88.5, 200.0, 1e30]))
    assert (result[1:3].abs() < 1e-30).all()
    assert result[0].isfinite()


def test_half_precision_is_gated_too() -> None:
    gate_up = torch.tensor([[1.0, -2.0, 3.0, 4.0]], dtype=torch.bfloat16)
    result = PlainRows.silu_mul(gate_up)
    assert result.dtype is torch.bfloat16
    assert torch.allclose(result.float(), torch.tensor([[2.1932, -0.9536]]), atol=0.02)
