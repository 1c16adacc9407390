"""Offline throughput: prompts of 1,024 tokens that share nothing, all there at once, each answered
with 1,024 tokens."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures
from forkroot.benchmarks.gpu.gpu_model import prefill_products, step_floor
from forkroot.core.api.protocol import Call, Sampling, Tokens
from forkroot.core.local import LocalBackend
from forkroot.core.model.checkpoint.load import describe

CALLS = {"llama-3.1-8b": 256, "llama-2-7b": 96}  # as many as fit, and run, at once


def cases(bench: Bench) -> Cases:
    """Both shapes, the one with fewer bytes a token first."""
    for name in list(CALLS)[: 1 if bench.is_tiny else None]:
        yield Case(f"{name} 1k in 1k out", _offline(bench, name), 25)


def _offline(bench: Bench, name: str) -> Callable[[], Figures]:
    def run() -> Figures:
        num, length = (2, 12) if bench.is_tiny else (CALLS[name], 1024)
        settings = bench.engine(
            num_slots=num * (2 * length + 1),
            max_running=num,
            chunk_tokens=8192,
            context_len=2 * length + 1,
        )
        with LocalBackend.from_folder(bench.shape(name), **settings) as backend:
            _serve(backend, 2, length, 8, bench.seed + 1)
            seconds = _serve(backend, num, length, length, bench.seed)
            counters = backend.info().counters
        floor = _floor(bench, name, num, length)
        return {
            "calls": num,
            "seconds": round(seconds, 2),
            "output_tokens_per_second": round(num * length / seconds, 1),
            "all_tokens_per_second": round(2 * num * length / seconds, 1),
            "over_floor": round(seconds / floor, 3),
            "retracted": counters["retracted"],
        }

    return run


def _serve(backend: LocalBackend, num: int, length: int, answer: int, seed: int) -> float:
    rng = random.Random(seed)
    sampling = Sampling(max_tokens=answer, temperature=0.0, ignore_eos=True)
    prompts = [Tokens(tuple(rng.choices(range(300, 3000), k=length))) for _ in range(num)]
    started = time.perf_counter()
    replies = [backend.submit(Call((prompt,), sampling)) for prompt in prompts]
    for reply in replies:
        assert len(reply.result().outputs[0].ids) == answer
    return time.perf_counter() - started


def _floor(bench: Bench, name: str, num: int, length: int) -> float:
    """Every prompt by itself, then all steps together at their mean context."""
    sizes = describe(bench.shape(name))
    prefill = bench.floor(products=num * prefill_products(sizes, length))
    return prefill + length * step_floor(bench, sizes, num, length * 3 // 2)
