"""Extend attention against the plain attention, over slots in any order."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.kernels.cpu.attention.attention import CpuAttention
from forkroot.kernels.cpu.attention.extend import ExtendAttention
from forkroot.kernels.cpu.attention.in_place_plan import plan_in_place
from forkroot.kernels.cpu.work_items import (
    LONG,
    AttentionOutput,
    ExtendItem,
    InPlacePlan,
    ScoreMod,
    narrowed,
)
from forkroot.kernels.interface import Narrowing, Past
from forkroot.kernels.reference import attend

NUM_SLOTS = 3000


def scattered(rng: np.random.Generator, starts: list[int], lens: list[int]) -> Past:
    """Sequences with nothing in common, in slots of any order."""
    ends = np.add(starts, lens)
    table = np.full((len(starts) + 2, int(ends.max()) + 5), -1, np.int32)
    rows = rng.permutation(len(table))[: len(starts)].astype(np.int32)
    free = rng.permutation(NUM_SLOTS)
    for row, slots, end in zip(rows, np.split(free, np.cumsum(ends))[:-1], ends, strict=True):
        table[row, :end] = slots
    return Past(table, rows, np.array(starts, np.int32), np.array(lens, np.int32))


def poisoned(rng: np.random.Generator, past: Past, kv_heads: int, dim: int) -> torch.Tensor:
    """A pool in which all slots but those of the sequences hold NaN."""
    kv = torch.full((2, kv_heads, NUM_SLOTS, dim), torch.nan)
    for row, end in zip(past.rows, past.starts + past.lens, strict=True):
        slots = torch.from_numpy(past.table[row, :end].astype(np.int64))
        kv[:, :, slots] = torch.from_numpy(rng.standard_normal((2, kv_heads, end, dim), np.float32))
    return kv


def queries(rng: np.random.Generator, past: Past, heads: int, dim: int) -> torch.Tensor:
    """As a model gives them: a part of each token's heads."""
    every = rng.standard_normal((int(past.lens.sum()), heads + 3, dim), np.float32)
    return torch.from_numpy(every)[:, 1:-2]


def read(
    q: torch.Tensor,
    kv: torch.Tensor,
    item: ExtendItem,
    scale: float,
    softcap: float | None = None,
    num_threads: int = 1,
) -> AttentionOutput:
    output = AttentionOutput.like(q)
    ExtendAttention(num_threads).attend(q, kv, item, ScoreMod(scale, softcap), output)
    return output


def extend_item(past: Past, window: int | None = None) -> ExtendItem:
    (item,) = plan_in_place(past, window).own
    assert isinstance(item, ExtendItem)
    return item


chunks = st.lists(
    st.tuples(st.sampled_from([0, 1, 63, 64, 130]), st.sampled_from([2, 7, 33, 64, 150])),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    chunks,
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 3, 8]),
    st.sampled_from([1, 6, 12, 40, 64]),
    st.sampled_from([None, 1, 20, 100]),
    st.sampled_from([None, 0.4, 30.0]),
)
def test_ragged_extends_match_plain_attention(
    chunks: list[tuple[int, int]],
    kv_heads: int,
    group: int,
    dim: int,
    window: int | None,
    softcap: float | None,
) -> None:
    rng = np.random.default_rng(len(chunks))
    past = scattered(rng, [start for start, _ in chunks], [length for _, length in chunks])
    kv, q = poisoned(rng, past, kv_heads, dim), queries(rng, past, kv_heads * group, dim)
    attention = CpuAttention(torch.float32)
    result = attention.attend(q, kv, attention.plan(past, window), dim**-0.5, softcap)
    wanted = attend(q, kv, past, dim**-0.5, window, softcap)
    assert (result - wanted).abs().max() < 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("softcap", [None, 5.0])
def test_lse_is_the_log_sum_exp_of_the_scores(softcap: float | None) -> None:
    rng = np.random.default_rng(1)
    past = scattered(rng, [70], [90])
    kv, q = poisoned(rng, past, 2, 16), queries(rng, past, 4, 16)
    _, lse = read(q, kv, extend_item(past), 0.25, softcap)
    keys = kv[0, :, past.table[past.rows[0], :160]].double().repeat_interleave(2, 0)
    scores = torch.einsum("thd,hnd->thn", q.double(), keys) * 0.25
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    hidden = torch.ones(90, 160, dtype=torch.bool).triu(71)[:, None]
    wanted = scores.masked_fill(hidden, -math.inf).logsumexp(-1)
    assert (lse - wanted).abs().max() < 2e-6


@pytest.mark.parametrize("scale", [1e-6, 60.0, 1e6])
def test_scores_of_any_size_get_correct_weights(scale: float) -> None:
    rng = np.random.default_rng(2)
    past = scattered(rng, [200], [40])
    kv, q = poisoned(rng, past, 1, 8), queries(rng, past, 2, 8)
    kv[0] = kv[0].round()  # scores without rounding, which a great scale would magnify
    result, _ = read(q.round(), kv, extend_item(past), scale)
    assert (result - attend(q.round(), kv, past, scale)).abs().max() < 3e-5


