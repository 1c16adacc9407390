"""Kernels over rows: norms, rotary, gates, KV writes, masks, sampling and experts, each against
plain torch in float64 and beside the bytes that it must move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from forkroot.benchmarks.gpu.gpu_bench import (
    Action,
    Bench,
    Case,
    Cases,
    Figures,
    beside,
    distance,
    poison,
    verdict,
)
from forkroot.core.api.batch import GREEDY, SamplingParams
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.sampling.sampler import sample, uniforms
from forkroot.kernels.devices import DeviceSampler
from forkroot.kernels.gpu.activation import silu_mul
from forkroot.kernels.gpu.attention.kv_write import write
from forkroot.kernels.gpu.experts import gated_gemm, scattered_gemm
from forkroot.kernels.gpu.masks import mask
from forkroot.kernels.gpu.norms import rms_norm
from forkroot.kernels.gpu.rotary import apply_rotary
from forkroot.kernels.gpu.routing import SortedPairs
from forkroot.kernels.gpu.sampler import sample_tokens

EPS = 1e-5
SAMPLING_KINDS = {
    "greedy": GREEDY,
    "temperature 1": SamplingParams(temperature=1.0),
    "top_p 0.9": SamplingParams(temperature=1.0, top_p=0.9),
    "top_k 50": SamplingParams(temperature=1.0, top_k=50),
}


class Job(NamedTuple):
    """One kernel on one set of inputs. run: launches it. error: runs it on fresh inputs, and gives
    its distance from the oracle. moved, products: what it cannot do without."""

    run: Action
    error: Callable[[], float]
    moved: float
    products: float = 0.0


Make = Callable[[Bench, ModelConfig, int], Job]
Found = Iterator[tuple[str, Figures]]  # by kernel and number of rows


def cases(bench: Bench, name: str) -> Cases:
    """The kernels of a layer, each for several numbers of tokens."""
    counts = (1, 3) if bench.is_tiny else (1, 32, 256, 2048)
    for kernel, make in KERNELS.items():
        yield _case(bench, f"{name} {kernel}", bench.sizes(name), make, counts)


def errors(bench: Bench, name: str) -> Found:
    """The kernels of a layer beside their oracles, and nothing of their time."""
    counts = (1, 3) if bench.is_tiny else (1, 32, 2048)
    for kernel, make in KERNELS.items():
        yield from _errors(bench, kernel, bench.sizes(name), make, counts)


def draws_alike(bench: Bench, name: str) -> Found:
    """Masks, and draws beside those of the sampler in plain torch."""
    sizes, counts = bench.sizes(name), (3,) if bench.is_tiny else (1, 64)
    yield from _errors(bench, "mask", sizes, _mask, counts)
    for kind in SAMPLING_KINDS:
        for count in counts:
            found, _, _ = _alike(bench, sizes, kind, count, sample_tokens, True)
            yield f"draw {kind} {count}", found


def expert_errors(bench: Bench, name: str) -> Found:
    """Both products of a mixture beside their oracles."""
    counts, sizes = (5,) if bench.is_tiny else (1, 32, 512), _mixture(bench, name)
    yield from _errors(bench, "experts in", sizes, _spread, counts)
    yield from _errors(bench, "experts out", sizes, _collect, counts)


def logits(bench: Bench, name: str) -> Cases:
    """Masks and sampling over a vocabulary."""
    counts = (1, 3) if bench.is_tiny else (1, 32, 128)
    sizes = bench.sizes(name)
    yield _case(bench, f"{name} mask", sizes, _mask, counts)
    for kind in SAMPLING_KINDS:
        yield Case(f"{name} draw {kind}", lambda kind=kind: _sampled(bench, sizes, kind, counts), 4)


def others(bench: Bench, name: str) -> Cases:
    """Draws by FlashInfer's kernels, whose tokens are its own: greedy ones alone are compared."""
    from forkroot.kernels.gpu.flashinfer_sampler import FlashInferSampler

    sizes, sample_tokens = bench.sizes(name), FlashInferSampler()
    for kind in SAMPLING_KINDS:
        yield Case(
            f"{name} draw {kind} flashinfer",
            lambda kind=kind: _sampled(
                bench, sizes, kind, (1, 32, 128), sample_tokens, kind == "greedy"
            ),
            4,
        )


def experts(bench: Bench, name: str) -> Cases:
    """Both products of a mixture."""
    counts = (1, 5) if bench.is_tiny else (1, 32, 512)
    sizes = _mixture(bench, name)
    yield _case(bench, f"{name} experts in", sizes, _spread, counts)
    yield _case(bench, f"{name} experts out", sizes, _collect, counts)


def _mixture(bench: Bench, name: str) -> ModelConfig:
    return replace(bench.sizes(name), num_experts=8, experts_per_token=2)


