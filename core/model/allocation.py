"""Memory that a setting asks for: an error of the allocator names the setting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..api.errors import InvalidCall, Shown


@contextmanager
def allocating(setting: str, value: int, num_bytes: int, where: str = "memory") -> Iterator[None]:
    """Allocate `num_bytes` in the body. Raises InvalidCall, which names the setting, where the
    allocator fails. where: what is allocated, for the message."""
    try:
        yield
    except (RuntimeError, OSError, MemoryError) as error:
        raise too_large(setting, value, num_bytes, where) from error


def too_large(setting: str, value: int, num_bytes: int, where: str = "memory") -> InvalidCall:
    """The error of a setting that asks for more than there is."""
    shown = Shown(f"{value} ({num_bytes / 2**30:.1f} GiB of KV)")
    return InvalidCall(setting, shown, f"as many tokens as fit in free {where}")
