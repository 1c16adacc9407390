"""What a device does meanwhile: its largest kernels, and for how much of the time it is busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from forkroot.benchmarks.gpu.gpu_bench import Bench, Figures

NUM_KERNELS = 15
LONGEST_NAME = 120  # characters of a kernel's


def largest_kernels(bench: Bench, action: Callable[[], object], rounds: int) -> Figures:
    """The kernels on which an action spends most of the device's time, and what all take, in
    microseconds for one action, which is warm; and how many calls of the host launch them. On a CPU
    torch's operators."""
    kind = ProfilerActivity.CUDA if bench.is_cuda else ProfilerActivity.CPU
    bench.wait()
    with profile(activities=[kind]) as profiler:
        for _ in range(rounds):
            action()
        bench.wait()
    return largest(profiler.events(), bench.is_cuda, rounds)


def largest(events: Iterable[Any], is_cuda: bool, rounds: int) -> Figures:
    """As `largest_kernels`, of a profiler's events, those of other devices among them."""
    times: dict[str, list[float]] = {}
    calls = 0
    wanted = torch.autograd.DeviceType.CUDA if is_cuda else torch.autograd.DeviceType.CPU
    for event in events:
        if event.device_type == wanted:
            us = event.time_range.elapsed_us() if is_cuda else event.self_cpu_time_total
            times.setdefault(event.name, []).append(us)
        elif "Launch" in event.name:  # of CUDA's runtime: a kernel or a whole graph
            calls += 1
    sums = sorted(((sum(of), len(of), name) for name, of in times.items()), reverse=True)
    total = sum(us for us, _, _ in sums)
    kernels = [
        {
            "name": name[:LONGEST_NAME],
            "us": round(us / rounds, 2),
            "launches": round(count / rounds, 2),
            "share": round(us / total, 4),
        }
        for us, count, name in sums[:NUM_KERNELS]
    ]
    launched = sum(map(len, times.values())) / rounds
    return {
        "busy_us": round(total / rounds, 1),
        "kernels_launched": round(launched, 1),
        **({"launch_calls": round(calls / rounds, 1)} if is_cuda else {}),
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
