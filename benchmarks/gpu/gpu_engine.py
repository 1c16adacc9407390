"""The engine at work, seen from outside: its decode steps, the share of the time in which its
device has nothing to do, and offline throughput: prompts of 1,024 tokens that share nothing, all
there at once, each answered with 1,024 tokens."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures
from forkroot.benchmarks.gpu.gpu_loaded import (
    TINY_VOCABULARY,
    LoadedModel,
    layers_that_fit,
    prefill_products,
    slots_that_fit,
    step_bytes,
)
from forkroot.benchmarks.gpu.gpu_profile import busy_share
from forkroot.core.api.protocol import Call, Sampling, Tokens
from forkroot.core.api.reply import Mailbox
from forkroot.core.local import LocalBackend
from forkroot.core.model.checkpoint.memory import Load
from forkroot.core.model.config import ModelConfig

PATIENCE = 60.0  # seconds until all prompts are computed
CHUNK = 8192
WORDS = range(300, 3000)
CALLS = {"llama-3.1-8b": 256, "llama-2-7b": 96}  # at once, where as many fit
KINDS = {"greedy": {"temperature": 0.0}, "top-p": {"temperature": 1.0, "top_p": 0.9}}
TINY_HEAD = 32  # numbers: other engines have no kernels for less
FEW = 4  # sequences: with fewer, layers are left out instead
TOO_LARGE = "not one layer of the model fits into the device's free memory"


def engine_model(
    bench: Bench, name: str, context_len: int, num_slots: int, load: Load
) -> LoadedModel | None:
    """A model for engines whose pools have so many slots together: all of it, or as many layers as
    fit; None where none does. A small one has room for the embedded tokenizer's vocabulary, and is
    computed by torch's operators."""
    sizes = bench.sizes(name)
    num = layers_that_fit(sizes, bench.dtype_name, bench.free(), num_slots, load)
    if not num:
        return None
    loaded = LoadedModel.of(bench, name, num, context_len)
    if bench.is_tiny:
        sizes = replace(loaded.sizes, vocabulary_size=TINY_VOCABULARY, head_dim=TINY_HEAD)
        loaded.sizes = sizes
        loaded.kernels = "plain"
    return loaded


