"""How compiled loops are tried before a model uses them: on a few random numbers, beside torch's
operators.

A compiler may give wrong code for one processor: LLVM 22 did, for attention with heads of 8
dimensions on "sapphirerapids". What a trial finds wrong is not used; torch computes instead, and a
warning says so. A trial takes milliseconds. Knows no loop: those are tried where they are chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # processes that only compile loops do without torch
    from torch import Tensor

_log = logging.getLogger(__name__)


def is_right(what: str, found: Callable[[], Tensor], expected: Tensor, tolerance: float) -> bool:
    """Whether `found()` differs from `expected` by at most `tolerance` times its largest number.
    Where it differs by more, or raises, this is logged with `what` was tried."""
    try:
        error = (found().double() - expected.double()).abs().max()
        reason = f"is wrong by {error:.3g} here"
        if error <= tolerance * expected.abs().max():  # not so for NaN
            return True
    except Exception as raised:  # whatever a version, a processor or a setting leads to
        reason = f"cannot be computed here ({raised!r})"
    _log.warning("forkroot: compiled %s %s: running slower, by torch", what, reason)
    return False
