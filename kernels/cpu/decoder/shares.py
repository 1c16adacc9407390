"""How the rows of a step are shared out among threads, and what each share attends to, as the loops
over layers read it (`blocks`). Shares by whole sequences need not wait for one another between
layers. Only on a CPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np

from ..attention.extend import NO_WINDOW
from ..loops import blocks
from ..work_items import DecodeItem, ExtendItem, Indices, InPlacePlan

TILE = 16  # rows that take about the time of one
MOST_OF_ROWS = 0.6  # of a share, of two: with more, others would wait too long for it
Share: TypeAlias = tuple[int, int]  # rows from the first to before the last


class Reading(NamedTuple):
    """What a share reads in the layers of one window. extends: with whether each is merged with
    what is there."""

    decode: DecodeItem | None
    extends: tuple[tuple[ExtendItem, bool], ...] = ()


def shares_of(num_rows: int, most: int) -> list[Share]:
    """At most so many shares of rows, as even as tiles are."""
    tiles = num_tiles(num_rows)
    num = max(1, min(most, tiles))
    return list(pairwise(min(num_rows, tiles * i // num * TILE) for i in range(num + 1)))


def num_tiles(num_rows: int) -> int:
    """Tiles of so many rows."""
    return -(-num_rows // TILE)


def by_sequences(plan: InPlacePlan, num_rows: int, num: int) -> list[Share] | None:
    """So many shares of whole sequences; None where these would be too uneven."""
    if num == 1:
        return [(0, num_rows)]
    starts = np.sort(np.concatenate([_firsts(item) for item in plan.own]))
    goals = num_rows * np.arange(1, num) / num
    after = np.searchsorted(starts, goals).clip(1, len(starts) - 1)
    is_nearer = goals - starts[after - 1] < starts[after] - goals
    borders = [0, *(starts[after - is_nearer]).tolist(), num_rows]
    shares = list(pairwise(borders))
    lens = [last - first for first, last in shares]
    return shares if min(lens) > 0 and max(lens) * num <= 2 * MOST_OF_ROWS * num_rows else None


def reading(plan: InPlacePlan, share: Share) -> Reading:
    """What a share of whole sequences reads, with its tokens counted from its first row."""
    decode, extends = None, list[tuple[ExtendItem, bool]]()
    for item in plan.own:
        if isinstance(item, DecodeItem):
            decode = in_rows(item, *share)
        elif (part := _sequences_in(item, *share)) is not None:
            extends.append((part, False))
    parts = [_tokens_in(run, *share) for run in plan.runs]
    extends += [(part, True) for part in parts if part is not None]
    return Reading(decode if decode is not None and len(decode.tokens) else None, tuple(extends))


def in_rows(item: DecodeItem, first: int, end: int) -> DecodeItem:
    """The part of an item whose tokens are in these rows, counted from the first one."""
    chosen = np.flatnonzero((item.tokens >= first) & (item.tokens < end))
    firsts, ends = item.firsts[chosen], item.ends[chosen]
    tokens, reads = item.tokens[chosen] - first, np.cumsum(ends - firsts)
    return DecodeItem(tokens, item.table, item.rows[chosen], firsts, ends, reads)


class Records:
    """The READ of a Reading, and the arrays that it refers to by address. entry: the address of the
    loop for its extend items; 0 where it has none."""

    def __init__(self, found: Reading, entry: int) -> None:
        self._held: list[object] = []
        self._items = np.zeros(len(found.extends), blocks.ITEM)
        for record, (item, is_merged) in zip(self._items, found.extends, strict=True):
            record["entry"], record["is_merged"] = entry, is_merged
            record["num_sequences"], record["num_tokens"] = len(item.rows), len(item.tokens)
            record["window"] = NO_WINDOW if item.window is None else item.window
            record["num_rows"], record["width"] = item.table.shape
            for name in ("table", "rows", "firsts", "starts", "ends"):
                record[name] = self._at(getattr(item, name), np.int32)
            for name in ("tokens", "bounds"):
                record[name] = self._at(getattr(item, name), np.int64)
        self.read = (*self._decode(found.decode), self._items.ctypes.data, len(self._items))

    def _decode(self, item: DecodeItem | None) -> tuple[int, ...]:
        if item is None:
            return (0,) * (len(blocks.READ.names or ()) - 2)
        spans = (self._at(it, np.int32) for it in (item.rows, item.firsts, item.ends))
        table = self._at(item.table, np.int32)
        return len(item.tokens), self._at(item.tokens, np.int64), table, *item.table.shape, *spans

    def _at(self, array: Indices, dtype: type) -> int:
        """The address of the same numbers, side by side."""
        found: Indices = np.ascontiguousarray(array, dtype)
        self._held.append(found)
        return found.ctypes.data


def _firsts(item: DecodeItem | ExtendItem) -> Indices:
    """The first token of each sequence."""
    return item.tokens if isinstance(item, DecodeItem) else item.tokens[item.bounds[:-1]]


def _sequences_in(item: ExtendItem, first: int, end: int) -> ExtendItem | None:
    firsts = _firsts(item)
    chosen = np.flatnonzero((firsts >= first) & (firsts < end))
    if len(chosen) == len(firsts):
        return item if first == 0 else replace(item, tokens=item.tokens - first)
    if not len(chosen):
        return None
    spans = [slice(*item.bounds[s : s + 2].tolist()) for s in chosen]
    return replace(
        item,
        tokens=np.concatenate([item.tokens[span] for span in spans]) - first,
        rows=item.rows[chosen],
        firsts=item.firsts[chosen],
        starts=item.starts[chosen],
        ends=item.ends[chosen],
        bounds=_bounds(it.stop - it.start for it in spans),
    )


def _tokens_in(run: ExtendItem, first: int, end: int) -> ExtendItem | None:
    """Of a run, of which every token reads all keys."""
    tokens = run.tokens[(run.tokens >= first) & (run.tokens < end)] - first
    return replace(run, tokens=tokens, bounds=np.array([0, len(tokens)])) if len(tokens) else None


def _bounds(lens: Iterable[int]) -> Indices:
    return np.cumsum([0, *lens])
