"""Cuts one step's attention into parts that torch's operators compute: keys are copied, but for
those that lie in adjacent slots.

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
from ..parts import CopiedPart, CopiedPlan, Indices, Keys, LongPart, ShortPart, Tokens
from .windows import blocks, is_reached, mask, shifted

SHORT = 16  # new tokens up to which sequences are computed together
MAX_GATHER = 1 << 13  # slots gathered at once
MAX_WASTE = 1 << 10  # of these, padding


def first_rows(num_kv_heads: int, num_slots: int) -> Indices:
    """[2, kv_heads] where each head's keys and values begin in a pool seen as rows."""
    num_rows = 2 * num_kv_heads * num_slots
    heads = np.arange(0, num_rows, num_slots).reshape(2, num_kv_heads)
    return heads.astype(np.int32 if num_rows < 2**31 else np.int64)


def cut(past: Past, heads: Indices, window: int | None = None) -> CopiedPlan:
    """Cut a step into parts for pools whose heads begin at rows `heads`, see `first_rows`."""
    if window is None or not is_reached(past, window):
        return _Cutter(past, heads, None).plan()
    return _Cutter(shifted(past, window), heads, window).plan()


class _Cutter:
    """firsts: [S] each sequence's first token in the batch. ends: [S] tokens that it reads.
    offsets: [S] how many of these lie in runs; what follows is its own.
    is_cut: [S] whether its new tokens do not all see the same of the past."""

    def __init__(self, past: Past, heads: Indices, window: int | None) -> None:
        self._past = past
        self._heads = heads
        self._window = window
        self._masks: dict[tuple[int, int], Tensor] = {}
        self._firsts = np.cumsum(past.lens) - past.lens
        self._ends = past.starts + past.lens
        self._offsets = np.zeros(len(past.rows), np.int32)
        self._is_cut = np.zeros(len(past.rows), bool)
        if window is not None:
            self._is_cut |= self._ends > window

    def plan(self) -> CopiedPlan:
        runs = [self._run(run) for run in find_runs(self._sharing())]
        own: list[CopiedPart] = []
        is_short = (self._past.lens <= SHORT) & ~self._is_cut
        alone = np.flatnonzero(~is_short).tolist()
        for group in self._groups(np.flatnonzero(is_short)):
            if len(group) > 1:
                own.append(self._short(group))
            else:
                alone += group.tolist()
        for s in alone:
            own += self._blocks(s) if self._is_cut[s] else [self._chunk(s, runs)]
        return CopiedPlan(tuple(own), tuple(runs))

    def _sharing(self) -> Past:
        """The step as far as runs may cover it: not where windows end in them."""
        if not self._is_cut.any():
            return self._past
        return replace(self._past, starts=np.where(self._is_cut, 0, self._past.starts))

    def _run(self, run: Run) -> LongPart:
        """A run, which all new tokens of its sequences see; it moves their offsets."""
        sequences = list(run.sequences)
        self._offsets[sequences] = run.end
        if len(sequences) == len(self._offsets):
            return LongPart(None, self._keys(run.slots))
        if len(sequences) == 1:
            return LongPart(self._tokens(sequences[0]), self._keys(run.slots))
        firsts, lens = self._firsts.tolist(), self._past.lens.tolist()
        spans = [np.arange(firsts[s], firsts[s] + lens[s]) for s in sequences]
        return LongPart(torch.from_numpy(np.concatenate(spans)), self._keys(run.slots))

    def _chunk(self, s: int, runs: list[LongPart]) -> LongPart:
        """One sequence's own part; if it is of several tokens, they see each other in it, and what
        they see of the past goes to the runs."""
        row = self._past.table[self._past.rows[s]]
        offset, start, end = (int(x[s]) for x in (self._offsets, self._past.starts, self._ends))
        if end - start == 1:
            return LongPart(self._tokens(s), self._keys(row[offset:end]))
        if offset < start:
            runs.append(LongPart(self._tokens(s), self._keys(row[offset:start])))
        return LongPart(self._tokens(s), self._keys(row[start:end]), is_causal=True)

    def _blocks(self, s: int) -> list[LongPart]:
        """The parts of a sequence that is cut, each under a mask."""
        assert self._window is not None
        row, first = self._past.table[self._past.rows[s]], int(self._firsts[s])
        parts = []
        for it in blocks(int(self._past.starts[s]), int(self._past.lens[s]), self._window):
            shape = it.end - it.first, it.stop - it.start
            if shape not in self._masks:
                self._masks[shape] = mask(*shape, self._window)
            tokens = slice(first + it.first, first + it.end)
            keys = self._keys(row[it.start : it.stop])
            parts.append(LongPart(tokens, keys, mask=self._masks[shape]))
        return parts

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

    def _short(self, group: Indices) -> ShortPart:
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
        return ShortPart(tokens, len(group), torch.from_numpy(index.ravel()), _mask(seen, slots))

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
    """Where to cut descending numbers of keys, so that no group has or wastes too many, padded to
    its longest."""
    found, start, waste = [], 0, 0
    for i, count in enumerate(num_keys):
        waste += num_keys[start] - count
        if waste > most_waste or (i + 1 - start) * num_keys[start] > most:
            if i > start:
                found.append(i)
            start, waste = i, 0
    return found
