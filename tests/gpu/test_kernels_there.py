"""Kernels in the sizes of published models, in every dtype, against the plain ones in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

DTYPES = ("float32", "float16", "bfloat16")
SHAPES = ("llama-3.1-8b", "llama-2-7b")
STEPS = ("decode 32", "decode 256", "extend 1k over 4k", "31 beside a chunk of 512", "cascade 64")


@pytest.fixture
def bench(measuring: Any, device: str) -> Any:
    pytest.importorskip("triton")
    torch.manual_seed(3)
    return measuring("gpu_bench").Bench(torch.device(device), is_tiny=False, seed=3)


def wrong(found: Any) -> dict[str, Any]:
    """Which of these figures, by kernel, are not right; there are some to judge."""
    all_figures = dict(found)
    assert all_figures
    return {name: figures for name, figures in all_figures.items() if not figures["is_right"]}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("shape", "dtype"), [*((SHAPES[0], dtype) for dtype in DTYPES), (SHAPES[1], "bfloat16")]
)
def test_attention_of_a_step_is_the_oracles(shape, dtype, step, bench, measuring) -> None:
    attention = measuring("gpu_attention")
    (wanted,) = (it for it in attention.steps(bench) if it.name == step)
    kind = getattr(torch, dtype)
    error = attention.error(bench, bench.sizes(shape), wanted, "triton", kind)
    assert measuring("gpu_bench").verdict(error, kind)["is_right"], error


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernels_over_rows_are_plain_torchs(dtype, shape, bench, measuring) -> None:
    on_device = replace(bench, kind=getattr(torch, dtype))
    assert not wrong(measuring("gpu_rows").errors(on_device, shape))


def test_masks_and_samples_over_a_large_vocabulary_are_the_samplers(bench, measuring) -> None:
    assert not wrong(measuring("gpu_rows").draws_alike(bench, "llama-3.1-8b"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_experts_are_one_product_a_row(dtype, bench, measuring) -> None:
    on_device = replace(bench, kind=getattr(torch, dtype))
    assert not wrong(measuring("gpu_rows").expert_errors(on_device, "mixtral-8x7b"))
