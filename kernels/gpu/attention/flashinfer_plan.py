"""What FlashInfer's wrappers are planned for: rows of queries, each over a list of slots."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...interface import Ints, Past
from ...sharing import find_runs

MIN_TENSOR_CORE_GROUP = 4  # heads of a group from which tensor cores are faster for decode


class Heads(NamedTuple):
    """Heads of queries and of keys, numbers of one, and the dtype of all."""

    num_heads: int
    num_kv_heads: int
    dim: int
    dtype: torch.dtype

    @property
    def is_grouped(self) -> bool:
        """Whether tensor cores are faster for decode."""
        return self.num_heads // self.num_kv_heads >= MIN_TENSOR_CORE_GROUP


class Rows(NamedTuple):
    """Rows of queries, each over a list of slots.

    tokens: the queries of all rows, as indices into the batch.
    counts, lengths: [rows] queries and slots of each. slots: of all rows. is_causal: the last
    queries of a row see the last of its slots.
    """

    tokens: Ints
    counts: Ints
    lengths: Ints
    slots: Ints
    is_causal: bool

    @property
    def is_decode(self) -> bool:
        """Whether each row is one query."""
        return bool((self.counts == 1).all())


class Settings(NamedTuple):
    """Of the layers of one window, as `Attention.attend` has them. window: keys before its own that
    a query sees at most; -1: all."""

    window: int
    scale: float
    softcap: float | None


class Wrapper:
    """A wrapper of FlashInfer for decode or, with several queries of a row, for prefill."""

    def __init__(self, wrapper: Any, heads: Heads, is_decode: bool) -> None:
        self._wrapper, self._heads, self._is_decode = wrapper, heads, is_decode
        self._is_copied: torch.cuda.Event | None = None

    def plan(self, rows: Rows, slots: Tensor, settings: Settings) -> None:
        """Prepare runs over these rows. slots: theirs, on the device."""
        if self._is_copied is not None:  # plans are copied from memory that the next one writes
            self._is_copied.synchronize()
        of_queries = () if self._is_decode else (_offsets(rows.counts),)
        self._wrapper.plan(
            *of_queries,
            _offsets(rows.lengths),
            slots,
            torch.ones(len(rows.lengths), dtype=torch.int32),
            *self._heads[:3],
            1,
            **({} if self._is_decode else {"causal": rows.is_causal}),
            window_left=settings.window,
            logits_soft_cap=settings.softcap,
            q_data_type=self._heads.dtype,
            kv_data_type=self._heads.dtype,
            sm_scale=settings.scale,
        )
        if slots.is_cuda:
            self._is_copied = torch.cuda.Event()
            self._is_copied.record(torch.cuda.current_stream(slots.device))

    def run(self, q: Tensor, kv: Tensor) -> Tensor:
        """Attend with q [tokens, heads, dim], contiguous, over kv [2, kv_heads, slots, dim]."""
        out: Tensor = self._wrapper.run(q, _pages(kv))
        return out

    def run_with_lse(self, q: Tensor, kv: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the base-2 log-sum-exp of scores [tokens, heads]."""
        out, lse = self._wrapper.run(q, _pages(kv), return_lse=True)
        return out, lse


def rows_of(past: Past, window: int, has_roots: bool) -> tuple[Rows, Rows | None]:
    """The rows of a step: its sequences, from the first slot that is in the window (as in
    `Settings`), and where it has_roots the roots that decode tokens share, at most the outermost of
    each token."""
    offsets = np.maximum(past.starts - window, 0) if window >= 0 else np.zeros_like(past.starts)
    roots = _roots(past, offsets) if has_roots and window < 0 else None
    ends = past.starts + past.lens
    spans = zip(past.rows.tolist(), offsets.tolist(), ends.tolist(), strict=True)
    slots = [past.table[row, first:end] for row, first, end in spans]
    tokens = np.arange(past.lens.sum(), dtype=np.int32)
    return Rows(tokens, past.lens, ends - offsets, joined(slots), True), roots


def _roots(past: Past, offsets: Ints) -> Rows | None:
    """Moves the offsets of the tokens that share one past it."""
    decode_rows = np.flatnonzero(past.lens == 1)
    firsts = np.cumsum(past.lens) - past.lens
    some = Past(
        past.table, past.rows[decode_rows], past.starts[decode_rows], past.lens[decode_rows]
    )
    runs = [run for run in find_runs(some, np.ones(len(decode_rows), bool)) if run.start == 0]
    if not runs:
        return None
    tokens = []
    for run in runs:
        members = decode_rows[list(run.sequences)]
        offsets[members] = run.end
        tokens.append(firsts[members])
    counts = np.array([len(it) for it in tokens], np.int32)
    lengths = np.array([len(run.slots) for run in runs], np.int32)
    return Rows(joined(tokens), counts, lengths, joined([run.slots for run in runs]), False)


def joined(arrays: list[Ints]) -> Ints:
    """One behind the other, as int32; of none, an empty one."""
    return np.concatenate([np.empty(0, np.int32), *arrays], dtype=np.int32, casting="same_kind")


def _offsets(counts: Ints) -> Tensor:
    """[n + 1] where each of these begins; on the host, where plans read it without waiting."""
    return torch.from_numpy(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))


def _pages(kv: Tensor) -> tuple[Tensor, Tensor]:
    """Of one slot each: [slots, 1, kv_heads, dim]."""
    keys, values = kv.transpose(1, 2).unsqueeze(2)
    return keys, values
