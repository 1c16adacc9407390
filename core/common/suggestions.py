"""Suggestions for misspelled names: the closest known name, and "did you mean" for error texts.

Knows no names itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, known: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The known name that is closest to `name`, ignoring case: one that reaches the cutoff (a
    similarity from 0 to 1, as in difflib), or one of the same letters in another order; None where
    there is neither."""
    given, by_name = name.lower(), {it.lower(): it for it in sorted(known)}
    near = get_close_matches(given, by_name, 1, cutoff)
    near += [it for it in by_name if sorted(it) == sorted(given)]
    return by_name[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """A suffix for an error that refuses a name: "; did you mean ...?", or "" where no known name
    is close."""
    near = closest(name, known, cutoff)
    return f"; did you mean {near}?" if near is not None else ""
