"""Powers of two by which what attention reads is brought to like sizes, column by column.

Keys may be scaled where queries are scaled back, and values where the output's matrix scales back:
by powers of two, that changes no bit of any product. It is done once, to weights. Loops that round
all of a row to one unit (`kernels.cpu.loops.int8_extend_attention`) then lose nothing to a few
columns far above the others, as biases make them. What is done follows from a layer's weights
alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST, _MOST_BITS = 1e-30, 16  # a column of zeros stays what it is


def balance(
    qkv: Tensor, bias: Tensor | None, norms: Tensor | None, out: Tensor, num_heads: int
) -> Tensor:
    """Scale qkv [(heads + 2 kv_heads) * dim, in], its bias, and norms [heads + kv_heads, dim] of
    queries and keys, in place; pairs of neighbours are turned. Of out [hidden, num_heads * dim] a
    new matrix is given, or itself where nothing is to be done."""
    dim = out.shape[1] // num_heads
    num_kv_heads = (qkv.shape[0] // dim - num_heads) // 2
    num_turned = num_heads + num_kv_heads
    sizes = _row_sizes(qkv, bias).view(-1, dim)
    rows = torch.ones_like(sizes)
    turned = sizes[:num_turned] if norms is None else norms.abs()
    both = torch.cat(turned_shares(*turned.split((num_heads, num_kv_heads))))
    if norms is None:
        rows[:num_turned] = both
    else:
        norms *= both
    rows[num_turned:] = values = value_shares(sizes[num_turned:])
    if (rows == 1).all():
        return out
    qkv *= rows.view(-1, 1)
    if bias is not None:
        bias *= rows.view(-1)
    return out / values.repeat_interleave(num_heads // num_kv_heads, 0).view(-1)


def turned_shares(queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """By what queries and keys of such sizes [heads, dim], [kv_heads, dim] are multiplied, so that
    both are of like size in every pair of columns."""
    group = len(queries) // len(keys)
    means = queries.view(len(keys), group, -1).pow(2).mean(1).sqrt()
    bits = (_pairs(means).log2() - _pairs(keys).log2()) / 2
    shares = _powers(bits - _usual(bits)).repeat_interleave(2, -1)
    return (1 / shares).repeat_interleave(group, 0), shares


def value_shares(values: Tensor) -> Tensor:
    """By what values of such sizes [kv_heads, dim] are multiplied, so that they are alike."""
    bits = values.clamp(min=_LEAST).log2()
    return _powers(_usual(bits) - bits)


def _row_sizes(weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a layer gives for inputs of size 1: [out]."""
    sizes = torch.linalg.vector_norm(weight, dim=1)
    return sizes if bias is None else torch.hypot(sizes, bias)


def _pairs(sizes: Tensor) -> Tensor:
    return sizes.view(len(sizes), -1, 2).pow(2).sum(-1).sqrt().clamp(min=_LEAST)


def _usual(bits: Tensor) -> Tensor:
    """Of each head: most columns are to stay what they are."""
    return bits.median(-1, keepdim=True).values


def _powers(bits: Tensor) -> Tensor:
    return bits.round().clamp(-_MOST_BITS, _MOST_BITS).exp2()
