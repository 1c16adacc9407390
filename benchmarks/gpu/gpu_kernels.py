"""Every kernel beside its oracle and its floor, in the shapes of published models: Triton's, and
FlashInfer's where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from forkroot.benchmarks.gpu import gpu_attention, gpu_rows
from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases

SHAPES = ("llama-3.1-8b", "llama-2-7b")


def cases(bench: Bench) -> Cases:
    """Attention first; what FlashInfer has to compile before it runs comes last."""
    half = bench.dtype
    for name in SHAPES:
        for step in gpu_attention.steps(bench):
            yield _attention(bench, name, step, "triton", half)
    for name in SHAPES:
        yield from gpu_rows.cases(bench, name)
    yield from gpu_rows.logits(bench, "llama-3.1-8b")
    yield from gpu_rows.experts(bench, "mixtral-8x7b")
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        if dtype is not half:
            for step in gpu_attention.few_steps(bench):
                yield _attention(bench, SHAPES[0], step, "triton", dtype)
    if bench.is_cuda and find_spec("flashinfer") is not None:
        for name in SHAPES:
            for step in gpu_attention.steps(bench):
                yield _attention(bench, name, step, "flashinfer", half)
        yield from gpu_rows.others(bench, "llama-3.1-8b")


def _attention(
    bench: Bench, name: str, step: gpu_attention.Step, kind: str, dtype: torch.dtype
) -> Case:
    of = "" if dtype is bench.dtype else f" {str(dtype).removeprefix('torch.')}"
    sizes = bench.sizes(name)
    return Case(
        f"{name} {step.name}{of} {kind}",
        lambda: gpu_attention.measure(bench, sizes, step, kind, dtype),
        1.5,
    )
