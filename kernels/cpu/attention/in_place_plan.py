"""Plans a step's attention as work items that compiled loops compute: no key is copied.

Made once a step and read by every layer. Knows slots and positions; computes no attention.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...interface import Past
from ...sharing import Run, find_runs
from ..jit.jit import compiled
from ..work_items import DecodeItem, ExtendItem, Indices, InPlaceItem, InPlacePlan

_BLOCK = 64  # keys that a decode loop reads at a time
JOINED = 32  # new tokens up to which a sequence reads a run together with others


def plan_in_place(past: Past, window: int | None = None, has_runs: bool = True) -> InPlacePlan:
    """Split a step into work items. has_runs: whether keys that sequences share may be read once
    for all, which sums in another order than for each sequence alone."""
    unshared = _unshared(past, window)
    if unshared is not None:
        return unshared
    if window is None or (past.starts + past.lens).max() <= window:
        return _Planner(past, None, has_runs).plan()
    return _Planner(_shifted(past, window), window, has_runs).plan()


def _shifted(past: Past, window: int) -> Past:
    """The same step with a new table, in which every sequence begins with the first token that one
    of its new tokens sees through a sliding window: the last `window` tokens up to itself."""
    ends = past.starts + past.lens
    lows = np.maximum(past.starts - window + 1, 0)
    columns = lows[:, None] + np.arange((ends - lows).max())
    table = past.table[past.rows[:, None], np.minimum(columns, ends[:, None] - 1)]
    return Past(table, np.arange(len(ends), dtype=np.int32), past.starts - lows, past.lens)


def _unshared(past: Past, window: int | None) -> InPlacePlan | None:
    """The plan of a decode step whose sequences share nothing, made in a third of the time; None
    for other steps."""
    table, count = past.table, len(past.rows)
    of_tokens, of_rows = np.empty((2, count), np.int64), np.empty((3, count), np.int32)
    given = table, past.rows, past.starts, past.lens, window or 0
    if not unshared_rows_loop()(*given, of_tokens, of_rows):
        return None
    (tokens, reads), (rows, firsts, ends) = of_tokens, of_rows
    return InPlacePlan((DecodeItem(tokens, table, rows, firsts, ends, reads),), ())


@functools.cache
def unshared_rows_loop() -> Callable[..., Any]:
    """The loop of `unshared_rows`, compiled the first time."""
    from ..loops import unshared_rows

    return compiled(unshared_rows.plan, unshared_rows.SIGNATURE, is_reordered=False)


class _Planner:
    """firsts: [S] each sequence's first token in the batch. ends: [S] tokens that it reads.
    offsets: [S] how many of these lie in runs; what follows is its own."""

    def __init__(self, past: Past, window: int | None, has_runs: bool) -> None:
        self._past = past
        self._window = window
        self._has_runs = has_runs
        self._firsts = (np.cumsum(past.lens) - past.lens).astype(np.int64)
        self._ends = past.starts + past.lens
        self._offsets = np.zeros(len(past.rows), np.int32)

    def plan(self) -> InPlacePlan:
        is_single = self._past.lens == 1
        found = find_runs(self._sharing(), is_single) if self._has_runs else ()
        runs = tuple(self._run(run) for run in found)
        single, several = np.flatnonzero(is_single), np.flatnonzero(~is_single)
        own: list[InPlaceItem] = [self._decode_item(single)] if len(single) else []
        own += [self._extend_item(several)] if len(several) else []
        return InPlacePlan(tuple(own), runs)

    def _sharing(self) -> Past:
        """The step as far as runs may cover it: not where windows end in them, nor what many new
        tokens of one sequence read by themselves as well."""
        is_unshared = self._past.lens > JOINED
        if self._window is not None:
            is_unshared |= self._ends > self._window
        if not is_unshared.any():
            return self._past
        return replace(self._past, starts=np.where(is_unshared, 0, self._past.starts))

    def _run(self, run: Run) -> ExtendItem:
        """A run of shared keys, which all new tokens of its sequences see. Moves their offsets."""
        sequences = np.array(run.sequences)
        self._offsets[sequences] = run.end
        num_tokens, num_keys = int(self._past.lens[sequences].sum()), len(run.slots)
        row, end = np.zeros(1, np.int32), np.array([num_keys], np.int32)
        bounds = np.array([0, num_tokens])
        tokens, num_scores = self._tokens(sequences), num_tokens * num_keys
        return ExtendItem(tokens, run.slots[None], row, row, end, end, bounds, None, num_scores)

    def _extend_item(self, group: Indices) -> ExtendItem:
        past, lens, ends = self._past, self._past.lens[group], self._ends[group]
        firsts = self._offsets[group]
        return ExtendItem(
            tokens=self._tokens(group),
            table=past.table,
            rows=past.rows[group],
            firsts=firsts,
            starts=past.starts[group],
            ends=ends,
            bounds=np.concatenate(([0], np.cumsum(lens))),
            window=self._window,
            num_scores=int((lens * (ends - firsts)).sum()),
        )

    def _decode_item(self, group: Indices) -> DecodeItem:
        if not self._has_runs:
            group = self._by_slots(group)
        firsts, ends = self._offsets[group], self._ends[group]
        rows, tokens = self._past.rows[group], self._firsts[group]
        return DecodeItem(tokens, self._past.table, rows, firsts, ends, np.cumsum(ends - firsts))

    def _by_slots(self, group: Indices) -> Indices:
        """Sequences in such an order that those with common keys are neighbours: loops read these
        keys once where that does not change the sums."""
        columns = np.arange(0, self._ends[group].max(), _BLOCK)
        slots = self._past.table[np.ix_(self._past.rows[group], columns)]
        return group[np.lexsort(slots.T[::-1])]

    def _tokens(self, group: Indices) -> Indices:
        """All new tokens of these sequences."""
        firsts, lens = self._firsts[group], self._past.lens[group]
        ends = np.cumsum(lens)
        return np.arange(ends[-1]) + np.repeat(firsts - ends + lens, lens)
