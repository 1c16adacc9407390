"""Sliding windows: each token sees the last `window` tokens up to itself. Knows positions only."""

from __future__ import annotations

import numpy as np

from ...interface import Past


def is_reached(past: Past, window: int) -> bool:
    """Whether some token of the step is too far back for another to see it."""
    return bool((past.starts + past.lens).max() > window)


def shifted(past: Past, window: int) -> Past:
    """The same step with a new table, in which every sequence begins with the first token
    that one of its new tokens sees."""
    ends = past.starts + past.lens
    lows = np.maximum(past.starts - window + 1, 0)
    columns = lows[:, None] + np.arange((ends - lows).max())
    table = past.table[past.rows[:, None], np.minimum(columns, ends[:, None] - 1)]
    rows = np.arange(len(ends), dtype=np.int32)
    return Past(table, rows, past.starts - lows, past.lens)
