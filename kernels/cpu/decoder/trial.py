"""Tries fused layers on a small layer of random weights."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...backend import LayerSizes, LayerWeights, Matrix, Step
from ...interface import Past
from ...plain import PlainAttention
from ..attention.attention import CpuAttention
from ..attention.trial import DECODE, MIXED, NUM_SLOTS, TOLERANCES, past_of
from ..linear.rows import CompiledNorm
from ..trial import is_right
from .stack import Stack

_HIDDEN, _FFN, _KV_HEADS = 64, 128, 2
_ROUNDED = 2e-2  # where rows are rounded to bfloat16 before each product


@functools.cache
def is_stack_right(kind: Any, num_terms: int, dim: int, group: int, is_bf16_kv: bool) -> bool:
    """Whether layers that are computed by one call give what torch's operators give. kind,
    num_terms: the class of their matrices, a PackedLinear, and its terms. dim: of a head. group:
    heads of queries for each head of keys. Tried once for each of these."""
    sizes = LayerSizes(_KV_HEADS * group, _KV_HEADS, dim, _HIDDEN, _FFN, 1e-5)
    layer = _Layer.random(sizes)
    kernels = [kind(weight, known_terms=num_terms or None) for weight in layer.matrices]
    norms = [CompiledNorm(weight, sizes.eps) for weight in layer.norms]
    qkv, out, gate_up, down = (Matrix(kernel, None) for kernel in kernels)
    weights = LayerWeights(norms[0], None, norms[1], qkv, out, gate_up, down, 0)
    stack = Stack(sizes, [weights], None, is_bf16_kv)
    dtype = torch.bfloat16 if is_bf16_kv else torch.float32
    tolerance = max(TOLERANCES[dtype], _ROUNDED if kind.row_terms == 1 else 0.0)
    attention = CpuAttention(dtype, dim)
    for past in map(past_of, (DECODE, MIXED)):
        x = torch.randn(int(past.lens.sum()), _HIDDEN, generator=_random(1))
        expected = layer(x, past, _step(past, _Pool(dim, dtype), attention))
        found = partial(stack, x, _step(past, _Pool(dim, dtype), attention))
        if not is_right(f"layers ({dtype}, heads of {dim})", found, expected, tolerance):
            return False
    return True


class _Pool:
    """Keys and values of one layer."""

    def __init__(self, dim: int, dtype: torch.dtype) -> None:
        shape = 1, 2, _KV_HEADS, NUM_SLOTS, dim
        self.storage = torch.randn(shape, generator=_random(2)).to(dtype)
        self.layers = self.storage.unbind()

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """As `KVMemory.write`."""
        halves = kv.unflatten(1, (2, _KV_HEADS)).permute(1, 2, 0, 3)
        self.layers[layer][:, :, slots] = halves.to(self.storage.dtype)


class _Rotary:
    """Rotations by small angles."""

    def __init__(self, dim: int) -> None:
        self._frequencies = 1 / torch.arange(2.0, dim // 2 + 2)

    def angles(self, positions: Tensor) -> Tensor:
        """As `Rotary.angles`."""
        angles = positions.float()[:, None, None] * self._frequencies
        return torch.polar(torch.ones_like(angles), angles)

    def table(self, positions: Tensor) -> Tensor:
        """As `Rotary.table`."""
        return self.angles(torch.arange(int(positions.max()) + 1))


@dataclass(frozen=True, slots=True)
class _Layer:
    """A decoder layer by torch's operators. matrices: qkv, out, gate and up, down, with bfloat16
    numbers in float32. norms: before attention, and before the feed-forward."""

    sizes: LayerSizes
    matrices: tuple[Tensor, ...]
    norms: tuple[Tensor, ...]

    @classmethod
    def random(cls, sizes: LayerSizes) -> _Layer:
        """With random weights, about of the size that they have in models."""
        heads, random = sizes.num_heads, _random(0)
        attn_out, qkv = heads * sizes.dim, (heads + 2 * _KV_HEADS) * sizes.dim
        shapes = (qkv, _HIDDEN), (_HIDDEN, attn_out), (2 * _FFN, _HIDDEN), (_HIDDEN, _FFN)
        matrices = [torch.randn(shape, generator=random) * shape[1] ** -0.5 for shape in shapes]
        norms = [torch.rand(_HIDDEN, generator=random) + 0.5 for _ in range(2)]
        return cls(sizes, tuple(it.bfloat16().float() for it in matrices), tuple(norms))

    def __call__(self, x: Tensor, past: Past, step: Step) -> Tensor:
        """As `Layer`, with plain attention; x stays as it is."""
        sizes, plain = self.sizes, PlainAttention(torch.device("cpu"))
        qkv, out, gate_up, down = self.matrices
        new = (self._normed(x, 0) @ qkv.T).view(len(x), -1, sizes.dim)
        turned = sizes.num_heads + _KV_HEADS
        pairs = torch.view_as_complex(new[:, :turned].unflatten(2, (-1, 2)).contiguous())
        new[:, :turned] = torch.view_as_real(pairs * step.cos_sin).flatten(2)
        q, kv = new[:, : sizes.num_heads].contiguous(), new[:, sizes.num_heads :]
        step.pool.write(0, step.slots, kv)
        attended = plain.attend(q, step.pool.layers[0], plain.plan(past), sizes.dim**-0.5)
        x = x + attended.flatten(1) @ out.T
        gate, up = (self._normed(x, 1) @ gate_up.T).chunk(2, dim=1)
        return x + (F.silu(gate) * up) @ down.T

    def _normed(self, x: Tensor, index: int) -> Tensor:
        return F.rms_norm(x, (x.shape[1],), self.norms[index], self.sizes.eps)


def _step(past: Past, pool: _Pool, attention: CpuAttention) -> Step:
    """All new tokens of a step over a pool."""
    ends = (past.starts + past.lens).tolist()
    spans = list(zip(past.table, past.starts.tolist(), ends, strict=True))
    slots = np.concatenate([row[start:end] for row, start, end in spans]).astype(np.int64)
    positions = torch.cat([torch.arange(start, end) for _, start, end in spans])
    rotary, plans = _Rotary(pool.storage.shape[-1]), (attention.plan(past),)
    return Step(positions, torch.from_numpy(slots), plans, None, rotary, pool, attention)


def _random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
