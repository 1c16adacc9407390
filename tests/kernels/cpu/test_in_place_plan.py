"""How a step is planned as work items: which keys each token reads."""

from __future__ import annotations

import numpy as np
import pytest

from forkroot.kernels.cpu.attention.in_place_plan import plan_in_place
from forkroot.kernels.cpu.work_items import DecodeItem
from forkroot.kernels.interface import Past

TABLE = np.arange(400, dtype=np.int32)[::-1].copy().reshape(4, 100)


def past(*starts: int, lens: tuple[int, ...] | None = None) -> Past:
    """New tokens, one each by default, of sequences that share nothing."""
    counts = np.array(lens or (1,) * len(starts), np.int32)
    return Past(TABLE, np.arange(len(starts), dtype=np.int32), np.array(starts, np.int32), counts)


def decode_item(past: Past, window: int | None) -> DecodeItem:
    """The work item of decode tokens."""
    plan = plan_in_place(past, window)
    assert not plan.runs
    assert isinstance(plan.own[0], DecodeItem)
    return plan.own[0]


def read_by_first(item: DecodeItem) -> list[int]:
    """The slots that the first token reads."""
    row = item.table[item.rows[0]]
    return row[item.firsts[0] : item.ends[0]].tolist()


@pytest.mark.parametrize("window", [None, 1, 8, 31, 99])
@pytest.mark.parametrize("start", [0, 1, 7, 8, 30, 98])
def test_a_token_reads_the_same_alone_and_beside_others(start: int, window: int | None) -> None:
    seen = TABLE[0, : start + 1].tolist()[-(window or 100) :]
    for batch in (past(start), past(start, 50), past(start, 50, lens=(1, 2))):
        assert read_by_first(decode_item(batch, window)) == seen


@pytest.mark.parametrize("window", [None, 8])
def test_decode_items_have_the_dtypes_that_loops_take(window: int | None) -> None:
    one, two = decode_item(past(40), window), decode_item(past(40, 50), window)
    other = decode_item(past(40, 50, lens=(1, 2)), window)
    for name in ("tokens", "table", "rows", "firsts", "ends", "reads"):
        types = {getattr(item, name).dtype for item in (one, two, other)}
        assert len(types) == 1, name
    assert one.reads.tolist() == other.reads.tolist() == two.reads[:1].tolist()


def test_sequences_may_have_any_rows_of_the_table() -> None:
    rows, starts, lens = (np.array(each, np.int32) for each in ((2, 0), (5, 9), (1, 1)))
    item = decode_item(Past(TABLE, rows, starts, lens), 8)
    assert item.tokens.tolist() == [0, 1]
    assert item.rows.tolist() == [2, 0]
    assert item.firsts.tolist() == [0, 2]
    assert item.ends.tolist() == [6, 10]
    assert item.reads.tolist() == [6, 14]


def test_keys_that_decode_tokens_share_are_read_once() -> None:
    table = np.tile(np.arange(2000, dtype=np.int32), (40, 1))
    starts, rows = np.full(40, 1999, np.int32), np.arange(40, dtype=np.int32)
    table[:, 1999] = 2000 + rows
    plan = plan_in_place(Past(table, rows, starts, np.ones(40, np.int32)))
    assert [len(run.table[0]) for run in plan.runs] == [1999]