def _errors(
    bench: Bench, kernel: str, sizes: ModelConfig, make: Make, counts: tuple[int, ...]
) -> Found:
    for count in counts:
        yield f"{kernel} {count}", verdict(make(bench, sizes, count).error(), bench.dtype)


def _case(bench: Bench, name: str, sizes: ModelConfig, make: Make, counts: tuple[int, ...]) -> Case:
    return Case(name, lambda: {str(n): _measure(bench, sizes, make, n) for n in counts}, 3)


def _measure(bench: Bench, sizes: ModelConfig, make: Make, count: int) -> Figures:
    first = make(bench, sizes, count)
    figures = verdict(first.error(), bench.dtype)
    num_sets = min(bench.num_sets(int(first.moved)), 16)
    jobs = [first, *(make(bench, sizes, count) for _ in range(num_sets - 1))]
    seconds, clock = bench.timed([job.run for job in jobs])
    return figures | beside(seconds, clock, bench.floor(first.moved, first.products))


def _normed(x: Tensor, weight: Tensor) -> Tensor:
    x = x.double()
    return x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt() * weight.double()


def _norm(bench: Bench, sizes: ModelConfig, count: int) -> Job:
    x, weight = bench.normal(count, sizes.hidden_size), bench.normal(sizes.hidden_size)
    out = torch.full_like(x, torch.nan)

    def error() -> float:
        return distance(rms_norm(x, weight, EPS, out), _normed(x, weight))

    return Job(lambda: rms_norm(x, weight, EPS, out), error, 2 * x.nbytes)


def _rotary(bench: Bench, sizes: ModelConfig, count: int) -> Job:
    heads, dim = sizes.num_heads + sizes.num_kv_heads, sizes.head_dim
    whole = bench.normal(count, heads + sizes.num_kv_heads, dim)
    angles = torch.randn(count, 1, dim // 2, device=bench.device)
    angles = torch.polar(torch.ones_like(angles), angles)
    x = whole[:, :heads]

    def error() -> float:
        copy = whole.clone()
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:2], -1, 2)) * angles
        apply_rotary(copy[:, :heads], angles)
        untouched = torch.equal(copy[:, heads:], whole[:, heads:])
        wanted = torch.view_as_real(pairs).reshape(x.shape)
        return distance(copy[:, :heads], wanted) if untouched else float("nan")

    moved = 2 * x.numel() * x.itemsize + angles.nbytes
    return Job(lambda: apply_rotary(x, angles), error, moved)


def _silu_mul(bench: Bench, sizes: ModelConfig, count: int) -> Job:
    size = sizes.ffn_size
    x = bench.normal(count, 2 * size)

    def error() -> float:
        poison((count, size), dtype=x.dtype, device=bench.device)
        return distance(silu_mul(x), F.silu(x[:, :size].double()) * x[:, size:].double())

    return Job(lambda: silu_mul(x), error, 1.5 * x.nbytes)


def _kv_write(bench: Bench, sizes: ModelConfig, count: int) -> Job:
    heads, dim = sizes.num_kv_heads, sizes.head_dim
    kv = bench.normal(count, 2 * heads, dim)
    slots = torch.randperm(2 * count, device=bench.device)[:count]
    pool = torch.full((2, 2 * count, heads, dim), torch.nan, dtype=kv.dtype, device=bench.device)
    pool = pool.transpose(1, 2)

    def error() -> float:
        write(pool, slots, kv)
        found = pool[:, :, slots].permute(2, 0, 1, 3).flatten(1, 2)
        is_rest_left = int(pool.isnan().sum()) == kv.numel()
        return 0.0 if torch.equal(found, kv) and is_rest_left else float("nan")

    return Job(lambda: write(pool, slots, kv), error, 2 * kv.nbytes)


KERNELS: dict[str, Make] = {
    "norm": _norm,
    "turn": _rotary,
    "gate": _silu_mul,
    "write": _kv_write,
}