@pytest.mark.parametrize("window", [None, 50])
def test_the_number_of_threads_does_not_change_the_result(window: int | None) -> None:
    rng = np.random.default_rng(3)
    past = scattered(rng, [0, 300, 5], [500, 70, 3])
    kv, q = poisoned(rng, past, 2, 32), queries(rng, past, 6, 32)
    item = extend_item(past, window)
    alone = read(q, kv, item, 0.2)
    for num_threads in (2, 3, 7):
        several = read(q, kv, item, 0.2, num_threads=num_threads)
        assert torch.equal(several[0], alone[0])
        assert torch.equal(several[1], alone[1])


def test_chunked_prefill_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(4)
    past = scattered(rng, [0], [300])
    kv, q = poisoned(rng, past, 2, 16), queries(rng, past, 4, 16)
    whole = read(q, kv, extend_item(past), 0.25).out
    for first, end in ((0, 2), (2, 67), (67, 200), (200, 300)):
        bounds = np.array([[first], [end - first]], np.int32)
        some = Past(past.table, past.rows, *bounds)
        piece = read(q[first:end], kv, extend_item(some), 0.25).out
        assert torch.equal(piece, whole[first:end])


def test_strided_queries_give_the_same_result() -> None:
    rng = np.random.default_rng(6)
    past = scattered(rng, [50], [19])
    kv, q = poisoned(rng, past, 2, 16), queries(rng, past, 4, 16)
    strided = torch.stack([q, torch.full_like(q, torch.nan)], -1).flatten(-2)[..., ::2]
    assert strided.stride(-1) == 2
    for num in (19, 4):  # a tile of many queries, and one of few
        item = extend_item(Past(past.table, past.rows, past.starts, np.array([num], np.int32)))
        wanted = read(q[:num], kv, item, 0.25)
        found = read(strided[:num], kv, item, 0.25)
        assert torch.equal(found.out, wanted.out)
        assert torch.equal(found.lse, wanted.lse)


def test_a_poisoned_key_is_seen_by_later_tokens_of_its_own_sequence_only() -> None:
    rng = np.random.default_rng(5)
    past = scattered(rng, [90, 90], [80, 80])
    kv, q = poisoned(rng, past, 1, 8), queries(rng, past, 2, 8)
    kv[0, :, past.table[past.rows[0], 0]] = torch.nan
    is_bad = read(q, kv, extend_item(past), 0.3).out.isnan().all(-1).all(-1)
    assert is_bad.tolist() == [True] * 80 + [False] * 80


LENS = [1, 5, 90, LONG, 12, 2 * LONG]
LASTS = (np.cumsum(LENS) - 1).tolist()


@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("dim", [16, 64, 128])
@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        (LASTS, [1, 5, 1, 1, 12, 1]),
        ([LASTS[0], LASTS[3]], [1, 5, 0, 1, 12, 0]),
        ([LASTS[3], LASTS[2], LASTS[3]], [1, 5, 1, 1, 12, 0]),  # in any order, and twice
        ([LASTS[2] - 1, LASTS[2]], [1, 5, 90, 0, 12, 0]),
        ([], [1, 5, 0, 0, 12, 0]),
    ],
)
def test_wanted_tokens_get_the_same_bits_from_a_narrowed_plan(
    wanted: list[int], left: list[int], dim: int, window: int | None
) -> None:
    rng = np.random.default_rng(dim)
    past = scattered(rng, [70, 65, 130, 0, 90, 64], LENS)
    kv, q = poisoned(rng, past, 2, dim), queries(rng, past, 6, dim)
    attention = CpuAttention(torch.float32)
    assert isinstance(attention, Narrowing)
    plan = attention.plan(past, window)
    less = attention.narrowed(plan, np.array(wanted, np.int64))
    assert isinstance(less, InPlacePlan)
    tokens = np.concatenate([item.tokens for item in less.own])
    sequences = np.repeat(np.arange(len(LENS)), LENS)
    assert np.bincount(sequences[tokens], minlength=len(LENS)).tolist() == left
    found, whole = (attention.attend(q, kv, each, dim**-0.5) for each in (less, plan))
    assert torch.equal(found[wanted], whole[wanted])


def test_items_that_a_run_is_merged_into_are_not_narrowed() -> None:
    item = extend_item(scattered(np.random.default_rng(7), [200], [LONG]))
    last = np.array([LONG - 1])
    (left,) = narrowed(InPlacePlan((item,), (item,)), last).own
    assert left is item
    (left,) = narrowed(InPlacePlan((item,), ()), last).own
    assert left.tokens.tolist() == [LONG - 1]
