"""Log-probabilities of prompt tokens as arrays, one row for each token of an edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..api.batch import Floats, Ints

Counts: TypeAlias = npt.NDArray[np.int16]
Top: TypeAlias = tuple[tuple[int, float], ...]

UNKNOWN = -1


@dataclass(slots=True, eq=False, repr=False)
class Logprobs:
    """Log-probabilities of `n` adjacent tokens, each given all tokens before it.

    values: [n] of the tokens themselves.
    counts: [n] how many top tokens were requested at each position; UNKNOWN where
      the row holds nothing.
    ids, tops: [n, k] these likeliest tokens, best first, and their log-probabilities; the first
      min(counts, vocabulary size) columns of a row count.
    """

    values: Floats
    counts: Counts
    ids: Ints
    tops: Floats

    @classmethod
    def unknown(cls, size: int) -> Logprobs:
        """`size` rows that hold nothing."""
        counts = np.full(size, UNKNOWN, np.int16)
        empty = np.empty((size, 0), np.int32), np.empty((size, 0), np.float32)
        return cls(np.zeros(size, np.float32), counts, *empty)

    @classmethod
    def of(cls, values: Sequence[float], tops: Sequence[Top], num_top: int) -> Logprobs:
        """One row for each value. tops: of each at least as many alternatives as there are, up to
        num_top. A value that is NaN (the model's logits were not finite) is not known."""
        found = np.array(values, np.float32)
        counts = np.where(np.isnan(found), UNKNOWN, num_top).astype(np.int16)
        if not num_top or not len(found):
            empty = np.empty((len(found), 0), np.int32), np.empty((len(found), 0), np.float32)
            return cls(found, counts, *empty)
        pairs = np.array([top[:num_top] for top in tops], np.float64).reshape(len(found), -1, 2)
        ids, logs = pairs[:, :, 0].astype(np.int32), pairs[:, :, 1].astype(np.float32)
        return cls(found, counts, ids, logs)

    @classmethod
    def join(cls, parts: Sequence[Logprobs], num_top: int) -> Logprobs:
        """Rows of several, one after another; each knows num_top alternatives."""
        if not parts:
            return cls.unknown(0)
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.counts for part in parts]),
            np.concatenate([part.ids[:, :num_top] for part in parts]),
            np.concatenate([part.tops[:, :num_top] for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Logprobs:
        """A copy of some rows."""
        values, counts = self.values[rows].copy(), self.counts[rows].copy()
        return Logprobs(values, counts, self.ids[rows].copy(), self.tops[rows].copy())

    @property
    def num_bytes(self) -> int:
        """Of memory."""
        return sum(a.nbytes for a in (self.values, self.counts, self.ids, self.tops))

    def num_known(self, start: int, end: int, num_top: int) -> int:
        """How many rows from `start` on, up to `end`, are known with num_top alternatives each."""
        is_missing = self.counts[start:end] < num_top
        return int(is_missing.argmax()) if is_missing.any() else len(is_missing)

    def write(self, start: int, other: Logprobs) -> None:
        """Take rows over from `start` on, where the other knows more than is known here."""
        end = start + len(other)
        rows = np.flatnonzero(other.counts > self.counts[start:end])
        if not len(rows):
            return
        width = other.ids.shape[1]
        if (missing := width - self.ids.shape[1]) > 0:  # columns, which hold nothing yet
            self.ids = np.pad(self.ids, ((0, 0), (0, missing)))
            self.tops = np.pad(self.tops, ((0, 0), (0, missing)), constant_values=-np.inf)
        at = start + rows
        self.values[at], self.counts[at] = other.values[rows], other.counts[rows]
        self.ids[at, :width], self.tops[at, :width] = other.ids[rows], other.tops[rows]

    def pairs(self, num_top: int) -> list[Top]:
        """The likeliest tokens of each row as pairs, best first; of rows that know as many."""
        if not num_top:
            return [()] * len(self)
        ids, tops = self.ids[:, :num_top], self.tops[:, :num_top]
        flat = zip(ids.ravel().tolist(), tops.ravel().tolist(), strict=True)
        return list(zip(*[flat] * ids.shape[1], strict=True))

    def check(self, size: int) -> None:
        """Assert that there is a row for each of `size` tokens, and no row without its columns."""
        assert len(self.values) == len(self.counts) == size, "not one log-probability for a token"
        assert self.ids.shape == self.tops.shape, "not one log-probability for an alternative"
        assert len(self.ids) == size, "not one row of alternatives for each token"
        assert self.counts.min(initial=0) >= UNKNOWN, "a token has fewer than no alternatives"
