"""Keys and values in bfloat16: written rounded, and read as such by every loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from forkroot.kernels.cpu.attention.attention import CpuAttention
from forkroot.kernels.cpu.attention.decode import DecodeAttention, slot_writer
from forkroot.kernels.cpu.attention.extend import ExtendAttention
from forkroot.kernels.cpu.attention.in_place_plan import plan_in_place
from forkroot.kernels.cpu.jit import amx, pairs
from forkroot.kernels.cpu.work_items import AttentionOutput, DecodeItem, ExtendItem, ScoreMod
from forkroot.kernels.interface import Past
from forkroot.kernels.reference import attend

from .test_extend import NUM_SLOTS, queries
from .test_extend import poisoned as pool_of

needs_tiles = pytest.mark.skipif(not amx.can_multiply(), reason="needs a processor with AMX")


def scattered(rng: np.random.Generator, starts: list[int], lens: list[int], shared: int) -> Past:
    """Sequences in slots of any order, the first `shared` of which all have."""
    ends = np.add(starts, lens)
    table = np.full((len(starts), int(ends.max()) + 5), -1, np.int32)
    free = rng.permutation(NUM_SLOTS).astype(np.int32)
    root, own = free[:shared], np.split(free[shared:], np.cumsum(ends - shared))
    for row, end in enumerate(ends):
        table[row, :shared], table[row, shared:end] = root, own[row]
    rows = np.arange(len(starts), dtype=np.int32)
    return Past(table, rows, np.array(starts, np.int32), np.array(lens, np.int32))


def poisoned(rng: np.random.Generator, past: Past, kv_heads: int, dim: int) -> torch.Tensor:
    """As in `test_extend`, rounded."""
    return pool_of(rng, past, kv_heads, dim).bfloat16()


def wanted_of(
    q: torch.Tensor,
    kv: torch.Tensor,
    past: Past,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Plain attention; with instructions for such products, by queries and weights rounded to
    bfloat16, the latter relative to the next integer above the row maximum."""
    if not amx.can_multiply() and not pairs.can_multiply():
        return attend(q, kv.float(), past, scale, window, softcap)
    in_log2, cap = ScoreMod(scale, softcap).in_log2()
    outs, first, group = [], 0, q.shape[1] // kv.shape[1]
    for row, start, length in zip(past.rows, past.starts, past.lens, strict=True):
        slots = torch.from_numpy(past.table[row, : start + length].astype(np.int64))
        keys, values = kv[:, :, slots].double().repeat_interleave(group, 1)
        rounded = (q[first : first + length] * float(in_log2)).bfloat16().double()
        scores = torch.einsum("thd,hnd->thn", rounded, keys)
        scores = (scores / cap).tanh() * float(cap) if cap else scores
        at = torch.arange(start, start + length)[:, None] - torch.arange(start + length)
        is_hidden = (at < 0) | (at >= (window or len(slots)))
        scores = scores.masked_fill(is_hidden[:, None], -torch.inf)
        weights = (scores - scores.amax(-1, keepdim=True).ceil()).exp2()
        acc = torch.einsum("thn,hnd->thd", weights.float().bfloat16().double(), values)
        outs.append(acc / weights.sum(-1, keepdim=True))
        first += length
    return torch.cat(outs).float()


