"""Rows of a batch in groups that model code with a cache of one length can compute."""

from __future__ import annotations

import numpy as np

from forkroot.core.model.transformers.groups import MOST_TOKENS, grouped
from forkroot.kernels.interface import Past


def past_of(starts: list[int], lens: list[int]) -> Past:
    """Rows in order, whose slots are 1,000 times the row plus the position."""
    width = max(start + count for start, count in zip(starts, lens, strict=True))
    table = np.arange(len(starts))[:, None] * 1000 + np.arange(width)
    rows = np.arange(len(starts), dtype=np.int32)
    return Past(table.astype(np.int32), rows, np.array(starts, np.int32), np.array(lens, np.int32))


def rows_of(past: Past, can_pad: bool) -> list[list[int]]:
    """The rows of each group, known by the slot of their last token."""
    return [(group.slots[:, -1] // 1000).tolist() for group in grouped(past, can_pad)]


def test_rows_with_as_many_new_tokens_share_a_group_padded_on_the_left() -> None:
    (group,) = grouped(past_of([5, 3, 4], [2, 2, 2]), can_pad=True)
    assert group.past_len == 5
    assert group.padding.tolist() == [0, 1, 2]
    assert group.tokens.tolist() == [[0, 1], [4, 5], [2, 3]]
    assert group.slots.tolist() == [
        [0, 1, 2, 3, 4, 5, 6],
        [2004, 2000, 2001, 2002, 2003, 2004, 2005],  # padded with a slot that is written
        [1003, 1003, 1000, 1001, 1002, 1003, 1004],
    ]


def test_without_padding_only_rows_with_pasts_of_one_length_share_a_group() -> None:
    past = past_of([5, 3, 5, 3], [1, 1, 1, 1])
    assert rows_of(past, can_pad=False) == [[0, 2], [1, 3]]
    assert rows_of(past, can_pad=True) == [[0, 2, 1, 3]]


def test_every_token_is_in_one_group_whatever_is_mixed() -> None:
    random = np.random.default_rng(0)
    for can_pad in (True, False):
        past = past_of(random.integers(0, 400, 40).tolist(), random.integers(1, 5, 40).tolist())
        groups = list(grouped(past, can_pad))
        tokens = np.concatenate([group.tokens.ravel() for group in groups])
        assert sorted(tokens.tolist()) == list(range(int(past.lens.sum())))
        for group in groups:
            assert (group.slots[:, 0] // 1000 == group.slots[:, -1] // 1000).all()


def test_a_short_row_is_not_padded_to_a_long_one() -> None:
    assert rows_of(past_of([400, 100, 390], [1, 1, 1]), can_pad=True) == [[0, 2], [1]]


def test_a_group_reads_so_many_tokens_at_most() -> None:
    count = MOST_TOKENS // 900 + 5
    groups = list(grouped(past_of([899] * count, [1] * count), can_pad=True))
    assert [len(group.slots) for group in groups] == [MOST_TOKENS // 900, 5]
