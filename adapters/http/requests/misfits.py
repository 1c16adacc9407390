"""Bodies that do not fit their description: which field it is, what it holds, what is allowed."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from ....core.api.protocol import ForkrootError, InvalidCall, Shown
from ..server.errors import Fault, Refused

_ONE = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}
_MANY = {str: "texts", int: "integers", float: "numbers", bool: "booleans", NoneType: "nulls"}
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}  # of numbers, as pydantic names them
_OUTSIDE = ("body", "query", "path")
_MOST_CHARS = 80
_JSON = "application/json (of curl: -H 'Content-Type: application/json')"


class Place(NamedTuple):
    """A field. name: as "messages[2].content"; "" for the whole body. value: what it holds. kind:
    its type; Any where that is not known."""

    name: str
    value: Any
    kind: Any


def misfit(
    problems: Sequence[Mapping[str, Any]], body: Any, kind: Any, content_type: str | None = None
) -> ForkrootError | Refused:
    """The error for a body, told by the first of its problems. kind: what it should be; Any where
    that is not known. content_type: what the request says that it is."""
    first = problems[0]
    if isinstance(body, bytes):
        return InvalidCall("Content-Type", _cut(content_type), _JSON)
    if first["type"] == "json_invalid":
        cause = (first.get("ctx") or {}).get("error", first["msg"])
        message = f"the body is no JSON, at character {first['loc'][-1]}: {cause}"
        return Refused(message, Fault(400, "invalid_request_error", "invalid_json"))
    place = _place([part for part in first["loc"] if part not in _OUTSIDE], body, kind)
    allowed = first["msg"] if place.kind is Any else in_words(place.kind)
    if first["type"] == "missing":
        message = f"{place.name or 'the body'} is missing; expected {allowed}"
        code = "missing_required_parameter"
        return Refused(message, Fault(400, "invalid_request_error", code, place.name or None))
    if "min_length" in (first.get("ctx") or {}):
        allowed = f"{allowed} of length {first['ctx']['min_length']} or more"
    for name, sign in _BOUNDS.items():
        if name in (first.get("ctx") or {}):
            allowed += f", {sign} {first['ctx'][name]:,g}"
    return InvalidCall(place.name or "body", _cut(place.value), allowed)


def in_words(kind: Any) -> str:
    """What is allowed where a value of this type is, as "a text, a list of texts, or null"."""
    choices = [_one(choice) for choice in _choices(kind)]
    if len(choices) < 3:
        return " or ".join(choices) if " or " not in choices[0] else ", or ".join(choices)
    return ", ".join(choices[:-1]) + f", or {choices[-1]}"


def _choices(kind: Any) -> tuple[Any, ...]:
    if get_origin(kind) is Annotated:
        return _choices(get_args(kind)[0])
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _one(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) is list:
        return f"a list of {_many(*get_args(kind))}"
    return _ONE.get(kind, "an object")


def _many(kind: Any) -> str:
    if get_origin(kind) is list:
        return f"lists of {_many(*get_args(kind))}"
    return " or ".join(_MANY.get(choice, "objects") for choice in _choices(kind))


def _place(parts: Sequence[str | int], body: Any, kind: Any) -> Place:
    """Where these steps lead, as far as they are fields, keys and numbers of items: then come the
    types that were tried there."""
    place = Place("", body, kind)
    for part in parts:
        inner = _within(place.kind, part)
        if inner is None:
            break
        if not isinstance(part, int):
            name = f"{place.name}.{part:.100}" if place.name else f"{part:.100}"
            found = place.value.get(part) if isinstance(place.value, Mapping) else None
            place = Place(name, found, inner)
        elif isinstance(place.value, list):
            found = place.value[part] if part < len(place.value) else None
            place = Place(f"{place.name}[{part}]", found, inner)
        else:  # what was sent is one thing, and was made a list of one
            place = place._replace(kind=inner)
    return place


def _within(kind: Any, part: str | int) -> Any:
    """The type of a field, entry or item; None where this is no step into it."""
    if kind is Any:
        return Any
    kinds = [choice for choice in _choices(kind) if choice is not NoneType]
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    if isinstance(part, int):
        return get_args(kind)[0] if get_origin(kind) is list else None
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return None
    fields = {info.alias or name: info.annotation for name, info in kind.model_fields.items()}
    return fields.get(part)


def _cut(value: Any) -> Any:
    """A value that is short to show."""
    if isinstance(value, str):
        return value[:_MOST_CHARS]
    if isinstance(value, list | dict | bytes):
        return Shown(reprlib.repr(value))
    return value
