"""Fields of a request that a route does not know: one that is all but spelled like a known one is
refused, any other is ignored and reported in a header and in the log. The header also names unknown
keywords of JSON schemas, which restrict nothing.

OpenAI refuses all unknown fields; clients of other servers send many that mean nothing here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from ....core.api.dialects import ignored
from ....core.api.protocol import InvalidCall, Shown
from ..server.errors import Fault, Refused

HEADER = "X-Ignored-Fields"
MOST_COMPARED = 64  # unknown names of one kind of object in a body
MOST_LETTERS = 64  # of a name that may be a known one, misspelled
MOST_NAMES = 256  # that are logged, and checked only once
MOST_SHOWN = 16  # in the header: fields, and keywords of schemas
REPLACED = {
    "functions": "tools",
    "function_call": "tool_choice",
}  # deprecated fields that are not served
OTHERS_OWN = frozenset(("models", "top_a"))  # of other servers, and like ours by chance
LEAST_LEN = 3  # of a name that may be suggested
_FUNCTION = ("name", "description", "parameters", "strict")
_INNER: Mapping[tuple[str, ...], tuple[str, ...]] = {  # what lies in fields; *: each of a list
    ("messages", "*"): ("role", "content", "name", "tool_calls", "tool_call_id", "refusal"),
    ("tools", "*"): ("type", "function", *_FUNCTION),
    ("tools", "*", "function"): _FUNCTION,
    ("response_format",): ("type", "json_schema"),
    ("response_format", "json_schema"): ("name", "description", "schema", "strict"),
    ("stream_options",): ("include_usage", "continuous_usage_stats"),
}
MOST_TOOLS = 64
MOST_TEXT = 100_000  # characters of a schema that is given as text
MOST_POINTER = 120
_SCHEMAS: tuple[tuple[str, ...], ...] = (
    ("json_schema",),
    ("guided_json",),
    ("structured_outputs", "json"),
    ("response_format", "json_schema", "schema"),
    ("text", "format", "schema"),
)
_SAFE = "/~$#:._-"  # in a header, of what a pointer may have
_log = logging.getLogger("forkroot.http")


class Unknown:
    """What one route knows. Mutable: it remembers which unknown names it has seen.

    path: of the route. known: the fields that it takes.
    """

    def __init__(self, path: str, known: Collection[str]) -> None:
        self._path = path
        self._known = tuple(sorted(known))
        self._ignored: set[str] = set()

    def ignored(self, body: Any) -> list[str]:
        """The fields of a body that are not known, logged when first seen.
        Raises Refused for one that is a known one, misspelled, also where it lies in another, and
        for one whose place a known one has taken."""
        if not isinstance(body, Mapping):
            return []
        for path, known in _INNER.items():
            compared: set[str] = set()
            for prefix, part in _parts(body, path):
                for name in part:
                    if name not in known and name not in compared:
                        check_num_compared(compared, name, prefix)
                        check_spelling(name, known, self._path, f"{prefix}.")
        unknown = [str(name) for name in body if name not in self._known]
        for name in unknown:
            if name in REPLACED and body[name] and REPLACED[name] in self._known:
                raise no_field(name, self._path, REPLACED[name])
            if name in self._ignored:
                continue
            check_spelling(name, self._known, self._path)
            if len(self._ignored) < MOST_NAMES:
                self._ignored.add(name)
                text = "%s ignores the field %.100r, which it does not know (logged once)"
                _log.warning(text, self._path, name)
        return unknown


def check_num_compared(compared: set[str], name: str, prefix: str) -> None:
    """Add a name to the unknown ones of a body that were compared with the known ones. Raise
    InvalidCall for one more than MOST_COMPARED. prefix: what it lies in."""
    if len(compared) >= MOST_COMPARED:
        allowed = f"at most {MOST_COMPARED} different unknown fields in such objects"
        raise InvalidCall(prefix, Shown(f"the field {name!r:.100}"), allowed)
    compared.add(name)


def _parts(body: Any, path: tuple[str, ...], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The objects in a place of a body, and where each is, as in "tools[1].function"."""
    if not path:
        if isinstance(body, Mapping):
            yield prefix, body
    elif path[0] == "*":
        for i, part in enumerate(body if isinstance(body, list) else ()):
            yield from _parts(part, path[1:], f"{prefix}[{i}]")
    elif isinstance(body, Mapping) and path[0] in body:
        yield from _parts(body[path[0]], path[1:], f"{prefix}.{path[0]}" if prefix else path[0])


def check_spelling(name: str, known: Collection[str], where: str, prefix: str = "") -> None:
    """Raise Refused for the name of a field that is a known one, misspelled. where: what has these
    fields. prefix: what they lie in, as in "sampling_params."."""
    if len(name) > MOST_LETTERS:
        return
    suggested = next((it for it in known if is_misspelled(name, it)), None)
    if suggested is not None:
        raise no_field(f"{prefix}{name:.100}", where, f"{prefix}{suggested}")


def no_field(field: str, where: str, suggested: str) -> Refused:
    """The error for an unknown field, with a suggestion from `where`."""
    message = f"{field} is not a field of {where}; did you mean {suggested}?"
    return Refused(message, Fault(400, "invalid_request_error", "unknown_parameter", field))


def header_of(names: Collection[str], keywords: Collection[str] = ()) -> str:
    """The value of the header that names ignored fields. keywords: those of schemas, by their
    places, in plain characters."""
    plain = [name for name in names if name.isascii() and name.isidentifier() and len(name) < 65]
    return ", ".join([*sorted(plain), *keywords][:MOST_SHOWN])


def is_misspelled(name: str, known: str) -> bool:
    """Whether a name is this known one in other cases or with other dashes, or one edit away from
    it: a letter more, less, replaced, or two in each other's place."""
    if name in OTHERS_OWN or len(known) < LEAST_LEN:
        return False
    one, other = _letters(name), _letters(known)
    if len(one) < len(other):
        one, other = other, one
    pairs = enumerate(zip(one, other, strict=False))
    start = next((i for i, (left, right) in pairs if left != right), len(other))
    one, other = one[start:], other[start:]
    if len(one) > len(other):
        return one[1:] == other
    is_swapped = one[:2] == other[1::-1] and one[2:] == other[2:]
    return one[1:] == other[1:] or is_swapped


def _letters(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


def ignored_keywords(body: Mapping[str, Any]) -> list[str]:
    """The places of unknown keywords in the schemas of a request, as in
    "json_schema#/properties/a/colour": of plain characters, and at most MOST_SHOWN."""
    found: list[str] = []
    for field, schema in _schemas(body):
        if len(found) >= MOST_SHOWN:
            break
        for it in ignored(schema, MOST_SHOWN - len(found)):
            found.append(field + quote(it.pointer[:MOST_POINTER], safe=_SAFE, errors="replace"))
    return found


def _schemas(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas of a request, and their fields."""
    for path in _SCHEMAS:
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
