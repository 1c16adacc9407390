"""How a step is cut into parts: what each token reads."""

from __future__ import annotations

import numpy as np
import pytest

from forkroot.kernels import Past
from forkroot.kernels.inplace import cut_in_place
from forkroot.kernels.parts import InPlacePlan, TokenPart

TABLE = np.arange(400, dtype=np.int32)[::-1].copy().reshape(4, 100)


def past(*starts: int) -> Past:
    """Single new tokens of sequences that share nothing."""
    lens = np.ones(len(starts), np.int32)
    return Past(TABLE, np.arange(len(starts), dtype=np.int32), np.array(starts, np.int32), lens)


def read_by_first(plan: InPlacePlan) -> list[int]:
    """The slots that the first token reads."""
    (part,) = plan.own
    assert isinstance(part, TokenPart)
    assert not plan.runs
    row = part.table[part.rows[0]]
    return row[part.firsts[0] : part.ends[0]].tolist()


@pytest.mark.parametrize("window", [None, 1, 8, 31, 99])
@pytest.mark.parametrize("start", [0, 1, 7, 8, 30, 99])
def test_a_token_alone_reads_what_it_reads_beside_others(start: int, window: int | None) -> None:
    alone, others = cut_in_place(past(start), window), cut_in_place(past(start, 50), window)
    seen = TABLE[0, : start + 1].tolist()
    assert read_by_first(alone) == read_by_first(others) == seen[-(window or len(seen)) :]


@pytest.mark.parametrize("window", [None, 8])
def test_a_part_of_one_token_has_the_types_that_loops_want(window: int | None) -> None:
    (one,), (two,) = (cut_in_place(it, window).own for it in (past(40), past(40, 50)))
    assert isinstance(one, TokenPart)
    assert isinstance(two, TokenPart)
    for name in ("tokens", "table", "rows", "firsts", "ends", "reads"):
        assert getattr(one, name).dtype == getattr(two, name).dtype, name
    assert one.reads.tolist() == two.reads[:1].tolist()