chunks = st.lists(
    st.tuples(st.sampled_from([0, 1, 63, 64, 130]), st.sampled_from([1, 2, 7, 33, 64, 150])),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    chunks,
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 3, 8]),
    st.sampled_from([1, 6, 32, 40, 64, 96]),
    st.sampled_from([None, 1, 20, 100]),
    st.sampled_from([None, 0.4, 30.0]),
    st.booleans(),
)
def test_a_step_over_bfloat16_keys_matches_plain_attention(
    chunks: list[tuple[int, int]],
    kv_heads: int,
    group: int,
    dim: int,
    window: int | None,
    softcap: float | None,
    is_shared: bool,
) -> None:
    rng = np.random.default_rng(len(chunks))
    starts = [start + 900 * is_shared // len(chunks) for start, _ in chunks]
    shared = 900 * is_shared // len(chunks)
    past = scattered(rng, starts, [length for _, length in chunks], shared)
    kv, q = poisoned(rng, past, kv_heads, dim), queries(rng, past, kv_heads * group, dim)
    attention = CpuAttention(torch.bfloat16)
    result = attention.attend(q, kv, attention.plan(past, window), dim**-0.5, softcap)
    wanted = wanted_of(q, kv, past, dim**-0.5, window, softcap)
    assert result.dtype is torch.float32
    assert_near(result, wanted)


def test_many_decode_tokens_read_a_shared_past_once_and_correctly() -> None:
    rng = np.random.default_rng(1)
    past = scattered(rng, [700 + 9 * i for i in range(12)], [1] * 12, 690)
    plan = plan_in_place(past)
    assert len(plan.runs) == 1
    kv, q = poisoned(rng, past, 2, 64), queries(rng, past, 4, 64)
    found = CpuAttention(torch.bfloat16).attend(q, kv, plan, 0.125)
    assert_near(found, wanted_of(q, kv, past, 0.125))


@needs_tiles
def test_a_sequence_gets_the_same_bits_alone_and_beside_others_that_share_its_past() -> None:
    rng = np.random.default_rng(7)
    lens = [1] * 9 + [3, 20, 40]
    past = scattered(rng, [700 + 9 * i for i in range(len(lens))], lens, 690)
    attention = CpuAttention(torch.bfloat16)
    kv, q = poisoned(rng, past, 2, 64), queries(rng, past, 4, 64)
    together = attention.attend(q, kv, attention.plan(past), 0.125)
    first = 0
    for s, length in enumerate(lens):
        fields = (item[s : s + 1] for item in (past.rows, past.starts, past.lens))
        each = Past(past.table, *fields)
        own = slice(first, first + length)
        alone = attention.attend(q[own], kv, attention.plan(each), 0.125)
        assert torch.equal(alone, together[own])
        first += length


@needs_tiles
@pytest.mark.parametrize("num_new", [2, 3, 30])
def test_a_few_tokens_get_the_bits_that_they_get_in_a_whole_prompt(num_new: int) -> None:
    rng = np.random.default_rng(8)
    whole, rest = scattered(rng, [0], [200], 0), 200 - num_new
    last = Past(whole.table, whole.rows, *np.array([[rest], [num_new]], np.int32))
    attention = CpuAttention(torch.bfloat16)
    kv, q = poisoned(rng, whole, 2, 64), queries(rng, whole, 4, 64)
    found = attention.attend(q[rest:], kv, attention.plan(last), 0.125)
    assert torch.equal(found, attention.attend(q, kv, attention.plan(whole), 0.125)[rest:])


def assert_near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """All but a few weights, whose sums may be rounded to the other side, are the same."""
    differences = (found - wanted).abs() / wanted.abs().max()
    assert differences.max() < 2**-7  # a weight near the middle may be rounded the other way
    assert differences.mean() < 6e-5


def item_of(past: Past, kind: type[DecodeItem] | type[ExtendItem]) -> DecodeItem | ExtendItem:
    (item,) = plan_in_place(past).own
    assert isinstance(item, kind)
    return item


@pytest.mark.parametrize("dim", [1, 6, 12, 40, 64, 128])
def test_every_loop_rounds_alike(dim: int) -> None:
    rng = np.random.default_rng(dim)
    several, single = scattered(rng, [0, 200], [90, 3], 0), scattered(rng, [70, 300], [1, 1], 0)
    readers: list[tuple[Past, Callable[..., None]]] = [
        (several, ExtendAttention(1, has_amx=False, dtype=torch.bfloat16).attend),
        (single, DecodeAttention(1, torch.bfloat16).attend),
    ]
    for past, read in readers:
        kv, q = poisoned(rng, past, 2, dim), queries(rng, past, 6, dim)
        output = AttentionOutput.like(q)
        read(q, kv, plan_in_place(past).own[0], ScoreMod(0.3, None), output)
        assert_near(output.out, wanted_of(q, kv, past, 0.3))


@needs_tiles
def test_the_lse_of_tiles_is_the_log_sum_exp_of_the_scores() -> None:
    rng = np.random.default_rng(1)
    past = scattered(rng, [70], [90], 0)
    kv, q = poisoned(rng, past, 2, 64), queries(rng, past, 4, 64).bfloat16().float()
    output = AttentionOutput.like(q)
    ExtendAttention(1, dtype=torch.bfloat16).attend(
        q, kv, item_of(past, ExtendItem), ScoreMod(0.125, None), output
    )
    keys = kv[0, :, past.table[0, :160]].double().repeat_interleave(2, 0)
    scaled = (q * np.float32(0.125 / np.log(2))).bfloat16().double() * np.log(2)
    scores = torch.einsum("thd,hnd->thn", scaled, keys)
    hidden = torch.ones(90, 160, dtype=torch.bool).triu(71)[:, None]
    wanted = scores.masked_fill(hidden, -torch.inf).logsumexp(-1)
    assert (output.lse - wanted).abs().max() < 1e-5


@needs_tiles
@pytest.mark.parametrize("num_threads", [2, 3, 7])
def test_the_number_of_threads_does_not_change_the_result(num_threads: int) -> None:
    rng = np.random.default_rng(3)
    past = scattered(rng, [0, 300, 5], [500, 70, 3], 0)
    kv, q = poisoned(rng, past, 2, 32), queries(rng, past, 6, 32)
    item = item_of(past, ExtendItem)
    alone, several = AttentionOutput.like(q), AttentionOutput.like(q)
    ExtendAttention(1, dtype=torch.bfloat16).attend(q, kv, item, ScoreMod(0.2, None), alone)
    ExtendAttention(num_threads, dtype=torch.bfloat16).attend(
        q, kv, item, ScoreMod(0.2, None), several
    )
    assert torch.equal(several.out, alone.out)
    assert torch.equal(several.lse, alone.lse)


@needs_tiles
def test_chunked_prefill_by_tiles_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(4)
    past = scattered(rng, [0], [300], 0)
    kv, q = poisoned(rng, past, 2, 64), queries(rng, past, 4, 64)
    reader = ExtendAttention(1, dtype=torch.bfloat16)
    whole = AttentionOutput.like(q)
    reader.attend(q, kv, item_of(past, ExtendItem), ScoreMod(0.125, None), whole)
    for first, end in ((0, 20), (20, 67), (67, 200), (200, 300)):
        some = Past(past.table, past.rows, *np.array([[first], [end - first]], np.int32))
        piece = AttentionOutput.like(q[first:end])
        reader.attend(q[first:end], kv, item_of(some, ExtendItem), ScoreMod(0.125, None), piece)
        assert torch.equal(piece.out, whole.out[first:end])


@needs_tiles
def test_a_sequence_with_nan_changes_no_other() -> None:
    rng = np.random.default_rng(5)
    past = scattered(rng, [40, 40], [60, 45], 0)
    kv, q = poisoned(rng, past, 2, 64), queries(rng, past, 4, 64)
    attention = CpuAttention(torch.bfloat16)
    plan = attention.plan(past)
    clean = attention.attend(q, kv, plan, 0.125)
    kv[:, :, past.table[0, 99]] = torch.nan
    found = attention.attend(q, kv, plan, 0.125)
    assert found[59].isnan().all()
    assert torch.equal(found[60:], clean[60:])


@pytest.mark.parametrize("dim", [1, 7, 64])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_what_is_written_is_rounded_to_the_nearest(
    dim: int, given: torch.dtype, stored: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(dim)
    kv = torch.randn(3, 5, dim, generator=random).to(given)[:, 1:]
    kv[1, 2, 0], kv[2, 0, 0] = torch.nan, torch.inf
    pool = torch.zeros(4, 9, dim, dtype=stored)
    slot_writer(stored)(pool, torch.tensor([7, 0, 3]), kv)
    for token, slot in enumerate((7, 0, 3)):
        assert torch.equal(pool[:, slot].nan_to_num(7), kv[token].to(stored).nan_to_num(7))
    assert not pool[:, [1, 2, 4, 5, 6, 8]].any()
