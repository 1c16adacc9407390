"""Plans a step's attention as work items that torch's operators compute: keys are gathered into
copies, except those in adjacent slots.

Made once a step and read by every layer. Knows slots and positions; computes no attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...interface import Ints, Past
from ...sharing import Run, find_runs
from ..work_items import (
    GatheredItem,
    GatheredPlan,
    Indices,
    Keys,
    PaddedItem,
    SharedKeysItem,
    Tokens,
)
from .windows import blocks, is_reached, mask, shifted

SHORT = 16  # new tokens up to which sequences are computed together
MAX_GATHER = 1 << 13  # slots gathered at a time
MAX_WASTE = 1 << 10  # of these, padding


def first_rows(num_kv_heads: int, num_slots: int) -> Indices:
    """[2, kv_heads] where each head's keys and values begin in a pool seen as rows."""
    num_rows = 2 * num_kv_heads * num_slots
    heads = np.arange(0, num_rows, num_slots).reshape(2, num_kv_heads)
    return heads.astype(np.int32 if num_rows < 2**31 else np.int64)


def plan_gathered(past: Past, heads: Indices, window: int | None = None) -> GatheredPlan:
    """Split a step into work items for pools whose heads begin at rows `heads` (`first_rows`)."""
    if window is None or not is_reached(past, window):
        return _Planner(past, heads, None).plan()
    return _Planner(shifted(past, window), heads, window).plan()


