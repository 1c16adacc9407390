"""What crosses the door, as bytes: for runtimes in another process.

MessagePack of plain data; nothing is unpickled, and only the door's own values are made again. A
field that is not known is ignored, so that both ends need not be of one version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import msgpack

from . import calls, errors, protocol
from .errors import ForkrootError, InvalidCall

_VALUES: dict[str, Any] = {
    item.__name__: item
    for room in (calls, protocol)
    for item in vars(room).values()
    if isinstance(item, type) and is_dataclass(item)
}
_ERRORS: dict[str, type[ForkrootError]] = {
    name: item
    for name, item in vars(errors).items()
    if isinstance(item, type) and issubclass(item, ForkrootError)
}
_TYPE, _JSON, _PAIRS, _ERROR, _WHOLE = "@", "@json", "@pairs", "@error", "@whole"


def pack(message: Any) -> bytes:
    """A message of plain data, values of the door and their errors. Raises InvalidCall for what is
    neither, as for a schema that is no JSON."""
    data: bytes = msgpack.packb(_plain(message), use_bin_type=True)
    return data


def unpack(data: bytes) -> Any:
    """The message; lists are tuples. Raises ValueError for bytes that are none."""
    try:
        plain = msgpack.unpackb(data, raw=False, strict_map_key=False)
    except (msgpack.UnpackException, msgpack.ExtraData, UnicodeDecodeError) as error:
        raise ValueError(f"not a message: {error}") from error
    return _value(plain)


def _plain(value: Any) -> Any:
    match value:
        case int() if abs(value) >= 2**63 and not isinstance(value, bool):
            return {_WHOLE: str(value)}
        case None | bool() | int() | float() | str() | bytes():
            return value
        case list() | tuple():
            return [_plain(item) for item in value]
        case frozenset() | set():
            return [_plain(item) for item in sorted(value)]
        case ForkrootError():
            return _plain_error(value)
        case Mapping():
            return _plain_mapping(value)
    if type(value).__name__ not in _VALUES:
        raise InvalidCall("value", value, "texts, numbers, bytes, and values of the door")
    return {_TYPE: type(value).__name__} | {
        item.name: _plain(found)
        for item in fields(value)
        if not _is_default(item, found := getattr(value, item.name))
    }


def _plain_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    if all(isinstance(key, int) for key in value):
        return {_PAIRS: [[key, _plain(item)] for key, item in value.items()]}
    try:
        return {_JSON: json.dumps(value)}
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidCall("value", value, f"a mapping in JSON form ({error})") from None


def _plain_error(error: ForkrootError) -> dict[str, Any]:
    """An error as the nearest of those that are known to all."""
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
    if isinstance(error, InvalidCall):
        shown = error.value
        is_plain = shown is None or isinstance(shown, bool | int | float | str)
        told = [error.field, shown if is_plain else _Shown(repr(shown)[:100]), error.allowed]
        return {_ERROR: name, "args": _plain(told), "is_shown": not is_plain}
    return {_ERROR: name, "args": [str(error)], "is_shown": False}


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(_value(item) for item in plain)
    if not isinstance(plain, dict):
        return plain
    if _JSON in plain:
        return json.loads(plain[_JSON])
    if _PAIRS in plain:
        return {key: _value(item) for key, item in plain[_PAIRS]}
    if _WHOLE in plain:
        return int(plain[_WHOLE])
    if _ERROR in plain:
        return _error(plain)
    kind = _VALUES.get(plain.get(_TYPE, ""))
    if kind is None:
        raise ValueError(f"not a value of the door: {plain.get(_TYPE)!r}")
    known = {item.name for item in fields(kind)}
    return kind(**{key: _value(item) for key, item in plain.items() if key in known})


def _error(plain: Mapping[str, Any]) -> ForkrootError:
    kind = _ERRORS.get(plain[_ERROR], ForkrootError)
    told = list(_value(plain["args"]))
    if plain["is_shown"]:
        told[1] = _Shown(told[1])
    return kind(*told)


def _is_default(item: Any, value: Any) -> bool:
    if item.default is not MISSING:
        default = item.default
    elif item.default_factory is not MISSING:
        default = item.default_factory()
    else:
        return False
    return type(value) is type(default) and bool(value == default)


class _Shown(str):
    """A value that stayed behind: the text that shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
