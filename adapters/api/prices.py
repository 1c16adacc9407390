"""What requests cost, by the prices that a user gives; forkroot knows none by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.api.protocol import InvalidCall, Usage

_PER = 1_000_000
_NAMES = ("input", "output", "cached_input")
_ALLOWED = (
    'a mapping such as {"input": 2.5, "output": 10.0, "cached_input": 1.25}, in money per million'
    " tokens, each a finite number >= 0; cached_input may be left out"
)


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per million tokens. cached_input: of prompt tokens that the API had cached."""

    input: float
    output: float
    cached_input: float

    @classmethod
    def of(cls, given: Any) -> Prices:
        """The prices of a mapping. Raises InvalidCall."""
        is_mapping = isinstance(given, Mapping) and {"input", "output"} <= given.keys() <= {*_NAMES}
        if not is_mapping or not all(map(_is_price, given.values())):
            raise InvalidCall("prices", given, _ALLOWED)
        return cls(given["input"], given["output"], given.get("cached_input", given["input"]))

    def cost(self, usage: Usage) -> float:
        """What these tokens cost."""
        new_tokens = usage.prompt_tokens - usage.cached_tokens
        parts = (
            new_tokens * self.input,
            usage.cached_tokens * self.cached_input,
            usage.completion_tokens * self.output,
        )
        return math.fsum(parts) / _PER


def _is_price(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]
