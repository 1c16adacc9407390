"""From keywords, as programs write them, to the fields of `Sampling`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ....core.api.protocol import InvalidCall, Sampling

_LISTED = {  # what programs may give as a list
    "stop": "a non-empty text, or a list of at most 64 of them",
    "stop_token_ids": "a list of integers >= 0",
}
SAMPLING_FIELDS = frozenset(field.name for field in fields(Sampling))


def sampling_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` in the types of `Sampling`: one stop text or a list of them becomes a tuple.

    Raises InvalidCall for the first value that is not allowed, here and not only when it is used.
    """
    found = {name: _as_field(name, value) for name, value in given.items()}
    try:
        Sampling(**{"max_tokens": None, **found}).check()
    except InvalidCall as error:
        allowed = _LISTED.get(error.field, error.allowed)
        raise InvalidCall(error.field, given.get(error.field, error.value), allowed) from None
    return found


def _as_field(name: str, value: Any) -> Any:
    if name == "stop" and isinstance(value, str):
        return (value,)
    if name in ("stop", "stop_token_ids") and isinstance(value, list):
        return tuple(value)
    return value
