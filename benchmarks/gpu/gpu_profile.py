"""What a device does meanwhile: its largest kernels, and for how much of the time it is busy."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from forkroot.benchmarks.gpu.gpu_bench import Bench, Figures

NUM_KERNELS = 15
LONGEST_NAME = 120  # characters of a kernel's


def largest_kernels(bench: Bench, action: Callable[[], object], rounds: int) -> Figures:
    """The kernels on which an action spends most of the device's time, and what all take, in
    microseconds for one action; on a CPU torch's operators."""
    kind = ProfilerActivity.CUDA if bench.is_cuda else ProfilerActivity.CPU
    action()
    bench.wait()
    with profile(activities=[kind]) as profiler:
        for _ in range(rounds):
            action()
        bench.wait()
    taken = "self_device_time_total" if bench.is_cuda else "self_cpu_time_total"
    found = [(getattr(it, taken), it.count, it.key) for it in profiler.key_averages()]
    found = sorted((it for it in found if it[0] > 0), reverse=True)
    total = sum(us for us, _, _ in found)
    kernels = [
        {
            "name": name[:LONGEST_NAME],
            "us": round(us / rounds, 2),
            "launches": round(count / rounds, 2),
            "share": round(us / total, 4),
        }
        for us, count, name in found[:NUM_KERNELS]
    ]
    launches = sum(count for _, count, _ in found) / rounds
    return {
        "busy_us": round(total / rounds, 1),
        "kernels_launched": round(launches, 1),
        "kernels": kernels,
    }


def busy_share(seconds: float) -> float:
    """Of the time between the first and the last kernel of so many seconds, in how much some
    kernel or copy ran."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        time.sleep(seconds)
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    return covered(spans) if spans else 0.0


def covered(spans: list[tuple[float, float]]) -> float:
    """The share of the time from the first start to the last end in which a span, of these sorted
    ones, is open."""
    busy, until = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy / max(until - spans[0][0], 1e-12)
