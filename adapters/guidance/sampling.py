"""Guidance's sampling parameters as ours, and constraints extended by a pending or leading text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ...core.api.protocol import Choices, Constraint, Grammar, InvalidCall, Regex, Sampling

GREEDY_BELOW = 1e-5  # temperatures that Guidance takes for 0


def sampling_of(temperature: float, params: Mapping[str, Any]) -> Sampling:
    """Guidance's sampling parameters as ours. Raises InvalidCall for values that are not
    allowed."""
    given = {name: value for name, value in params.items() if value is not None}
    allowed = ("top_p", "top_k", "min_p", "repetition_penalty")
    for name, value in given.items():
        if name not in allowed:
            raise InvalidCall(name, value, "the sampling parameters " + ", ".join(allowed))
    return Sampling(temperature=0.0 if temperature < GREEDY_BELOW else temperature, **given)


def after(constraint: Constraint | None, pending: bytes) -> Constraint | None:
    """The constraint of the same texts, after some bytes of the prompt; None where these are no
    text."""
    if not pending:
        return constraint
    try:
        text = pending.decode()
    except UnicodeDecodeError:
        return None
    match constraint:
        case Choices(options):
            return Choices(tuple(text + option for option in options))
        case Regex(pattern):
            return Regex(f"{re.escape(text)}(?:{pattern})")
        case Grammar(source):
            lead = json.dumps(text, ensure_ascii=False)
            return Grammar(led(source, lead))
    return None


def led(source: str, lead: str) -> str:
    """A Lark grammar whose texts begin with one more literal."""
    renamed = re.sub(r"(?m)^start(?=\s*[:\[])", "inner_start", source, count=1)
    return f"start: {lead} inner_start\n{renamed}"
