"""What a hint says of its program, as tokens of rank: the shortest rest is served first.

Branches of one program have the same rest, so that they join at about the same time, and few
programs are open at once (shortest remaining processing time). The waiting queue's ageing goes on
meanwhile. Knows nothing of caches and memory.
"""

from __future__ import annotations

from .sequence import Sequence

HALF = 64  # generated tokens of a rest that halve the credit


def credit(sequence: Sequence, longest: int) -> int:
    """Tokens by which the hint of a sequence ranks it higher than one of a program that goes on for
    ever: at most `longest`; 0 where it does not say what is left of its program."""
    hint = sequence.job.call.hint
    if hint is None or hint.program is None or hint.tokens_left is None:
        return 0
    left = max(0, hint.tokens_left) + sequence.rules.max_new
    return longest * HALF // (HALF + left)
