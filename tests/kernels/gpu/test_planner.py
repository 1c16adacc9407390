"""Plans of a step cover every key of every token once, and fit what recorded steps reserve."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from forkroot.kernels.gpu.attention.planner import Planner, StepItems
from forkroot.kernels.gpu.attention.static import StaticPlan
from forkroot.kernels.gpu.slot_table import SlotTable
from forkroot.kernels.interface import Past, StepShape

PLANNER = Planner(num_kv_heads=2, dtype=torch.bfloat16, group=4, num_programs=48)


def tree(rng: np.random.Generator, depth: int, lengths: list[int], news: list[int]) -> Past:
    """Sequences below a tree of shared prefixes of these lengths by depth, in which neighbours
    split in two at each."""
    num, next_slot = len(news), 0
    ends = np.zeros(num, np.int32)
    table = np.full((num + 1, depth * max(lengths) + 100), -1, np.int32)
    rows = rng.permutation(num + 1)[:num].astype(np.int32)

    def extend(members: np.ndarray, length: int) -> None:
        nonlocal next_slot
        start = int(ends[members[0]])
        table[rows[members], start : start + length] = np.arange(next_slot, next_slot + length)
        ends[members] += length
        next_slot += length

    for level in range(depth):
        for part in np.array_split(np.arange(num), 2**level):
            if len(part):
                extend(part, lengths[level % len(lengths)])
    for s, new in enumerate(news):
        extend(np.array([s]), int(rng.integers(0, 60)) + new)
    lens = np.array(news, np.int32)
    return Past(table, rows, ends - lens, lens)


def keys_of_tokens(past: Past, items: StepItems, window: int | None) -> dict[int, list[int]]:
    """The slots that each token reads by these items, and that its partial results are apart."""
    tokens: dict[int, list[int]] = {token: [] for token in range(int(past.lens.sum()))}
    targets: dict[int, list[int]] = {token: [] for token in tokens}
    for token, row, start, end, target in items.decodes.tolist():
        assert start < end
        tokens[token] += past.table[row, start:end].tolist()
        targets[token].append(target)
    for work in (items.roots, items.extends):
        is_seen = {
            (item, query)
            for item, first in work.tiles.tolist()
            for query in range(first, first + work.tile)
        }
        for index, (first, count, row, begin, num, causal, level) in enumerate(work.items.tolist()):
            for query in range(count):
                assert (index, query) in is_seen
                token = int(work.tokens[first + query])
                end = num - causal + query + 1 if causal else num
                low = max(end - window, 0) if window and work is items.extends else 0
                tokens[token] += past.table[row, begin + low : begin + end].tolist()
                targets[token].append(-1 if level < 0 else int(items.merges[token, 0]) + level)
    every = []
    for token, found in targets.items():
        first, count = items.merges[token].tolist()
        assert sorted(found) == (list(range(first, first + count)) if count else [-1])
        every += found if count else []
    assert sorted(every) == list(range(items.num_partials))
    return tokens


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(0, 5),
    st.lists(st.sampled_from([1, 40, 300, 700, 3000]), min_size=1, max_size=4),
    st.lists(st.sampled_from([1, 1, 1, 1, 2, 30]), min_size=1, max_size=24),
    st.sampled_from([None, 50, 2000]),
    st.booleans(),
)
def test_every_token_reads_each_of_its_keys_once(
    depth: int, lengths: list[int], news: list[int], window: int | None, is_static: bool
) -> None:
    past = tree(np.random.default_rng(depth), depth, lengths, news)
    num_tokens = int(past.lens.sum())
    static = StaticPlan(
        PLANNER, SlotTable(torch.device("cpu"), 0), StepShape(num_tokens, True, True), window
    )
    items = static.items(past) if is_static else PLANNER.items(past, window)
    assert items is not None
    found, first = keys_of_tokens(past, items, window), 0
    for row, start, new in zip(past.rows, past.starts, past.lens, strict=True):
        for token in range(new):
            end = start + token + 1
            seen = past.table[row, max(end - window, 0) if window else 0 : end]
            assert sorted(found[first + token]) == sorted(seen.tolist())
        first += new
    most = PLANNER.capacity(num_tokens)
    roots = items.roots
    assert len(items.decodes) + (past.lens > 1).sum() <= most.decodes
    assert items.num_partials <= most.partials
    assert len(roots.tokens) <= most.root_tokens
    assert len(roots.items) <= most.root_items
    assert len(roots.tiles) <= most.root_tiles
    if is_static:
        static.write(items, np.zeros(static.num_numbers, np.int32))


def test_a_long_sequence_is_split_over_programs_whatever_runs_beside_it() -> None:
    rng = np.random.default_rng(0)
    table = rng.permutation(40 * 9000).astype(np.int32).reshape(40, 9000)
    starts = np.array([8900] + [60] * 39, np.int32)
    past = Past(table, np.arange(40, dtype=np.int32), starts, np.ones(40, np.int32))
    counts = np.bincount(PLANNER.items(past, None).decodes[:, 0])
    assert counts[0] > 15 and counts[1:].tolist() == [1] * 39


def test_a_root_is_split_so_that_it_fills_the_device_and_no_further() -> None:
    past = tree(np.random.default_rng(1), 1, [16_000], [1] * 64)
    items = PLANNER.items(past, None)
    assert items.has_roots
    num_programs = len(items.roots.tiles) * PLANNER.num_kv_heads
    assert PLANNER.num_programs * 0.7 < num_programs <= PLANNER.num_programs + 8


def test_a_few_tokens_behind_a_long_prefix_are_split_by_its_keys() -> None:
    table = np.arange(20_000, dtype=np.int32)[None]
    one = np.zeros(1, np.int32)
    jump = Past(table, one, one + 16_000, one + 10)
    items = PLANNER.items(jump, None)
    assert len(items.extends.items) > 15 and items.num_partials == 10 * len(items.extends.items)
    chunk = PLANNER.items(Past(table, one, one + 8_000, one + 8_192), None)
    assert len(chunk.extends.items) == 1 and chunk.num_partials == 0


def test_prefixes_beyond_what_a_token_may_read_are_read_by_each_token() -> None:
    past = tree(np.random.default_rng(2), 10, [400], [1] * 4096)
    items, most = PLANNER.items(past, None), PLANNER.capacity(4096)
    assert 0.9 * most.root_tokens < len(items.roots.tokens) <= most.root_tokens
    assert items.num_partials <= most.partials
    own = items.decodes[:, 3] - items.decodes[:, 2]
    shared = items.roots.items[:, 1] * items.roots.items[:, 4]
    assert own.sum() + shared.sum() == (past.starts + 1).sum()


def test_decode_tokens_over_a_root_beside_a_long_chunk_take_memory_for_themselves_alone() -> None:
    planner = Planner(num_kv_heads=8, dtype=torch.bfloat16, group=4, num_programs=264)
    past = tree(np.random.default_rng(3), 1, [4000], [1] * 8)
    table = np.concatenate([past.table, np.arange(len(past.table[0]))[None]], dtype=np.int32)
    table = np.pad(table, ((0, 0), (0, 8192)))
    chunk = np.array([len(table) - 1], np.int32)
    rows = np.concatenate([past.rows, chunk])
    lens = np.array([1] * 8 + [8192], np.int32)
    items = planner.items(Past(table, rows, np.append(past.starts, np.int32(0)), lens), None)
    assert items.has_roots
    assert items.num_partials * 32 * 128 * 4 < 20e6  # bytes of an 8B model's partial results
