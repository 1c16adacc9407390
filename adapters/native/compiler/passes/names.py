"""The names of the passes."""

from __future__ import annotations

from collections.abc import Iterable

from .....core.api.protocol import InvalidCall

PASSES = ("fold", "dead", "ahead", "prefixes", "hints", "priority", "memory")


def checked_passes(passes: Iterable[str] | None) -> frozenset[str]:
    """Names of passes; None: all. Raises InvalidCall for one that is none."""
    if passes is None:
        return frozenset(PASSES)
    found = frozenset((passes,) if isinstance(passes, str) else passes)
    for name in found:
        if name not in PASSES:
            raise InvalidCall("passes", name, " | ".join(PASSES))
    return found
