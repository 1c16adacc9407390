"""Plans which keys each sequence reads in a decode step in which no sequences share a prefix: a
compiled loop. Numpy operators take several times as long. Needs numba."""

from __future__ import annotations

SIGNATURE = (
    "boolean(int32[:, :], int32[:], int32[:], int32[:], int64, int64[:, ::1], int32[:, ::1])"
)


def plan(table, rows, starts, lens, window, of_tokens, of_rows):
    """Whether every sequence has one new token and no two begin in the same slot.

    rows, starts, lens: as in `Past`. If so, writes tokens and reads [2, n], and rows, firsts and
    ends [3, n], as `work_items.DecodeItem`. window: keys that a token reads at most; 0: all.
    """
    reads = 0
    for i in range(len(rows)):
        if lens[i] != 1:
            return False
        slot = table[rows[i], 0]
        for other in rows[:i]:
            if table[other, 0] == slot:
                return False
        end = starts[i] + 1
        first = max(end - window, 0) if window else 0
        reads += end - first
        of_tokens[0, i], of_tokens[1, i] = i, reads
        of_rows[0, i], of_rows[1, i], of_rows[2, i] = rows[i], first, end
    return True
