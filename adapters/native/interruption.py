"""Ctrl-C in a batch: what was finished, in one line.

It knows no batch.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType


def interrupted(
    num_ended: int, num_items: int, checkpoint: str | os.PathLike[str] | None
) -> KeyboardInterrupt:
    """What Ctrl-C in a batch raises. Its text says how many items had ended, and how to go on."""
    ended = f"{num_ended:,} of {num_items:,} items had ended well"
    kept = f" and are in {os.fspath(checkpoint)}" if checkpoint is not None else ""
    how = "run it again" if kept else 'with run_batch(..., checkpoint="FILE") run it again'
    return KeyboardInterrupt(f"{ended}{kept}; {how} to ask only for the others")


def print_without_traceback(error: BaseException) -> None:
    """Let Python print `error`, if nobody catches it, as one line. A hook that something else has
    set for uncaught errors stays as it is."""
    if sys.excepthook is not sys.__excepthook__:
        return

    def show(kind: type[BaseException], found: BaseException, trace: TracebackType | None) -> None:
        if found is error:
            print(f"\n{kind.__name__}: {found}", file=sys.stderr)
        else:
            sys.__excepthook__(kind, found, trace)

    sys.excepthook = show
