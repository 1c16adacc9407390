"""Values of the protocol as JSON: what `RemoteBackend` and the route of calls exchange.

A value is an object that names its type and has its fields, those with their defaults left out:

    {"type": "Call", "prompt": [{"type": "Text", "text": "Hi"}], "sampling": {"type": "Sampling"}}

Only values of the protocol are made again. What JSON lacks is encoded: bytes, numbers that are
not finite, mappings with integer keys, and objects other than values (a schema, a tool).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from ....core.api import protocol
from ....core.api.codec import ERRORS, FIELDS, error_parts
from ....core.api.evictions import Eviction, EvictionReport, Prefix, PrefixReport
from ....core.api.program_report import Guesses, KindUsage, ProgramReport
from ....core.api.protocol import Call, EngineDied, ForkHint, ForkrootError, InvalidCall, Shown
from .hints import hint_body, hint_of

PATH, INFO_PATH = "/v1/forkroot/calls", "/v1/forkroot/info"
EVICTIONS_PATH, PREFIXES_PATH = "/v1/forkroot/evictions", "/v1/forkroot/cached"
REPORT_PATH = "/v1/forkroot/report"
PROGRAMS_PATH = "/v1/forkroot/programs"
UNKNOWN_PROGRAM = "program_not_found"  # the code of a digest that the server does not know
RESTARTS = "another takes its place: try again soon"  # in the message of a dead engine
SILENCE = 10.0  # seconds after which a server reports that it works on a call
_REQUEST_TYPES = ("Call", "Chat", "Message", "Text", "Tokens", "Image", "Video", "Sampling")
_CONSTRAINTS = ("Regex", "JsonSchema", "Choices", "Grammar")
_REPLY_TYPES = (
    *("Chunk", "Completion", "Output", "OptionScore", "TokenLogprob", "Usage", "BackendInfo"),
)
_REPORTS = (
    *(Eviction, EvictionReport, Prefix, PrefixReport),
    *(Guesses, KindUsage, ProgramReport),
)
_KINDS: dict[str, Any] = {
    name: getattr(protocol, name) for name in (*_REQUEST_TYPES, *_CONSTRAINTS, *_REPLY_TYPES)
} | {kind.__name__: kind for kind in _REPORTS}
_DEFAULTS = {name: dict(FIELDS[kind]) for name, kind in _KINDS.items()}


def plain(value: Any, field: str = "value") -> Any:
    """A value of the protocol as plain JSON data. Raises InvalidCall for what has no JSON form;
    `field` is what it is the value of."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"type": "float", "value": str(value)}
        case bytes():
            return {"type": "bytes", "base64": base64.b64encode(value).decode()}
        case list() | tuple():
            return [plain(item, field) for item in value]
        case frozenset():
            return sorted(value)
        case ForkHint():
            return hint_body(value)
        case Mapping():
            return _plain_mapping(value, field)
    name = type(value).__name__
    if name not in _KINDS:
        raise InvalidCall(field, value, "texts, numbers, bytes, and values of the protocol")
    body: dict[str, Any] = {"type": name}
    for key, default in _DEFAULTS[name].items():
        found = getattr(value, key)
        if type(found) is not type(default) or found != default:
            body[key] = plain(found, key)
    return body


def call_of(data: Any) -> Call:
    """The call in this JSON data; not checked further. Raises InvalidCall."""
    found = value_of(data)
    if not isinstance(found, Call):
        raise InvalidCall("type", type(found).__name__, "Call")
    return found


def value_of(data: Any) -> Any:
    """The value in this JSON data; lists are tuples. Raises InvalidCall."""
    try:
        return _value(data)
    except RecursionError:
        raise InvalidCall("body", "...", "values within values to a lesser depth") from None


def plain_error(error: ForkrootError) -> dict[str, Any]:
    """An error of the protocol as JSON data: the most specific class that both sides know."""
    kind, args, is_shown = error_parts(error)
    if len(args) == 1:
        return {"kind": kind, "message": args[0]}
    field, value, allowed = args
    body = {"field": field, "value": plain(value), "allowed": allowed}
    return {"kind": kind, **body, "is_shown": is_shown}


def error_of(data: Mapping[str, Any]) -> ForkrootError:
    """The error in this JSON data."""
    kind = ERRORS.get(str(data.get("kind")), ForkrootError)
    message = str(data.get("message"))
    if issubclass(kind, EngineDied):
        return kind(message, is_replaced=RESTARTS in message)
    if not issubclass(kind, InvalidCall):
        return kind(message)
    value = value_of(data.get("value"))
    if data.get("is_shown"):
        value = Shown(value)
    return kind(str(data.get("field")), value, str(data.get("allowed")))


def _plain_mapping(value: Mapping[Any, Any], field: str) -> dict[str, Any]:
    if all(type(key) is int for key in value):
        return {"type": "pairs", "items": [[key, plain(item)] for key, item in value.items()]}
    try:
        return {"type": "json", "value": json.loads(json.dumps(dict(value), allow_nan=False))}
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidCall(field, value, f"a mapping in JSON form ({error})") from None


def _value(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_value(item) for item in data)
    if not isinstance(data, dict):
        return data
    name = data.get("type")
    if not isinstance(name, str) or name not in _SPELLED:
        return _made(name, data)
    try:
        return _SPELLED[name](data)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidCall("type", name, f"a value with valid fields ({error!r:.80})") from None


def _made(name: Any, data: dict[str, Any]) -> Any:
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InvalidCall("type", name, ", ".join((*_KINDS, *_SPELLED)))
    known = _DEFAULTS[str(name)].keys()
    if name in _REPLY_TYPES or kind in _REPORTS:  # by a server that may be younger than this client
        data = {key: item for key, item in data.items() if key in known}
    for field in data.keys() - known - {"type"}:
        raise InvalidCall(field, data[field], f"the fields of {name}: {', '.join(sorted(known))}")
    try:
        return kind(
            **{
                key: hint_of(item) if key == "hint" else _value(item)
                for key, item in data.items()
                if key != "type"
            }
        )
    except TypeError:
        missing = ", ".join(sorted(known - data.keys()))
        raise InvalidCall("type", name, f"a value with all required fields of {missing}") from None


_SPELLED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "bytes": lambda data: base64.b64decode(data["base64"], validate=True),
    "float": lambda data: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[data["value"]],
    "json": lambda data: data["value"],
    "pairs": lambda data: {key: _value(it) for key, it in data["items"] if type(key) is int},
}
