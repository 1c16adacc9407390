"""Which errors pass by themselves, and how long to wait before another try."""

from __future__ import annotations

from ...core.api.protocol import EngineDied, Overloaded

LONGEST_PAUSE = 30.0  # seconds


def is_passing(error: BaseException | None) -> bool:
    """Whether the same call may succeed later: the queue was full, or the engine died and another
    is started in its place."""
    return isinstance(error, Overloaded) or (isinstance(error, EngineDied) and error.is_replaced)


def pause_before(num_retries: int, error: BaseException) -> float:
    """Seconds to wait after the `num_retries`-th retry ended in `error`; doubled for each one, and
    longer where an engine must start."""
    first = 1.0 if isinstance(error, EngineDied) else 0.1
    return float(min(first * 2**num_retries, LONGEST_PAUSE))
