"""Which keys single tokens of sequences read that share nothing: a compiled loop, as operators of
arrays, which a step finds in no near cache, take several times as long. Needs numba."""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

SIGNATURE = (
    "boolean(int32[:, :], int32[:], int32[:], int32[:], int64, int64[:, ::1], int32[:, ::1])"
)


def plan(table, rows, starts, lens, window, of_tokens, of_rows):
    """Whether sequences of such rows of the table, lengths before the step, and numbers of new
    tokens have one of these each and no two begin in the same slot.

    If so writes tokens and reads [2, n] and rows, firsts and ends [3, n], as `parts.TokenPart`.
    window: keys that a token reads at most; 0: all.
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
