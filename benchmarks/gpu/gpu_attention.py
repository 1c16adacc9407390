"""Attention of whole steps: against the plain one in float64, and beside what must be moved and
multiplied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from forkroot.benchmarks.gpu.gpu_bench import Bench, Figures, beside, distance, poison, verdict
from forkroot.core.model.config import ModelConfig
from forkroot.kernels.interface import Attention, Past
from forkroot.kernels.reference import attend

UNREAD = 64  # slots that hold NaN
PROBED, QUERIES = 3, 16  # sequences, and queries at each of their two ends


class Step(NamedTuple):
    """Sequences that share a root and have tails of their own, cached; and their new tokens.

    news: of each sequence. is_scattered: slots lie in random order; else one after another.
    """

    name: str
    news: tuple[int, ...]
    tail: int
    root: int = 0
    is_scattered: bool = True


class Set(NamedTuple):
    """One of several sets of inputs, so that none is found in a cache."""

    past: Past
    q: Tensor
    attention: Attention
    plan: Any


def steps(bench: Bench) -> Iterator[Step]:
    """Decode, chunks, both at once, and roots."""
    if bench.is_tiny:
        yield Step("decode 3", (1,) * 3, 40)
        yield Step("extend 20 over 8", (20,), 8)
        yield Step("3 beside a chunk of 20", (1, 1, 1, 20), 24)
        yield Step("cascade 10", (1,) * 10, 4, root=300)
        return
    for batch in (1, 32, 128, 256):
        yield Step(f"decode {batch}", (1,) * batch, 1024)
    yield Step("decode 32, slots in order", (1,) * 32, 1024, is_scattered=False)
    yield Step("extend 1k", (1024,), 0)
    yield Step("extend 1k over 4k", (1024,), 4096)
    yield Step("extend 4k", (4096,), 0)
    yield Step("31 beside a chunk of 512", (1,) * 31 + (512,), 1024)
    for batch in (16, 64):
        yield Step(f"cascade {batch}", (1,) * batch, 64, root=2048)


def few_steps(bench: Bench) -> Iterator[Step]:
    """One of each kind, for other dtypes."""
    if bench.is_tiny:
        yield Step("3 beside a chunk of 20", (1, 1, 1, 20), 24)
        return
    yield Step("decode 32", (1,) * 32, 1024)
    yield Step("31 beside a chunk of 512", (1,) * 31 + (512,), 1024)
    yield Step("cascade 16", (1,) * 16, 64, root=2048)


def error(bench: Bench, sizes: ModelConfig, step: Step, kind: str, dtype: torch.dtype) -> float:
    """Distance of a step's attention in one layer from the oracle."""
    sets, kv, rng = _sets(bench, sizes, step, kind, dtype, 1)
    return _attended(bench, sizes, sets[0], kv, rng)


