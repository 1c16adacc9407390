"""Columns of like size change no product, and leave ordinary weights as they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from forkroot.core.model.arch.balance import balance, rotary_scales, value_scales

HEADS, KV_HEADS, DIM, HIDDEN = 4, 2, 64, 96


def weights(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """qkv, bias, out."""
    random = torch.Generator().manual_seed(seed)
    rows = (HEADS + 2 * KV_HEADS) * DIM
    qkv = torch.randn(rows, HIDDEN, generator=random)
    return (
        qkv,
        torch.randn(rows, generator=random),
        torch.randn(HIDDEN, HEADS * DIM, generator=random),
    )


def parts(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    heads = qkv.view(-1, DIM, *qkv.shape[1:])
    queries, keys, values = heads.split((HEADS, KV_HEADS, KV_HEADS))
    group = HEADS // KV_HEADS
    return queries, keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0)


def test_ordinary_weights_stay_as_they_are() -> None:
    qkv, bias, out = weights()
    norms = torch.rand(HEADS + KV_HEADS, DIM, generator=torch.Generator().manual_seed(1)) + 0.6
    found = qkv.clone(), bias.clone(), norms.clone()
    assert balance(found[0], found[1], None, out, HEADS) is out
    assert balance(found[0], found[1], found[2], out, HEADS) is out
    for one, before in zip(found, (qkv, bias, norms), strict=True):
        assert torch.equal(one, before)


@pytest.mark.parametrize("has_bias", [True, False])
def test_products_are_the_same_to_the_last_bit(has_bias: bool) -> None:
    qkv, bias, out = weights(2)
    kv = qkv.view(-1, DIM, HIDDEN)[HEADS:]
    kv[:, 10:12] *= 300
    kv[:KV_HEADS, 7] = 0
    bias.view(-1, DIM)[HEADS:, 40] += 500
    found, found_bias = qkv.clone(), bias.clone()
    found_out = balance(found, found_bias if has_bias else None, None, out, HEADS)
    assert not torch.equal(found, qkv)
    (q, k, v), (new_q, new_k, new_v) = parts(qkv), parts(found)
    assert torch.equal(new_q * new_k, q * k)
    columns, new_columns = out.view(HIDDEN, HEADS, DIM), found_out.view(HIDDEN, HEADS, DIM)
    for i in range(HIDDEN):
        assert torch.equal(new_v[..., i] * new_columns[i], v[..., i] * columns[i])
    if has_bias:
        (q, k, v), (new_q, new_k, new_v) = parts(bias), parts(found_bias)
        assert torch.equal(new_q * new_k, q * k)
        assert torch.equal(new_v * new_columns[0], v * columns[0])
        assert new_k.abs().max() < 100 < k.abs().max()


def test_norms_of_heads_are_scaled_in_the_place_of_queries_and_keys() -> None:
    qkv, _, out = weights(3)
    norms = torch.ones(HEADS + KV_HEADS, DIM)
    norms[HEADS:, 20:22] = 64
    found, found_norms = qkv.clone(), norms.clone()
    assert balance(found, None, found_norms, out, HEADS) is not None
    assert torch.equal(found, qkv)
    assert (found_norms[:, 20:22] == 8).all()
    assert (found_norms[:, 22:] == 1).all()


def test_pairs_that_are_rotated_together_are_scaled_alike() -> None:
    random = torch.Generator().manual_seed(4)
    queries, keys = (torch.rand(n, DIM, generator=random).exp2() for n in (HEADS, KV_HEADS))
    keys[0, 5], keys[1, 8:10], queries[3, 12:14] = 1000.0, 0.001, 5000.0
    of_queries, of_keys = rotary_scales(queries, keys)
    assert torch.equal(of_queries * of_keys.repeat_interleave(2, 0), torch.ones(HEADS, DIM))
    assert torch.equal(of_keys[:, ::2], of_keys[:, 1::2])
    assert (of_keys.frexp().mantissa == 0.5).all()
    assert (of_keys[0, 4:6] < 0.1).all()
    assert (of_keys[1, 8:10] > 8).all()
    assert (of_keys[1, 12:14] > 8).all()
    assert (of_keys[:, 14:] == 1).all()


def test_values_become_alike() -> None:
    sizes = torch.rand(KV_HEADS, DIM, generator=torch.Generator().manual_seed(5)) + 1
    sizes[0, 3], sizes[1, 4], sizes[1, 5] = 700.0, 0.002, 0.0
    scales = value_scales(sizes)
    assert (scales.frexp().mantissa == 0.5).all()
    alike = (scales * sizes)[sizes > 0]
    assert alike.max() / alike.min() < 4
    assert scales.isfinite().all()
