"""Unknown keywords in the JSON schemas of a request, which restrict nothing.

They are named in the header of ignored fields; a tool that is strict may have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from ....core.api.dialects import ignored
from ...common.tools import check_keywords
from ..wire.wire import Tool

MOST = 16  # keywords that are named for a request
MOST_TOOLS = 64
MOST_TEXT = 100_000  # characters of a schema that is given as text
MOST_POINTER = 120
_FIELDS: tuple[tuple[str, ...], ...] = (
    ("json_schema",),
    ("guided_json",),
    ("structured_outputs", "json"),
    ("response_format", "json_schema", "schema"),
    ("text", "format", "schema"),
)
_SAFE = "/~$#:._-"


def ignored_keywords(body: Mapping[str, Any]) -> list[str]:
    """The places of unknown keywords in the schemas of a request, as in
    "json_schema#/properties/a/colour": of plain characters, and at most MOST of them."""
    found: list[str] = []
    for field, schema in _schemas(body):
        if len(found) >= MOST:
            break
        found += [f"{field}{_plain(it.pointer)}" for it in ignored(schema, MOST - len(found))]
    return found


def check_strict(tools: Sequence[Tool], within: str) -> None:
    """Raise InvalidCall for the first unknown keyword in the parameters of a strict tool. within:
    what the fields of a tool lie in, as in "function."."""
    for index, tool in enumerate(tools):
        if tool.function.strict:
            check_keywords(tool.function.parameters, f"tools[{index}].{within}parameters")


def _schemas(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas of a request, and their fields."""
    for path in _FIELDS:
        schema: Any = body
        for key in path:
            schema = schema.get(key) if isinstance(schema, Mapping) else None
        if isinstance(schema, str):
            schema = _read(schema)
        if isinstance(schema, Mapping):
            yield ".".join(path), schema
    tools = body.get("tools")
    for index, tool in enumerate(tools[:MOST_TOOLS] if isinstance(tools, list) else ()):
        if isinstance(tool, Mapping):
            is_within = isinstance(tool.get("function"), Mapping)
            inner = tool["function"] if is_within else tool
            if isinstance(schema := inner.get("parameters"), Mapping):
                yield f"tools[{index}].{'function.' * is_within}parameters", schema


def _read(text: str) -> Any:
    try:
        return json.loads(text) if len(text) <= MOST_TEXT else None
    except (ValueError, RecursionError):
        return None


def _plain(pointer: str) -> str:
    """A pointer as a header can hold it."""
    return quote(pointer[:MOST_POINTER], safe=_SAFE, errors="replace")
