"""Compiled loops are tried when a model is loaded; torch computes what they get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("numba")

from forkroot.kernels.backend import LayerSizes, LayerWeights, Matrix
from forkroot.kernels.cpu.attention.attention import CpuAttention
from forkroot.kernels.cpu.attention.decode import DecodeAttention
from forkroot.kernels.cpu.attention.trial import is_attention_right
from forkroot.kernels.cpu.decoder.fused import fused_stack
from forkroot.kernels.cpu.decoder.stack import Stack
from forkroot.kernels.cpu.decoder.trial import is_stack_right
from forkroot.kernels.cpu.jit import pairs
from forkroot.kernels.cpu.linear.linear import (
    Bf16PairsLinear,
    PackedBf16Linear,
    PackedLinear,
    TorchLinear,
    is_product_right,
    linear_kernel,
)
from forkroot.kernels.cpu.linear.rows import CompiledNorm
from forkroot.kernels.devices import Pool, attention_for
from forkroot.kernels.plain import PlainAttention

CPU = torch.device("cpu")
SIZES = LayerSizes(num_heads=4, num_kv_heads=2, dim=16, hidden=32, ffn=48, eps=1e-5)
SHAPES = (128, 32), (32, 64), (96, 32), (32, 48)  # [out, in] of a layer's matrices


@pytest.fixture(autouse=True)
def untried() -> Iterator[None]:
    """Nothing has been tried yet, and what a test finds is not kept."""
    is_stack_right.cache_clear()
    is_product_right.cache_clear()
    yield
    is_stack_right.cache_clear()
    is_product_right.cache_clear()


def stack() -> Stack | None:
    random = torch.Generator().manual_seed(0)
    kernels = (PackedLinear(torch.randn(shape, generator=random)) for shape in SHAPES)
    norm = CompiledNorm(torch.ones(SIZES.hidden), SIZES.eps)
    matrices = (Matrix(kernel, None) for kernel in kernels)
    return fused_stack([LayerWeights(norm, None, norm, *matrices, 0)], SIZES, torch.float32)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What trials have logged; a loop that is compiled first is logged by others."""
    return [it.getMessage() for it in caplog.records if it.name.endswith("cpu.trial")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("dim", "group"), [(8, 1), (12, 3), (64, 4), (128, 1)])
def test_attention_is_right_here(
    dtype: torch.dtype, dim: int, group: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_attention_right(CpuAttention(dtype), dtype, 2, dim, group)
    assert not warnings(caplog)


@pytest.mark.parametrize(
    "kind",
    [
        PackedLinear,
        PackedBf16Linear,
        pytest.param(
            Bf16PairsLinear,
            marks=pytest.mark.skipif(not pairs.can_multiply(), reason="needs AVX-512 BF16"),
        ),
    ],
)
@pytest.mark.parametrize("is_bf16_kv", [False, True])
def test_fused_layers_are_right_here(
    kind: type[PackedLinear], is_bf16_kv: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_product_right(kind, 0)
    assert is_stack_right(kind, 0, 16, 2, is_bf16_kv)
    assert not warnings(caplog)


def test_attention_that_is_wrong_is_replaced_by_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = Pool(CPU, torch.float32, 64, num_kv_heads=2, dim=16, group=2)
    assert isinstance(attention_for(pool), CpuAttention)

    def attend(self: DecodeAttention, q: Any, kv: Any, item: Any, score_mod: Any, out: Any) -> None:
        out.out.copy_(q)  # one value less than it should read

    monkeypatch.setattr(DecodeAttention, "attend", attend)
    assert isinstance(attention_for(pool), PlainAttention)
    assert "compiled attention (torch.float32, heads of 16) is wrong by" in caplog.text


def test_attention_that_raises_or_gives_nan_is_replaced_by_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def attend(self: DecodeAttention, q: Any, kv: Any, item: Any, score_mod: Any, out: Any) -> None:
        raise OSError("no such instruction")

    monkeypatch.setattr(DecodeAttention, "attend", attend)
    assert not is_attention_right(CpuAttention(torch.float32), torch.float32, 2, 16, 2)
    monkeypatch.setattr(DecodeAttention, "attend", lambda *given: given[-1].out.fill_(torch.nan))
    assert not is_attention_right(CpuAttention(torch.float32), torch.float32, 2, 16, 2)


def test_layers_whose_loop_is_wrong_are_not_fused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(stack(), Stack)
    is_stack_right.cache_clear()
    monkeypatch.setattr(Stack, "__call__", lambda self, x, *given: x)
    assert stack() is None
    assert "compiled layers (torch.float32, heads of 16) is wrong by" in caplog.text


def test_a_product_that_is_wrong_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(32, 16, generator=torch.Generator().manual_seed(0))
    assert isinstance(linear_kernel(weight), PackedLinear)
    is_product_right.cache_clear()
    monkeypatch.setattr(PackedLinear, "_run", lambda self, x, out, is_added: out.fill_(0))
    kernel = linear_kernel(weight)
    assert isinstance(kernel, TorchLinear)
    x = torch.ones(1, 16)
    assert torch.allclose(kernel(x), x @ weight.T, atol=1e-5)
