"""A schema as JSON text, in small pieces: other threads have their turn in between.

Python's threads share one interpreter, and who writes a megabyte in one call stops all others for
as long. So no more of a schema is looked at than may be written, and a large one is looked at and
written piece by piece, with a pause after each. Knows nothing of what a schema means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from time import sleep
from typing import Any

from ...api.protocol import InvalidCall
from ..regex.errors import FIELD

MAX_SCHEMA = 4_000_000
MAX_LEVELS = 1_000
PART = 4  # characters that a part of a schema has at least, its quotes and commas
PIECE = 20_000
GROUP = 256
WALK = 4_096  # parts that are looked at between two pauses
PAUSE = 0.001


def schema_text(schema: object) -> str:
    """The JSON of a schema; two that are told apart by it may mean the same. Raises InvalidCall for
    what is no JSON, and as `check_size`."""
    check_size(schema)
    written: list[str] = []
    try:
        _write(schema, written)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidCall(FIELD, schema, f"a schema in JSON form ({error})") from None
    return "".join(written)


def check_size(schema: object) -> None:
    """Raises InvalidCall for a schema of more than about MAX_SCHEMA characters, or of more than
    MAX_LEVELS levels."""
    if room_left(schema, MAX_SCHEMA) < 0:
        allowed = f"at most {MAX_SCHEMA} characters of JSON, in at most {MAX_LEVELS} levels"
        raise InvalidCall(FIELD, _shown(schema), allowed)


def room_left(value: object, room: int) -> int:
    """What is left of so many characters once a value is written, about; something negative as soon
    as it is known that this will be, or that the value has too many levels."""
    room, level = room - PART, [value]
    for _ in range(MAX_LEVELS):
        below: list[object] = []
        for index, part in enumerate(level, 1):
            room -= _size(part, room, below)
            if room < 0:
                return room
            if not index % WALK:
                sleep(PAUSE)
        if not below:
            return room
        level = below
    return -1


def _size(part: object, room: int, below: list[object]) -> int:
    """About how many characters a part adds, those of its items without what they hold: these are
    put `below`, if there is room for them."""
    if isinstance(part, str):
        return len(part)
    if isinstance(part, list | tuple):
        size = PART * len(part)
        below += part if size <= room else ()
        return size
    if isinstance(part, dict):
        size = 2 * PART * len(part)
        for names in _groups(part, WALK):
            if size > room:
                return size
            size += sum(len(name) for name in names if isinstance(name, str))
        below += part.values()
        return size
    return 0


def _write(value: object, written: list[str]) -> None:
    """Write a value, in pieces if it is large."""
    if not isinstance(value, dict | list | tuple) or room_left(value, PIECE) >= 0:
        written.append(json.dumps(value))
        return
    is_object = isinstance(value, dict)
    written.append("{" if is_object else "[")
    for index, group in enumerate(_groups(value, GROUP)):
        written.append(", " if index else "")
        _write_group({name: value[name] for name in group} if is_object else group, written)
        sleep(PAUSE)
    written.append("}" if is_object else "]")


def _write_group(group: Any, written: list[str]) -> None:
    """Write some items of an object or a list, all at once unless they are large."""
    if room_left(group, PIECE) >= 0:
        written.append(json.dumps(group)[1:-1])
        return
    for index, item in enumerate(group):
        written.append(", " if index else "")
        if isinstance(group, dict):
            written.append(f"{json.dumps({item: 0})[1:-2]}")
            _write(group[item], written)
        else:
            _write(item, written)


def _groups(items: Any, size: int) -> Iterator[list[Any]]:
    """The items of something, so many at a time."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def _shown(schema: object) -> str:
    names = ", ".join(map(repr, islice(schema, 3))) if isinstance(schema, Mapping) else ""
    return f"{{{names}, ...}}"
