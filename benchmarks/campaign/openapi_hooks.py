"""Loaded by schemathesis, which may have an environment without forkroot, beside a copy of `legal`:
most of its bodies for the routes of generation are legal ones.

Made-up bodies alone seldom reach an engine: of forty optional fields some two contradict.
"""

from __future__ import annotations

import random
from typing import Any

import schemathesis
from hypothesis import strategies
from legal import PATHS, legal


@schemathesis.hook
def before_generate_body(context: Any, strategy: Any) -> Any:
    """Either what it makes, or a legal body."""
    path = context.operation.path
    if path not in PATHS:
        return strategy
    seeds = strategies.integers(0, 2**32)
    known = seeds.map(lambda seed: legal(path, random.Random(seed)))
    return strategies.one_of(strategy, known, known, known)
