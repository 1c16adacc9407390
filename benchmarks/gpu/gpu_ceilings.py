"""What the device itself can do: bytes copied, matrices multiplied, kernels launched."""

from __future__ import annotations

import time
from statistics import median

import torch

from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures, copy_rate, product_rate


def cases(bench: Bench) -> Cases:
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