def _mask(bench: Bench, sizes: ModelConfig, count: int) -> Job:
    size = sizes.vocabulary_size
    x = bench.normal(count, size, dtype=torch.float32)
    words = torch.randint(
        -(2**31), 2**31, (count, -(-size // 32)), dtype=torch.int32, device=bench.device
    )
    rows = torch.arange(count, device=bench.device)

    def error() -> float:
        bits = (words[:, :, None] >> torch.arange(32, device=bench.device)) & 1
        hidden = bits.flatten(1)[:, :size] == 0
        copy = x.clone()
        mask(copy, rows, words)
        return 0.0 if torch.equal(copy, x.masked_fill(hidden, -torch.inf)) else float("nan")

    return Job(lambda: mask(x, rows, words), error, x.nbytes / 2 + words.nbytes)


def _sampled(
    bench: Bench,
    sizes: ModelConfig,
    kind: str,
    counts: tuple[int, ...],
    sample_tokens: DeviceSampler = sample_tokens,
    is_alike: bool = True,
) -> Figures:
    """Tokens beside those of the sampler in plain torch, on the CPU, if they are to be alike; and
    the time for them."""
    figures: Figures = {}
    for count in counts:
        found, x, given = _alike(bench, sizes, kind, count, sample_tokens, is_alike)
        seconds, clock = bench.timed([lambda x=x, given=given: sample_tokens(x, *given)])
        figures[str(count)] = found | beside(seconds, clock, bench.floor(x.nbytes))
    return figures


def _alike(
    bench: Bench,
    sizes: ModelConfig,
    kind: str,
    count: int,
    sample_tokens: DeviceSampler,
    is_alike: bool,
) -> tuple[Figures, Tensor, list[Tensor]]:
    """How many tokens are those of the sampler in plain torch, and what they were drawn from."""
    x = 3 * bench.normal(count, sizes.vocabulary_size, dtype=torch.float32)
    all_params = [replace(SAMPLING_KINDS[kind], seed=bench.seed + row) for row in range(count)]
    given = _given(bench, all_params)
    found = sample_tokens(x, *given).cpu().numpy()
    same = float((found == sample(x.cpu(), all_params).tokens).mean())
    # A sum of 128k numbers may round another way at a boundary.
    is_right = same >= 0.97 or not is_alike
    return {"same": same, "is_right": is_right}, x, given


def _given(bench: Bench, all_params: list[SamplingParams]) -> list[Tensor]:
    kinds: tuple[tuple[str, Any], ...] = (
        ("temperature", torch.float32),
        ("top_k", torch.int32),
        ("top_p", torch.float32),
        ("min_p", torch.float32),
    )
    given = [
        torch.tensor([getattr(it, name) for it in all_params]).to(dtype) for name, dtype in kinds
    ]
    return [it.to(bench.device) for it in (*given, torch.from_numpy(uniforms(all_params)))]


def _sorted(bench: Bench, sizes: ModelConfig, count: int) -> tuple[Tensor, SortedPairs]:
    order = torch.rand(count, sizes.num_experts, device=bench.device).argsort(-1)
    chosen = order[:, : sizes.experts_per_token].int().contiguous()
    return chosen.flatten(), SortedPairs.of(chosen, sizes.num_experts, bench.dtype)


def _least(x: Tensor, out_size: int, weights: Tensor, chosen: Tensor) -> tuple[float, float]:
    """Bytes and products of the experts that are chosen."""
    touched = int(chosen.unique().numel()) / len(weights)
    moved = touched * weights.nbytes + x.nbytes + len(chosen) * out_size * x.itemsize
    return moved, 2.0 * len(chosen) * weights.shape[1] * weights.shape[2]


def _spread(bench: Bench, sizes: ModelConfig, count: int) -> Job:
    x, size = bench.normal(count, sizes.hidden_size), sizes.ffn_size
    w1 = bench.normal(sizes.num_experts, 2 * size, sizes.hidden_size)
    w1 /= sizes.hidden_size**0.5  # a product of two sums must fit in float16
    chosen, pairs = _sorted(bench, sizes, count)

    def error() -> float:
        poison((len(chosen), size), dtype=x.dtype, device=bench.device)
        found, order = gated_gemm(x, w1, pairs), pairs.order.long()
        rows = x.double().repeat_interleave(sizes.experts_per_token, 0)[order]
        gate, up = _products(rows, w1, chosen[order]).chunk(2, -1)
        return distance(found, F.silu(gate) * up)

    return Job(lambda: gated_gemm(x, w1, pairs), error, *_least(x, size, w1, chosen))


def _collect(bench: Bench, sizes: ModelConfig, count: int) -> Job:
    chosen, pairs = _sorted(bench, sizes, count)
    x = bench.normal(len(chosen), sizes.ffn_size)
    w2 = bench.normal(sizes.num_experts, sizes.hidden_size, sizes.ffn_size)

    def error() -> float:
        poison((len(chosen), sizes.hidden_size), dtype=x.dtype, device=bench.device)
        order = pairs.order.long()
        found = scattered_gemm(x, w2, pairs)[order]
        return distance(found, _products(x.double(), w2, chosen[order]))

    least = _least(x, sizes.hidden_size, w2, chosen)
    return Job(lambda: scattered_gemm(x, w2, pairs), error, *least)


def _products(rows: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
    """Rows [pairs, depth] in float64, each times its expert's matrix."""
    size = len(rows), weights.shape[1]
    products = torch.empty(size, dtype=torch.float64, device=rows.device)
    for expert in experts.unique().tolist():
        mine = experts == expert
        products[mine] = rows[mine] @ weights[expert].double().T
    return products
