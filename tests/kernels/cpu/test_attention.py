"""The CPU's attention against the plain one, on random trees of slots."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.kernels.cpu.attention import decode
from forkroot.kernels.cpu.attention.attention import CpuAttention
from forkroot.kernels.cpu.attention.decode import DecodeAttention, slot_writer
from forkroot.kernels.cpu.work_items import AttentionOutput, ScoreMod
from forkroot.kernels.devices import Pool, attention_for
from forkroot.kernels.interface import Attention, Past
from forkroot.kernels.plain import PlainAttention
from forkroot.kernels.reference import attend
from forkroot.kernels.sharing import find_runs

NUM_SLOTS = 16_000
DIM = 16


def forest(
    rng: np.random.Generator, lengths: list[list[int]], news: list[int], is_adjacent: bool
) -> Past:
    """Sequences that share the pieces of past that `lengths` names alike: sequence s goes through
    pieces of these lengths, and pieces of equal index and length of neighbours are the same."""
    free = np.arange(NUM_SLOTS) if is_adjacent else rng.permutation(NUM_SLOTS)
    table = np.full((len(lengths) + 3, 2500), -1, np.int32)
    rows = rng.permutation(len(table))[: len(lengths)].astype(np.int32)
    used, known = 0, {}
    starts = []
    for s, pieces in enumerate(lengths):
        end = 0
        for depth in range(len(pieces)):
            key = tuple(pieces[: depth + 1])
            if key not in known:
                known[key] = free[used : used + pieces[depth]]
                used += pieces[depth]
            table[rows[s], end : end + pieces[depth]] = known[key]
            end += pieces[depth]
        table[rows[s], end : end + news[s]] = free[used : used + news[s]]
        used += news[s]
        starts.append(end)
    return Past(table, rows, np.array(starts, np.int32), np.array(news, np.int32))


def pool(
    rng: np.random.Generator, past: Past, kv_heads: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Keys and values in which every slot that no sequence reads is poisoned."""
    kv = torch.full((2, kv_heads, NUM_SLOTS, DIM), torch.nan)
    for row, end in zip(past.rows, past.starts + past.lens, strict=True):
        slots = torch.from_numpy(past.table[row, :end].astype(np.int64))
        values = rng.standard_normal((2, kv_heads, end, DIM), np.float32)
        kv[:, :, slots] = torch.from_numpy(values)
    return kv.to(dtype)


def difference(
    rng: np.random.Generator,
    past: Past,
    heads: int,
    kv_heads: int,
    attention: Attention,
    window: int | None = None,
    softcap: float | None = None,
) -> float:
    kv = pool(rng, past, kv_heads)
    all_heads = rng.standard_normal((past.lens.sum(), heads + 3, DIM), np.float32)
    q = torch.from_numpy(all_heads)[:, 1:-2]
    if window is not None:
        poison_what_nobody_sees(kv, past, window)
    result = attention.attend(q, kv, attention.plan(past, window), DIM**-0.5, softcap)
    assert result.shape == q.shape
    return float((result - attend(q, kv, past, DIM**-0.5, window, softcap)).abs().max())


def poison_what_nobody_sees(kv: torch.Tensor, past: Past, window: int) -> None:
    rows = list(zip(past.rows, past.starts, past.lens, strict=True))
    seen = {int(i) for row, s, n in rows for i in past.table[row, max(s - window + 1, 0) : s + n]}
    read = {int(i) for row, s, n in rows for i in past.table[row, : s + n]}
    kv[:, :, sorted(read - seen)] = torch.nan


def on_cpu() -> CpuAttention:
    return CpuAttention(torch.float32)


