"""What the device itself can do: bytes copied, matrices multiplied, kernels launched; and every
kernel beside its oracle and its floor, in the shapes of published models: Triton's, and those of
FlashInfer where it is installed."""

from __future__ import annotations

import time
from importlib.util import find_spec
from statistics import median

import torch

from forkroot.benchmarks.gpu import gpu_attention, gpu_rows
from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures, copy_rate, product_rate

SHAPES = ("llama-3.1-8b", "llama-2-7b")


def ceilings(bench: Bench) -> Cases:
    """The ceilings on which all floors of the other stages are based."""
    yield Case("copy", lambda: copy(bench), 1)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        yield Case(f"product {name}", lambda dtype=dtype: product(bench, dtype), 1)
    yield Case("launch", lambda: launch(bench), 1)


def copy(bench: Bench) -> Figures:
    """Gigabytes a second, read and written; twice, to show the spread."""
    return {"GB_s": [round(copy_rate(bench) / 1e9, 1) for _ in range(2)]}


def product(bench: Bench, dtype: torch.dtype) -> Figures:
    """Square matrices of random numbers, of several sizes; a size is the number of rows."""
    sizes = (64, 128) if bench.is_tiny else (2048, 4096, 8192)
    rates = {str(n): round(product_rate(bench, dtype, n) / 1e12, 3) for n in sizes}
    return {"TFLOP_s": rates}


def launch(bench: Bench) -> Figures:
    """Microseconds for one kernel of next to no work: to launch it, until it is known to have
    ended, and where it is replayed among many in a graph."""
    x = bench.normal(32)
    num = 20 if bench.is_tiny else 1000
    times, waits = [], []
    for _ in range(3):
        bench.wait()
        started = time.perf_counter()
        for _ in range(num):
            x.add_(1)
        times.append((time.perf_counter() - started) / num)
        bench.wait()
    for _ in range(num):
        started = time.perf_counter()
        x.add_(1)
        bench.wait()
        waits.append(time.perf_counter() - started)
    replayed, clock = bench.timed([lambda: x.add_(1)] * 100)
    medians = (("launch_us", median(times)), ("to_the_end_us", median(waits)), ("us", replayed))
    return {name: round(seconds * 1e6, 3) for name, seconds in medians} | {"clock": clock}


def cases(bench: Bench) -> Cases:
    """Attention first; what FlashInfer has to compile before it runs comes last."""
    half, names = bench.dtype, SHAPES[: 1 if bench.is_tiny else None]
    for name in names:
        for step in gpu_attention.steps(bench):
            yield _attention(bench, name, step, "triton", half)
    for name in names:
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
