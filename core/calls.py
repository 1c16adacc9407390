"""An older name of `core.api.calls`."""

from .api.calls import (
    HINT_VERSION,
    SCORINGS,
    Call,
    Choices,
    Constraint,
    ForkHint,
    Grammar,
    JsonSchema,
    Regex,
    Sampling,
    Scoring,
    as_call,
    check_call,
)

__all__ = [
    "HINT_VERSION",
    "SCORINGS",
    "Call",
    "Choices",
    "Constraint",
    "ForkHint",
    "Grammar",
    "JsonSchema",
    "Regex",
    "Sampling",
    "Scoring",
    "as_call",
    "check_call",
]