pieces = st.lists(st.sampled_from([1, 2, 7, 70, 800]), max_size=2)
sequences = st.lists(st.tuples(pieces, st.sampled_from([1, 1, 1, 2, 5, 16, 17, 40])), min_size=1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sequences.filter(lambda s: len(s) <= 9),
    st.booleans(),
    st.sampled_from([1, 2, 4]),
)
def test_work_items_add_up_to_plain_attention(
    sequences: list[tuple[list[int], int]], is_adjacent: bool, kv_heads: int
) -> None:
    rng = np.random.default_rng(len(sequences))
    lengths, news = [list(s[0]) for s in sequences], [s[1] for s in sequences]
    past = forest(rng, lengths, news, is_adjacent)
    assert difference(rng, past, 4, kv_heads, on_cpu()) < 2e-6
    plain = PlainAttention(torch.device("cpu"))
    assert difference(rng, past, 4, kv_heads, plain) < 2e-6


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sequences.filter(lambda s: len(s) <= 9),
    st.booleans(),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 5, 64, 300, 3000]),
    st.sampled_from([None, 2.0]),
)
def test_windows_and_softcaps_are_those_of_plain_attention(
    sequences: list[tuple[list[int], int]],
    is_adjacent: bool,
    kv_heads: int,
    window: int,
    softcap: float | None,
) -> None:
    rng = np.random.default_rng(len(sequences))
    lengths, news = [list(s[0]) for s in sequences], [s[1] for s in sequences]
    past = forest(rng, lengths, news, is_adjacent)
    ours = on_cpu()
    assert difference(rng, past, 4, kv_heads, ours, window, softcap) < 2e-6
    plain = PlainAttention(torch.device("cpu"))
    assert difference(rng, past, 4, kv_heads, plain, window, softcap) < 2e-6


@pytest.mark.parametrize("softcap", [None, 1.5])
def test_a_long_extend_under_a_window_is_split_into_blocks(softcap: float | None) -> None:
    rng = np.random.default_rng(5)
    past = forest(rng, [[900], [20], []], [300, 1, 700], True)
    assert difference(rng, past, 4, 2, on_cpu(), 200, softcap) < 2e-6


def test_branches_share_what_their_windows_have_in_common() -> None:
    rng = np.random.default_rng(6)
    past = forest(rng, [[1200, 10 + s, 20 - s] for s in range(12)], [1] * 12, False)
    plan = on_cpu().plan(past, 1000)
    assert [int(item.ends[0]) for item in plan.runs] == [969]
    assert difference(rng, past, 4, 2, on_cpu(), 1000) < 2e-6


@pytest.mark.parametrize("is_adjacent", [True, False])
@pytest.mark.parametrize("news", [[1] * 12, [1, 30] * 6, [3, 1, 2] * 4])
def test_branches_of_branches_are_read_once(news: list[int], is_adjacent: bool) -> None:
    rng = np.random.default_rng(1)
    lengths = [[400, 200 + s % 2, 5 + s] for s in range(12)]
    past = forest(rng, lengths, news, is_adjacent)
    runs = list(find_runs(past))
    assert [len(run.sequences) for run in runs] == [12, 6, 6]
    assert [run.end - run.start for run in runs[:1]] == [400]
    assert difference(rng, past, 4, 2, on_cpu()) < 2e-6


def test_many_uneven_sequences_match_plain_attention() -> None:
    rng = np.random.default_rng(2)
    past = forest(rng, [[3 + 17 * s] for s in range(24)] + [[700]], [1] * 25, False)
    assert difference(rng, past, 4, 2, on_cpu()) < 2e-6


