"""Merges equal rules of a grammar into one.

Knows only names of rules and their bodies, in which each name has a space on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAX_ROUNDS = 100
_NAME = re.compile(r"(?<= )[\w-]+(?= )")


def merged(start: str, bodies: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The name of the first rule, and the bodies by name: of rules with equal bodies only the first
    is kept, until no two are equal. Rules that call themselves or each other may stay apart."""
    kept = dict(bodies)
    for _ in range(MAX_ROUNDS):
        first = dict[str, str]()
        renamed = {name: first.setdefault(body, name) for name, body in kept.items()}
        start = renamed.get(start, start)
        if len(first) == len(kept):
            break
        kept = {name: _with_names(body, renamed) for body, name in first.items()}
    return start, kept


def _with_names(body: str, renamed: Mapping[str, str]) -> str:
    return _NAME.sub(lambda found: renamed.get(found[0], found[0]), body)
