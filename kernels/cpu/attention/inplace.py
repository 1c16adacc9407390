"""Cuts one step's attention into parts that compiled loops compute: no key is copied.

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
from ..parts import ChunkPart, Indices, InPlacePart, InPlacePlan, TokenPart
from .windows import is_reached, shifted

JOINED = 32  # new tokens up to which a sequence has others join it in reading a run


def cut_in_place(past: Past, window: int | None = None, has_runs: bool = True) -> InPlacePlan:
    """Cut a step into parts. has_runs: whether what sequences share may be read once for all, which
    takes its sums in another order than each for itself."""
    apart = _apart(past, window)
    if apart is not None:
        return apart
    if window is None or not is_reached(past, window):
        return _Cutter(past, None, has_runs).plan()
    return _Cutter(shifted(past, window), window, has_runs).plan()


def _apart(past: Past, window: int | None) -> InPlacePlan | None:
    """The same for single tokens of sequences that share nothing, made in a third of the time;
    None for others."""
    table, count = past.table, len(past.rows)
    of_tokens, of_rows = np.empty((2, count), np.int64), np.empty((3, count), np.int32)
    given = table, past.rows, past.starts, past.lens, window or 0
    if not stranger_loop()(*given, of_tokens, of_rows):
        return None
    (tokens, reads), (rows, firsts, ends) = of_tokens, of_rows
    return InPlacePlan((TokenPart(tokens, table, rows, firsts, ends, reads),), ())


@functools.cache
def stranger_loop() -> Callable[..., Any]:
    """The loop of `strangers`, compiled the first time."""
    from ..loops import strangers

    return compiled(strangers.plan, strangers.SIGNATURE, is_reordered=False)


class _Cutter:
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
        own: list[InPlacePart] = [self._singles(single)] if len(single) else []
        own += [self._chunks(several)] if len(several) else []
        return InPlacePlan(tuple(own), runs)

    def _sharing(self) -> Past:
        """The step as far as runs may cover it: not where windows end in them, nor what many new
        tokens of one sequence read by themselves as well."""
        is_apart = self._past.lens > JOINED
        if self._window is not None:
            is_apart |= self._ends > self._window
        if not is_apart.any():
            return self._past
        return replace(self._past, starts=np.where(is_apart, 0, self._past.starts))

    def _run(self, run: Run) -> ChunkPart:
        """A run, which all new tokens of its sequences see; it moves their offsets."""
        sequences = np.array(run.sequences)
        self._offsets[sequences] = run.end
        num_tokens, num_keys = int(self._past.lens[sequences].sum()), len(run.slots)
        row, end = np.zeros(1, np.int32), np.array([num_keys], np.int32)
        bounds = np.array([0, num_tokens])
        tokens, num_scores = self._tokens(sequences), num_tokens * num_keys
        return ChunkPart(tokens, run.slots[None], row, row, end, end, bounds, None, num_scores)

    def _chunks(self, group: Indices) -> ChunkPart:
        past, lens, ends = self._past, self._past.lens[group], self._ends[group]
        firsts = self._offsets[group]
        return ChunkPart(
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

    def _singles(self, group: Indices) -> TokenPart:
        firsts, ends = self._offsets[group], self._ends[group]
        rows, tokens = self._past.rows[group], self._firsts[group]
        return TokenPart(tokens, self._past.table, rows, firsts, ends, np.cumsum(ends - firsts))

    def _tokens(self, group: Indices) -> Indices:
        """All new tokens of these sequences."""
        firsts, lens = self._firsts[group], self._past.lens[group]
        ends = np.cumsum(lens)
        return np.arange(ends[-1]) + np.repeat(firsts - ends + lens, lens)
