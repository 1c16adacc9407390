"""Validation errors of request bodies: the field, its value, and what is expected."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from ....core.api.protocol import ForkrootError, InvalidCall, Shown
from ..server.errors import Fault, Refused

_SINGULAR = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}
_PLURAL = {str: "texts", int: "integers", float: "numbers", bool: "booleans", NoneType: "nulls"}
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}  # of numbers, as pydantic names them
_SOURCES = ("body", "query", "path")
_MOST_CHARS = 80
_EXPECTED_TYPE = "application/json (of curl: -H 'Content-Type: application/json')"


class Field(NamedTuple):
    """A field of a body. name: as "messages[2].content"; "" for the whole body. value: what the
    request sent. kind: the expected type; Any if unknown."""

    name: str
    value: Any
    kind: Any


def validation_error(
    problems: Sequence[Mapping[str, Any]], body: Any, kind: Any, content_type: str | None = None
) -> ForkrootError | Refused:
    """The error for an invalid body, from pydantic's first problem. kind: the expected type; Any if
    unknown. content_type: the request's header."""
    first = problems[0]
    if isinstance(body, bytes):
        return InvalidCall("Content-Type", _shortened(content_type), _EXPECTED_TYPE)
    if first["type"] == "json_invalid":
        cause = (first.get("ctx") or {}).get("error", first["msg"])
        message = f"the body is not JSON, at character {first['loc'][-1]}: {cause}"
        return Refused(message, Fault(400, "invalid_request_error", "invalid_json"))
    field = _find_field([part for part in first["loc"] if part not in _SOURCES], body, kind)
    allowed = first["msg"] if field.kind is Any else describe_type(field.kind)
    if first["type"] == "missing":
        message = f"{field.name or 'the body'} is missing; expected {allowed}"
        code = "missing_required_parameter"
        return Refused(message, Fault(400, "invalid_request_error", code, field.name or None))
    bounds = first.get("ctx") or {}
    if "min_length" in bounds:
        allowed += f" of length {bounds['min_length']} or more"
    signs = [f", {sign} {bounds[name]:,g}" for name, sign in _BOUNDS.items() if name in bounds]
    allowed += "".join(signs)
    return InvalidCall(field.name or "body", _shortened(field.value), allowed)


def describe_type(kind: Any) -> str:
    """The type in words, as "a text, a list of texts, or null"."""
    choices = [_singular(choice) for choice in _union_members(kind)]
    if len(choices) < 3:
        return " or ".join(choices) if " or " not in choices[0] else ", or ".join(choices)
    return ", ".join(choices[:-1]) + f", or {choices[-1]}"


def _union_members(kind: Any) -> tuple[Any, ...]:
    kind = _bare(kind)
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return tuple(map(_bare, members))


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _singular(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) is list:
        return f"a list of {_plural(*get_args(kind))}"
    return _SINGULAR.get(kind, "an object")


def _plural(kind: Any) -> str:
    kind = _bare(kind)
    if get_origin(kind) is list:
        return f"lists of {_plural(*get_args(kind))}"
    return " or ".join(_PLURAL.get(choice, "objects") for choice in _union_members(kind))


def _find_field(parts: Sequence[str | int], body: Any, kind: Any) -> Field:
    """The field at this location of pydantic's, without the trailing names of union members."""
    field = Field("", body, kind)
    for part in parts:
        inner = _inner_type(field.kind, part)
        if inner is None:
            break
        if not isinstance(part, int):
            name = f"{field.name}.{part:.100}" if field.name else f"{part:.100}"
            found = field.value.get(part) if isinstance(field.value, Mapping) else None
            field = Field(name, found, inner)
        elif isinstance(field.value, list):
            found = field.value[part] if part < len(field.value) else None
            field = Field(f"{field.name}[{part}]", found, inner)
        else:  # a single value that a validator wrapped in a list
            field = field._replace(kind=inner)
    return field


def _inner_type(kind: Any, part: str | int) -> Any:
    """The type of a field, entry or item of `kind`; None if `part` is not one."""
    if kind is Any:
        return Any
    kinds = [choice for choice in _union_members(kind) if choice is not NoneType]
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


def _shortened(value: Any) -> Any:
    """The value, shortened for an error message."""
    if isinstance(value, str):
        return value[:_MOST_CHARS]
    if isinstance(value, list | dict | bytes):
        return Shown(reprlib.repr(value))
    return value
