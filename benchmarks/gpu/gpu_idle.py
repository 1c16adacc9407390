"""The engine at work, seen from outside: milliseconds for each of its decode steps, and the share
of the time in which its device has nothing to do."""

from __future__ import annotations

import random
import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from forkroot.benchmarks.gpu.gpu_bench import Bench, Figures
from forkroot.core.api.protocol import Call, Sampling, Tokens
from forkroot.core.local import LocalBackend

PATIENCE = 60.0  # seconds until all prompts are computed


def idle(bench: Bench, name: str, batch: int, context: int, floor: float) -> Figures:
    """`batch` calls of `context` tokens that decode together. floor: seconds of a step."""
    steps, room = (4, 40) if bench.is_tiny else (60, 1500)
    settings = bench.engine(
        num_slots=batch * (context + room + 1),
        max_running=batch,
        chunk_tokens=8192,
        context_len=context + room + 1,
    )
    backend = LocalBackend.from_folder(bench.shape(name), **settings)
    try:
        _begin(backend, batch, context, room, bench.seed)
        _watch(backend, steps // 2)
        seconds, outside = _watch(backend, steps)
        figures: Figures = {
            "ms": round(seconds * 1000, 3),
            "floor_ms": round(floor * 1000, 3),
            "over_floor": round(seconds / floor, 3),
            "outside_runner": round(outside, 4),
        }
        if bench.is_cuda:
            _busy_share(0.01)  # the profiler begins slowly, once
            figures["idle_share"] = round(1 - _busy_share(steps * seconds), 4)
    finally:
        backend.close()
    return figures


def _begin(backend: LocalBackend, batch: int, context: int, room: int, seed: int) -> None:
    """Submit calls that share nothing; come back when all of them decode."""
    rng = random.Random(seed)
    sampling = Sampling(max_tokens=room, temperature=0.0, ignore_eos=True)
    for _ in range(batch):
        prompt = Tokens(tuple(rng.choices(range(300, 3000), k=context)))
        backend.submit(Call((prompt,), sampling))
    until = time.monotonic() + PATIENCE
    while _counters(backend)["computed_tokens"] < batch * (context + 1):
        if time.monotonic() > until:
            raise TimeoutError(f"{batch} prompts were not computed in {PATIENCE} s")
        time.sleep(0.002)


def _watch(backend: LocalBackend, steps: int) -> tuple[float, float]:
    """Seconds for each of the next steps, and the share of these outside the runner."""
    before, started = _counters(backend), time.perf_counter()
    after = before
    while after["steps"] < before["steps"] + steps:
        time.sleep(0.005)
        after = _counters(backend)
    seconds = time.perf_counter() - started
    figures = {
        name: after[name] - before[name] for name in ("steps", "step_seconds", "run_seconds")
    }
    return seconds / figures["steps"], 1 - figures["run_seconds"] / max(
        figures["step_seconds"], 1e-9
    )


def _counters(backend: LocalBackend) -> dict[str, Any]:
    return dict(backend.info().counters)


def _busy_share(seconds: float) -> float:
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
