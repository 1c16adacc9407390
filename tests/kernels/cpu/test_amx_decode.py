"""Decode tokens read shared keys once by AMX, and get the bits that each gets alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from forkroot.kernels.cpu.attention.attention import CpuAttention
from forkroot.kernels.cpu.attention.decode import DecodeAttention
from forkroot.kernels.cpu.attention.in_place_plan import plan_in_place
from forkroot.kernels.cpu.jit import amx
from forkroot.kernels.cpu.work_items import AttentionOutput, DecodeItem, ScoreMod
from forkroot.kernels.interface import Past

from .test_attention import NUM_SLOTS, forest
from .test_bfloat_pools import assert_near, wanted_of
from .test_extend import queries

needs_tiles = pytest.mark.skipif(not amx.can_multiply(), reason="needs a processor with AMX")
TREES = st.lists(
    st.tuples(
        st.sampled_from([0, 63, 64, 200]),
        st.sampled_from([0, 1, 64, 130]),
        st.sampled_from([0, 5, 64, 100]),
    ),
    min_size=1,
    max_size=9,
)


def poisoned(rng: np.random.Generator, past: Past, kv_heads: int, dim: int) -> torch.Tensor:
    """A pool of bfloat16 in which all slots but those of the sequences hold NaN."""
    kv = torch.full((2, kv_heads, NUM_SLOTS, dim), torch.nan, dtype=torch.bfloat16)
    for row, end in zip(past.rows, past.starts + past.lens, strict=True):
        slots = torch.from_numpy(past.table[row, :end].astype(np.int64))
        numbers = rng.standard_normal((2, kv_heads, end, dim), np.float32)
        kv[:, :, slots] = torch.from_numpy(numbers).bfloat16()
    return kv


def item_of(past: Past, window: int | None = None) -> DecodeItem:
    (item,) = plan_in_place(past, window, has_runs=False).own
    assert isinstance(item, DecodeItem)
    return item


def read(
    past: Past, kv: torch.Tensor, q: torch.Tensor, score_mod: ScoreMod, num_threads: int = 1
) -> AttentionOutput:
    """By the loop for bfloat16 keys."""
    output = AttentionOutput.like(q)
    loop = DecodeAttention(num_threads, torch.bfloat16)
    loop.attend(q, kv, item_of(past), score_mod, output)
    return output


def single(past: Past, s: int) -> Past:
    """One of the sequences."""
    fields = (each[s : s + 1] for each in (past.rows, past.starts, past.lens))
    return Past(past.table, *fields)


@needs_tiles
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    TREES,
    st.sampled_from([32, 64, 96, 128]),
    st.sampled_from([1, 2, 3, 7, 20]),
    st.booleans(),
    st.sampled_from([None, 4.0]),
)
def test_a_token_gets_the_same_bits_alone_and_beside_others(
    tree: list[tuple[int, ...]], dim: int, group: int, is_adjacent: bool, softcap: float | None
) -> None:
    rng = np.random.default_rng(len(tree))
    past = forest(rng, [list(pieces) for pieces in tree], [1] * len(tree), is_adjacent)
    kv, q = poisoned(rng, past, 2, dim), queries(rng, past, 2 * group, dim)
    score_mod = ScoreMod(dim**-0.5, softcap)
    together = read(past, kv, q, score_mod)
    for s in range(len(tree)):
        alone = read(single(past, s), kv, q[s : s + 1], score_mod)
        assert torch.equal(alone.out[0], together.out[s])
        assert torch.equal(alone.lse[0], together.lse[s])
    assert_near(together.out, wanted_of(q, kv, past, dim**-0.5, None, softcap))


@needs_tiles
@pytest.mark.parametrize("count", [2, 9, 40, 130])
def test_many_tokens_of_one_prefix_get_the_numbers_of_plain_attention(count: int) -> None:
    rng = np.random.default_rng(count)
    past = forest(rng, [[192, s % 5] for s in range(count)], [1] * count, True)
    kv, q = poisoned(rng, past, 2, 64), queries(rng, past, 4, 64)
    assert_near(read(past, kv, q, ScoreMod(0.125, None)).out, wanted_of(q, kv, past, 0.125))


@needs_tiles
@pytest.mark.parametrize("num_threads", [2, 5])
def test_the_number_of_threads_does_not_change_the_result(num_threads: int) -> None:
    rng = np.random.default_rng(2)
    past = forest(rng, [[1500, 70 + s] for s in range(7)], [1] * 7, False)
    kv, q = poisoned(rng, past, 2, 128), queries(rng, past, 4, 128)
    one, several = (read(past, kv, q, ScoreMod(0.1, None), num) for num in (1, num_threads))
    assert torch.equal(one.out, several.out)
    assert torch.equal(one.lse, several.lse)


@needs_tiles
@pytest.mark.parametrize("step", [1, 3, 24])
def test_evenly_spaced_slots_are_read_where_they_are(step: int) -> None:
    rng = np.random.default_rng(step)
    table = (np.arange(150, dtype=np.int32) * step + 7)[None]
    assert table.max() < NUM_SLOTS
    past = Past(table, *(np.array([value], np.int32) for value in (0, 149, 1)))
    kv, q = poisoned(rng, past, 2, 64), queries(rng, past, 4, 64)
    assert_near(read(past, kv, q, ScoreMod(0.125, None)).out, wanted_of(q, kv, past, 0.125))


@needs_tiles
def test_windows_that_begin_at_different_keys_share_nothing_and_are_right() -> None:
    rng = np.random.default_rng(5)
    past = forest(rng, [[300, s] for s in range(6)], [1] * 6, True)
    attention = CpuAttention(torch.bfloat16)
    kv, q = poisoned(rng, past, 2, 64), queries(rng, past, 4, 64)
    found = attention.attend(q, kv, attention.plan(past, 128), 0.125)
    assert_near(found, wanted_of(q, kv, past, 0.125, 128))


def test_sequences_with_common_keys_are_neighbours_in_a_work_item() -> None:
    rng = np.random.default_rng(6)
    past = forest(rng, [[200, 70 + s % 2, s] for s in range(8)], [1] * 8, False)
    branch = [int(token) % 2 for token in item_of(past).tokens]
    assert branch in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)