@pytest.mark.parametrize("num_threads", [2, 3, 16])
def test_threads_share_decode_tokens(num_threads: int) -> None:
    rng = np.random.default_rng(7)
    past = forest(rng, [[2000], [1900], [1950], [1980], [1700]], [1] * 5, False)
    kv, q = pool(rng, past, 4), torch.randn(5, 8, DIM)
    item = on_cpu().plan(past).own[0]
    alone, several = AttentionOutput.like(q), AttentionOutput.like(q)
    DecodeAttention(1).attend(q, kv, item, ScoreMod(0.5, None), alone)
    DecodeAttention(num_threads).attend(q, kv, item, ScoreMod(0.5, None), several)
    assert torch.equal(several.out, alone.out)
    assert torch.equal(several.lse, alone.lse)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from([0, 1, 62, 63, 64, 130, 700]), min_size=1, max_size=5),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([1, 6, 12, 40, 64, 128]),
    st.sampled_from([None, 0.4, 30.0]),
)
def test_decode_matches_plain_attention(
    starts: list[int], kv_heads: int, group: int, dim: int, softcap: float | None
) -> None:
    rng = np.random.default_rng(len(starts))
    past = forest(rng, [[start] for start in starts], [1] * len(starts), False)
    kv = torch.from_numpy(rng.standard_normal((2, kv_heads, NUM_SLOTS, dim), np.float32))
    every = rng.standard_normal((len(starts), kv_heads * group + 3, dim), np.float32)
    q = torch.from_numpy(every)[:, 1:-2]
    attention = on_cpu()
    result = attention.attend(q, kv, attention.plan(past), dim**-0.5, softcap)
    assert (result - attend(q, kv, past, dim**-0.5, softcap=softcap)).abs().max() < 1e-5


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("scale", [1e-6, 0.25, 1e4])
def test_decode_gives_the_log_sum_exp_of_its_scores(scale: float, softcap: float | None) -> None:
    rng = np.random.default_rng(8)
    past = forest(rng, [[150], [70]], [1, 1], False)
    kv, q = pool(rng, past, 2).round(), torch.randn(2, 4, DIM).round()
    (item,), output = on_cpu().plan(past).own, AttentionOutput.like(q)
    DecodeAttention(1).attend(q, kv, item, ScoreMod(scale, softcap), output)
    for s in range(2):
        slots = past.table[past.rows[s], : past.starts[s] + 1].astype(np.int64)
        keys = kv[0][:, torch.from_numpy(slots)].double().repeat_interleave(2, 0)
        scores = torch.einsum("hd,hnd->hn", q[s].double(), keys) * scale
        if softcap is not None:
            scores = (scores / softcap).tanh() * softcap
        wanted = scores.logsumexp(-1)
        assert torch.allclose(output.lse[s].double(), wanted, rtol=1e-6, atol=2e-6)


def test_new_keys_and_values_are_written_to_their_slots() -> None:
    pool, kv = torch.full((4, 9, DIM), torch.nan), torch.randn(3, 6, DIM)[:, 1:-1]
    slot_writer(torch.float32)(pool, torch.tensor([7, 0, 3]), kv)
    assert torch.equal(pool[:, [7, 0, 3]].transpose(0, 1), kv)
    assert pool[:, [1, 2, 4, 5, 6, 8]].isnan().all()


def test_pools_that_loops_cannot_read_get_plain_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = [Pool(torch.device("cpu"), dtype, 9, 1, 8) for dtype in (torch.float16, torch.float32)]
    assert [type(attention_for(pool)) for pool in pools] == [CpuAttention, CpuAttention]
    monkeypatch.setattr(decode, "has", lambda *names: False)
    assert [type(attention_for(pool)) for pool in pools] == [PlainAttention, CpuAttention]
    monkeypatch.setattr(decode, "can_compile", lambda: False)
    assert [type(attention_for(pool)) for pool in pools] == [PlainAttention, PlainAttention]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_the_plain_result(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(3)
    past = forest(rng, [[600, 4 + s] for s in range(4)] + [[33]], [1, 1, 1, 20, 2], True)
    kv = pool(rng, past, 2, dtype)
    q = torch.from_numpy(rng.standard_normal((25, 4, DIM), np.float32)).to(dtype)
    attention = CpuAttention(dtype)
    result = attention.attend(q, kv, attention.plan(past), DIM**-0.5)
    assert result.dtype == dtype
    assert (result - attend(q, kv, past, DIM**-0.5)).abs().max() < 0.03


def test_a_sequence_with_nan_changes_no_other() -> None:
    rng = np.random.default_rng(4)
    past = forest(rng, [[600, 10 + s] for s in range(6)], [1, 1, 20, 1, 3, 1], True)
    kv = pool(rng, past, 2)
    kv[:, :, past.table[past.rows[3], 605]] = torch.nan
    q = torch.from_numpy(rng.standard_normal((27, 4, DIM), np.float32))
    attention = on_cpu()
    is_bad = attention.attend(q, kv, attention.plan(past), DIM**-0.5).isnan().any(-1).any(-1)
    assert is_bad.nonzero().flatten().tolist() == [22]