def sequences_that_fit(bench: Bench, name: str, wanted: int, length: int) -> int:
    """How many sequences of so many tokens fit into the free memory beside a whole model, at most
    those that are wanted; all of these where hardly any does, for fewer layers."""
    load = Load(CHUNK, wanted)
    slots = slots_that_fit(bench.sizes(name), bench.dtype_name, bench.free(), load)
    num = min(wanted, slots // length)
    return num if num >= min(FEW, wanted) else wanted


def cases(bench: Bench, name: str) -> Cases:
    """Decode steps of the engine, greedy and not; the prompts share nothing."""
    for batch in (2,) if bench.is_tiny else (32, 128, 256):
        yield Case(f"{name} engine {batch}", _steady(bench, name, batch), 16)


def throughput(bench: Bench) -> Cases:
    """Both shapes, the one with fewer bytes a token first."""
    for name in list(CALLS)[: 1 if bench.is_tiny else None]:
        yield Case(f"{name} 1k in 1k out", _offline(bench, name), 20)


def _steady(bench: Bench, name: str, batch: int) -> Callable[[], Figures]:
    def run() -> Figures:
        context, room = (24, 40) if bench.is_tiny else (1024, 1500)
        length = context + room + 1
        num = sequences_that_fit(bench, name, batch, length)
        loaded = engine_model(bench, name, length, num * length, Load(CHUNK, num))
        if loaded is None:
            return {"skipped": TOO_LARGE}
        sizes = {"num_slots": num * length, "max_running": num, "context_len": length}
        figures: Figures = {}
        with loaded.backend(chunk_tokens=CHUNK, **sizes) as backend:
            for kind, options in KINDS.items():
                sampling = Sampling(max_tokens=room, ignore_eos=True, **options)
                replies = _begin(backend, num, context, bench.seed, sampling)
                of = loaded.sizes, num, context
                figures[kind] = _decoding(bench, backend, *of) | loaded.about()
                for reply in replies:
                    backend.cancel(reply)
                    reply.result(PATIENCE)
                backend.clear_cache()
        loaded.close()
        return figures

    return run


def _decoding(
    bench: Bench, backend: LocalBackend, sizes: ModelConfig, num: int, context: int
) -> Figures:
    """The next steps of so many sequences."""
    steps = 4 if bench.is_tiny else 60
    _watch(backend, steps // 2)
    seconds, outside = _watch(backend, steps)
    floor = bench.floor(step_bytes(sizes, bench.dtype_name, num, context + 2 * steps))
    figures: Figures = {
        "sequences": num,
        "ms": round(seconds * 1000, 3),
        "floor_ms": round(floor * 1000, 3),
        "over_floor": round(seconds / floor, 3),
        "outside_runner": round(outside, 4),
    }
    if bench.is_cuda:
        busy_share(0.01)  # the profiler begins slowly, once
        figures["idle_share"] = round(1 - busy_share(steps * seconds), 4)
    return figures


def _begin(
    backend: LocalBackend, num: int, context: int, seed: int, sampling: Sampling
) -> list[Mailbox]:
    """Submit calls that share nothing; they are returned when all of them decode."""
    rng, before = random.Random(seed), _counters(backend)["computed_tokens"]
    prompts = [Tokens(tuple(rng.choices(WORDS, k=context))) for _ in range(num)]
    replies = [backend.submit(Call((prompt,), sampling)) for prompt in prompts]
    until = time.monotonic() + PATIENCE
    while _counters(backend)["computed_tokens"] < before + num * (context + 1):
        if time.monotonic() > until:
            raise TimeoutError(f"{num} prompts were not computed in {PATIENCE} s")
        time.sleep(0.002)
    return replies


def _watch(backend: LocalBackend, steps: int) -> tuple[float, float]:
    """Seconds for each of the next steps, and the share of these outside the runner."""
    before, started = _counters(backend), time.perf_counter()
    after, until = before, time.monotonic() + PATIENCE
    while after["steps"] < before["steps"] + steps:
        if time.monotonic() > until:
            raise TimeoutError(f"{steps} steps were not made in {PATIENCE} s")
        time.sleep(0.005)
        after = _counters(backend)
    seconds = time.perf_counter() - started
    names = "steps", "step_seconds", "run_seconds"
    num, total, inside = (after[name] - before[name] for name in names)
    return seconds / num, 1 - inside / max(total, 1e-9)


def _counters(backend: LocalBackend) -> dict[str, Any]:
    return dict(backend.info().counters)


def _offline(bench: Bench, name: str) -> Callable[[], Figures]:
    def run() -> Figures:
        wanted, length = (2, 12) if bench.is_tiny else (CALLS[name], 1024)
        num = sequences_that_fit(bench, name, wanted, 2 * length + 1)
        whole = 2 * length + 1
        loaded = engine_model(bench, name, whole, num * whole, Load(CHUNK, num))
        if loaded is None:
            return {"skipped": TOO_LARGE}
        sizes = {"num_slots": num * whole, "max_running": num, "context_len": whole}
        with loaded.backend(chunk_tokens=CHUNK, **sizes) as backend:
            _serve(backend, 2, length, 8, bench.seed + 1)
            seconds = _serve(backend, num, length, length, bench.seed)
            counters = backend.info().counters
        loaded.close()
        floor = bench.floor(products=num * prefill_products(loaded.sizes, length))
        moved = step_bytes(loaded.sizes, bench.dtype_name, num, length * 3 // 2)
        return {
            "calls": num,
            "seconds": round(seconds, 2),
            "output_tokens_per_second": round(num * length / seconds, 1),
            "all_tokens_per_second": round(2 * num * length / seconds, 1),
            "over_floor": round(seconds / (floor + length * bench.floor(moved)), 3),
            "retracted": counters["retracted"],
        } | loaded.about()

    return run


def _serve(backend: LocalBackend, num: int, length: int, answer: int, seed: int) -> float:
    rng = random.Random(seed)
    sampling = Sampling(max_tokens=answer, temperature=0.0, ignore_eos=True)
    prompts = [Tokens(tuple(rng.choices(WORDS, k=length))) for _ in range(num)]
    started = time.perf_counter()
    replies = [backend.submit(Call((prompt,), sampling)) for prompt in prompts]
    for reply in replies:
        assert len(reply.result().outputs[0].ids) == answer
    return time.perf_counter() - started
