"""Errors of JSON schemas and patterns: by keyword and position, before anything is generated.

`UnsupportedSchema` and `InvalidSchema` know no position; `core.fsm.json_schema.schema` adds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...api.protocol import InvalidCall, UnsupportedCall

FIELD = "json_schema"
_MARK = "\0"
AHEAD_IN_LOOKBEHIND = (  # what an automaton that reads from left to right does not support
    "a lookahead, \\b, \\B or $ inside a lookbehind (move it out of the lookbehind)"
)


class NotRegular(UnsupportedCall):
    """The schema is valid, but no pattern expresses it: recursion, open objects, untyped values, or
    constraints whose intersection needs a larger automaton. A grammar may express it."""

    def __init__(self, pointer: str, allowed: str) -> None:
        super().__init__(FIELD, shown(pointer), allowed)


def derived(pointer: str, tag: str) -> str:
    """The key of something derived from the value at a JSON pointer."""
    return f"{pointer}{_MARK}{tag}"


def shown(pointer: str) -> str:
    """The JSON pointer in a key."""
    return pointer.partition(_MARK)[0]


class UnsupportedSchema(Exception):
    """A schema that no pattern expresses; the text names what is supported."""


class InvalidSchema(Exception):
    """Not a valid schema; the text names what is allowed."""


def invalid_pattern(pattern: str, position: int, what: str, readers: str = "") -> str:
    """What is expected instead of an invalid pattern. what: the error at this position. readers:
    the dialects that must accept it, if not `re` alone."""
    what = what.removeprefix("an ").removeprefix("a ")
    return f"a valid pattern{readers}: {what} at {_position(pattern, position)}"


def unsupported_pattern(pattern: str, position: int, what: str) -> str:
    """What is expected instead of a pattern with an unsupported construct at this position."""
    return f"a pattern without {what}: not supported, at {_position(pattern, position)}"


def _position(pattern: str, position: int) -> str:
    return f"position {position} ({pattern[position : position + 12]!r})"


def steps_of(pointer: str) -> list[str]:
    """The names and indices in a JSON pointer."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def value_at(schema: Any, pointer: str) -> Any:
    """The value in a schema at a JSON pointer, from `#`. Raises LookupError if there is none."""
    value = schema
    for key in steps_of(pointer):
        if isinstance(value, Mapping):
            value = value[key]
        elif isinstance(value, list | tuple) and key.isdecimal():
            value = value[int(key)]
        else:
            raise LookupError(pointer)
    return value


def refuse(pointer: str, allowed: str) -> InvalidCall:
    """The error for the keyword at `pointer` (a JSON pointer into the schema, from `#`)."""
    return InvalidCall(FIELD, shown(pointer), allowed)