class _Planner:
    """firsts: [S] each sequence's first token in the batch. ends: [S] tokens that it reads.
    offsets: [S] how many of these lie in runs; the rest is its own. is_windowed: [S] whether its
    new tokens see different parts of the past."""

    def __init__(self, past: Past, heads: Indices, window: int | None) -> None:
        self._past = past
        self._heads = heads
        self._window = window
        self._masks: dict[tuple[int, int], Tensor] = {}
        self._firsts = np.cumsum(past.lens) - past.lens
        self._ends = past.starts + past.lens
        self._offsets = np.zeros(len(past.rows), np.int32)
        self._is_windowed = np.zeros(len(past.rows), bool)
        if window is not None:
            self._is_windowed |= self._ends > window

    def plan(self) -> GatheredPlan:
        runs = [self._run(run) for run in find_runs(self._sharing())]
        own: list[GatheredItem] = []
        is_short = (self._past.lens <= SHORT) & ~self._is_windowed
        alone = np.flatnonzero(~is_short).tolist()
        for group in self._groups(np.flatnonzero(is_short)):
            if len(group) > 1:
                own.append(self._padded(group))
            else:
                alone += group.tolist()
        for s in alone:
            own += self._blocks(s) if self._is_windowed[s] else [self._own_item(s, runs)]
        return GatheredPlan(tuple(own), tuple(runs))

    def _sharing(self) -> Past:
        """The step as far as runs may cover it: not where windows end in them."""
        if not self._is_windowed.any():
            return self._past
        return replace(self._past, starts=np.where(self._is_windowed, 0, self._past.starts))

    def _run(self, run: Run) -> SharedKeysItem:
        """A run of shared keys, which all new tokens of its sequences see. Moves their offsets."""
        sequences = list(run.sequences)
        self._offsets[sequences] = run.end
        if len(sequences) == len(self._offsets):
            return SharedKeysItem(None, self._keys(run.slots))
        if len(sequences) == 1:
            return SharedKeysItem(self._tokens(sequences[0]), self._keys(run.slots))
        firsts, lens = self._firsts.tolist(), self._past.lens.tolist()
        spans = [np.arange(firsts[s], firsts[s] + lens[s]) for s in sequences]
        return SharedKeysItem(torch.from_numpy(np.concatenate(spans)), self._keys(run.slots))

    def _own_item(self, s: int, runs: list[SharedKeysItem]) -> SharedKeysItem:
        """One sequence's own tokens; if it has several, they see each other in this item, and the
        past that they see becomes a run."""
        row = self._past.table[self._past.rows[s]]
        offset, start, end = (int(x[s]) for x in (self._offsets, self._past.starts, self._ends))
        if end - start == 1:
            return SharedKeysItem(self._tokens(s), self._keys(row[offset:end]))
        if offset < start:
            runs.append(SharedKeysItem(self._tokens(s), self._keys(row[offset:start])))
        return SharedKeysItem(self._tokens(s), self._keys(row[start:end]), is_causal=True)

    def _blocks(self, s: int) -> list[SharedKeysItem]:
        """The items of a windowed sequence, each under a mask."""
        assert self._window is not None
        row, first = self._past.table[self._past.rows[s]], int(self._firsts[s])
        items = []
        for it in blocks(int(self._past.starts[s]), int(self._past.lens[s]), self._window):
            shape = it.end - it.first, it.stop - it.start
            if shape not in self._masks:
                self._masks[shape] = mask(*shape, self._window)
            tokens = slice(first + it.first, first + it.end)
            keys = self._keys(row[it.start : it.stop])
            items.append(SharedKeysItem(tokens, keys, mask=self._masks[shape]))
        return items

    def _groups(self, sequences: Indices) -> Iterator[Indices]:
        """Sequences that are computed together: with one new token or with several, and with about
        as many keys each."""
        is_single = self._past.lens[sequences] == 1
        for group in (sequences[is_single], sequences[~is_single]):
            num_keys = self._ends[group] - self._offsets[group]
            padded = len(group) * int(num_keys.max(initial=0))
            if padded <= MAX_GATHER and padded - num_keys.sum() <= MAX_WASTE:
                yield from ([group] if len(group) else [])
                continue
            order = np.argsort(-num_keys, kind="stable")
            yield from np.split(
                group[order], borders(num_keys[order].tolist(), MAX_GATHER, MAX_WASTE)
            )

    def _padded(self, group: Indices) -> PaddedItem:
        lens, offsets = self._past.lens[group], self._offsets[group]
        num_keys, num_new = self._ends[group] - offsets, int(lens.max())
        columns = np.arange(num_keys.max()) + offsets[:, None]
        columns = np.minimum(columns, self._ends[group, None] - 1)  # padding: any slot of its own
        slots = self._past.table[self._past.rows[group, None], columns]  # [S, n]
        new = np.minimum(np.arange(num_new), lens[:, None] - 1)  # [S, L]
        is_even = (lens == num_new).all() and (np.diff(group) > 0).all()
        is_all = is_even and len(group) == len(self._offsets)
        tokens = None if is_all else torch.from_numpy((self._firsts[group, None] + new).ravel())
        seen = (num_keys - lens)[:, None] + new + 1  # [S, L] keys that each token sees
        index = self._heads[:, None, :, None] + slots[None, :, None, :]
        return PaddedItem(tokens, len(group), torch.from_numpy(index.ravel()), _mask(seen, slots))

    def _tokens(self, s: int) -> Tokens:
        if len(self._offsets) == 1:
            return None
        first = int(self._firsts[s])
        return slice(first, first + int(self._past.lens[s]))

    def _keys(self, slots: Ints) -> Keys:
        first = int(slots[0])
        if int(slots[-1]) - first == len(slots) - 1 and (np.diff(slots) == 1).all():
            return Keys(first, len(slots), None)
        index = torch.from_numpy((self._heads[:, :, None] + slots).ravel())
        return Keys(first, len(slots), index)


def _mask(seen: Indices, slots: Ints) -> Tensor | None:
    """[S, 1, L, 1, n]: -inf behind the first `seen` [S, L] keys; None if there is none such."""
    num_keys = slots.shape[1]
    if int(seen.min()) == num_keys:
        return None
    is_hidden = np.arange(num_keys) >= seen[..., None]
    mask = np.where(is_hidden, np.float32(-np.inf), np.float32(0))
    return torch.from_numpy(mask[:, None, :, None, :])


def borders(num_keys: list[int], most: int, most_waste: int) -> list[int]:
    """Where to split descending numbers of keys, so that no group has or wastes too many, padded to
    its longest."""
    found, start, waste = [], 0, 0
    for i, count in enumerate(num_keys):
        waste += num_keys[start] - count
        if waste > most_waste or (i + 1 - start) * num_keys[start] > most:
            if i > start:
                found.append(i)
            start, waste = i, 0
    return found
