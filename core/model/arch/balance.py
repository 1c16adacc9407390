"""Scales columns of queries, keys and values by powers of two to similar sizes.

Keys may be scaled where queries are scaled back, and values where the output's matrix scales back:
by powers of two, that changes no bit of any product. It is done once, to weights. Loops that round
all of a row to one unit (`kernels.cpu.loops.int8_extend_attention`) then lose nothing to a few
columns far above the others, as biases make them. What is done follows from a layer's weights
alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MIN_SIZE, _MAX_BITS = 1e-30, 16  # a column of zeros stays what it is


def balance(
    qkv: Tensor, bias: Tensor | None, norms: Tensor | None, out: Tensor, num_heads: int
) -> Tensor:
    """Scale qkv [(heads + 2 kv_heads) * dim, in], its bias, and norms [heads + kv_heads, dim] of
    queries and keys, in place; adjacent pairs are rotated. Returns a new out
    [hidden, num_heads * dim], or `out` itself if nothing changes."""
    dim = out.shape[1] // num_heads
    num_kv_heads = (qkv.shape[0] // dim - num_heads) // 2
    num_rotary = num_heads + num_kv_heads
    sizes = _row_sizes(qkv, bias).view(-1, dim)
    rows = torch.ones_like(sizes)
    rotary_sizes = sizes[:num_rotary] if norms is None else norms.abs()
    rotary = torch.cat(rotary_scales(*rotary_sizes.split((num_heads, num_kv_heads))))
    if norms is None:
        rows[:num_rotary] = rotary
    else:
        norms *= rotary
    rows[num_rotary:] = values = value_scales(sizes[num_rotary:])
    if (rows == 1).all():
        return out
    qkv *= rows.view(-1, 1)
    if bias is not None:
        bias *= rows.view(-1)
    return out / values.repeat_interleave(num_heads // num_kv_heads, 0).view(-1)


def rotary_scales(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of queries and keys of these sizes [heads, dim], [kv_heads, dim] that make both
    similar in every pair of columns."""
    group = len(queries) // len(keys)
    means = queries.view(len(keys), group, -1).pow(2).mean(1).sqrt()
    bits = (_pairs(means).log2() - _pairs(keys).log2()) / 2
    scales = _powers_of_two(bits - _median(bits)).repeat_interleave(2, -1)
    return (1 / scales).repeat_interleave(group, 0), scales


def value_scales(values: Tensor) -> Tensor:
    """Factors of values of these sizes [kv_heads, dim] that make their columns similar."""
    bits = values.clamp(min=_MIN_SIZE).log2()
    return _powers_of_two(_median(bits) - bits)


def _row_sizes(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Output sizes of a layer for inputs of size 1: [out]."""
    sizes = torch.linalg.vector_norm(weight, dim=1)
    return sizes if bias is None else torch.hypot(sizes, bias)


def _pairs(sizes: Tensor) -> Tensor:
    return sizes.view(len(sizes), -1, 2).pow(2).sum(-1).sqrt().clamp(min=_MIN_SIZE)


def _median(bits: Tensor) -> Tensor:
    """The median of each head, so that most columns keep their scale."""
    return bits.median(-1, keepdim=True).values


def _powers_of_two(bits: Tensor) -> Tensor:
    return bits.round().clamp(-_MAX_BITS, _MAX_BITS).exp2()
