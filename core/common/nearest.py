"""The name that was probably meant by one that nobody knows, and how an error asks for it.

Knows no names itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str], share: float = 0.7) -> str | None:
    """Of the known names the one that is most like this one, whatever their cases; None where none
    has so large a share of its letters in common with it (0 to 1, as difflib has it)."""
    by_letters = {it.lower(): it for it in sorted(known)}
    near = get_close_matches(name.lower(), by_letters, 1, share)
    return by_letters[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str], share: float = 0.7) -> str:
    """What an error ends with that refuses a name: "; did you mean ...?", or "" where no known name
    is like it."""
    near = nearest(name, known, share)
    return f"; did you mean {near}?" if near is not None else ""