def measure(bench: Bench, sizes: ModelConfig, step: Step, kind: str, dtype: torch.dtype) -> Figures:
    """Error and time of a step's attention in one layer."""
    token_bytes = 2 * sizes.num_kv_heads * sizes.head_dim * dtype.itemsize
    size = _num_slots(step) * token_bytes
    most = 4 if kind == "flashinfer" else 32  # each of its wrappers takes half a gigabyte
    num_sets = max(1, min(bench.num_sets(size), most, bench.free() // (2 * size)))
    sets, kv, rng = _sets(bench, sizes, step, kind, dtype, num_sets)
    found = _attended(bench, sizes, sets[0], kv, rng)
    scale = sizes.head_dim**-0.5
    actions = [lambda s=s: s.attention.attend(s.q, kv, s.plan, scale) for s in sets]
    seconds, clock = bench.timed(actions)
    floor = bench.floor(*_least(sizes, step, dtype))
    return verdict(found, dtype) | beside(seconds, clock, floor)


def _num_slots(step: Step) -> int:
    return step.root + sum(step.tail + new for new in step.news) + UNREAD


def _sets(
    bench: Bench, sizes: ModelConfig, step: Step, kind: str, dtype: torch.dtype, num_sets: int
) -> tuple[list[Set], Tensor, np.random.Generator]:
    """So many sets of inputs, the pool of all of them, and what draws random numbers."""
    rng, num_slots = np.random.default_rng(bench.seed), _num_slots(step)
    kv = _pool(bench, sizes, num_slots * num_sets, dtype)
    sets: list[Set] = []
    for index in range(num_sets):
        past, unread = _past(step, rng, index * num_slots)
        kv[:, :, torch.from_numpy(unread).to(bench.device)] = torch.nan
        q = bench.normal(sum(step.news), sizes.num_heads, sizes.head_dim, dtype=dtype)
        attention = _attention(bench, sizes, kind, dtype)
        sets.append(Set(past, q, attention, attention.plan(past)))
    return sets, kv, rng


def _attended(
    bench: Bench, sizes: ModelConfig, first: Set, kv: Tensor, rng: np.random.Generator
) -> float:
    """Distance of what a set gives from the oracle; NaN where some of it was not written."""
    scale = sizes.head_dim**-0.5
    poison(first.q.shape, dtype=first.q.dtype, device=bench.device)
    out = first.attention.attend(first.q, kv, first.plan, scale)
    return _error(first, kv, out, scale, rng)


def _attention(bench: Bench, sizes: ModelConfig, kind: str, dtype: torch.dtype) -> Attention:
    heads, kv_heads = sizes.num_heads, sizes.num_kv_heads
    if kind == "flashinfer":
        from forkroot.kernels.gpu.attention.flashinfer import FlashInferAttention

        return FlashInferAttention(bench.device, heads, kv_heads, sizes.head_dim, dtype)
    from forkroot.kernels.gpu.attention.attention import GpuAttention

    return GpuAttention(bench.device, kv_heads, dtype, heads // kv_heads)


def _pool(bench: Bench, sizes: ModelConfig, num_slots: int, dtype: torch.dtype) -> Tensor:
    """[2, kv_heads, slots, dim], stored slot by slot."""
    pool = torch.empty(
        (2, num_slots, sizes.num_kv_heads, sizes.head_dim), dtype=dtype, device=bench.device
    )
    return pool.normal_().transpose(1, 2)


def _past(step: Step, rng: np.random.Generator, first: int) -> tuple[Past, np.ndarray]:
    """Which slots from `first` on each sequence reads, and those that none does."""
    ends = [step.root + step.tail + new for new in step.news]
    num = step.root + sum(ends) - step.root * len(ends)
    slot_order = rng.permutation(num + UNREAD) if step.is_scattered else np.arange(num + UNREAD)
    (zero,) = np.flatnonzero(slot_order == 0)  # padding may read it, so it must be finite
    slot_order[[0, zero]] = slot_order[[zero, 0]]
    slots = (slot_order + first).astype(np.int32)
    table = np.full((len(ends), max(ends)), slots[-1], np.int32)
    at = step.root
    for row, end in enumerate(ends):
        own = end - step.root
        table[row, :end] = np.concatenate((slots[: step.root], slots[at : at + own]))
        at += own
    news = np.array(step.news, np.int32)
    rows = np.arange(len(ends), dtype=np.int32)
    return Past(table, rows, np.array(ends, np.int32) - news, news), slots[num:].astype(np.int64)


def _error(given: Set, kv: Tensor, out: Tensor, scale: float, rng: np.random.Generator) -> float:
    """Distance from the oracle of some queries of some sequences; NaN where any number of the
    output is none."""
    if not bool(out.isfinite().all()):
        return float("nan")
    past, found, wanted = given.past, [], []
    firsts = np.cumsum(past.lens) - past.lens
    last = len(past.rows) - 1
    for s in {0, last, *rng.integers(0, last + 1, PROBED).tolist()}:
        count, start = int(past.lens[s]), int(past.starts[s])
        slots = torch.from_numpy(past.table[past.rows[s], : start + count].astype(np.int64))
        small = kv[:, :, slots.to(kv.device)].cpu()
        table = np.arange(start + count, dtype=np.int32)[None]
        for begin in {0, max(0, count - QUERIES)}:
            length = min(QUERIES, count - begin)
            span = slice(int(firsts[s]) + begin, int(firsts[s]) + begin + length)
            ints = (np.array([n], np.int32) for n in (0, start + begin, length))
            wanted.append(attend(given.q[span].cpu(), small, Past(table, *ints), scale))
            found.append(out[span].cpu())
    return distance(torch.cat(found), torch.cat(wanted))


def _least(sizes: ModelConfig, step: Step, dtype: torch.dtype) -> tuple[float, float]:
    """Bytes that must be moved, and products and sums made, in one layer."""
    keys = step.root + sum(step.tail + new for new in step.news)
    rows = 2 * sum(step.news) * sizes.num_heads
    moved = (2 * keys * sizes.num_kv_heads + rows) * sizes.head_dim * dtype.itemsize
    cached = step.root + step.tail
    pairs = sum(new * cached + new * (new + 1) / 2 for new in step.news)
    return moved, 4 * pairs * sizes.num_heads * sizes.head_dim
