"""The values of the protocol as bytes: for runtimes in another process.

MessagePack of plain data; nothing is unpickled, and only values of the protocol are restored. A
field that is not known is ignored, so that both ends need not be of one version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from itertools import starmap
from typing import Any

import msgpack

from . import calls, errors, evictions, program_report, protocol
from .errors import ForkrootError, InvalidCall, Shown
from .protocol import TokenLogprob

_VALUES: dict[str, Any] = {
    item.__name__: item
    for module in (calls, evictions, program_report, protocol)
    for item in vars(module).values()
    if isinstance(item, type) and is_dataclass(item)
}
ERRORS: dict[str, type[ForkrootError]] = {
    name: item
    for name, item in vars(errors).items()
    if isinstance(item, type) and issubclass(item, ForkrootError)
}
_TYPE, _JSON, _PAIRS, _ERROR, _WHOLE = "@", "@json", "@pairs", "@error", "@whole"
_LOGPROBS = "@logprobs"
FIELDS: dict[type, tuple[tuple[str, Any], ...]] = {  # MISSING for a field that must be given
    kind: tuple(
        (it.name, it.default if it.default_factory is MISSING else it.default_factory())
        for it in fields(kind)
    )
    for kind in _VALUES.values()
}
_NAMES: dict[str, frozenset[str]] = {
    kind.__name__: frozenset(name for name, _ in items) for kind, items in FIELDS.items()
}
_SCALARS = frozenset((type(None), bool, int, float, str, bytes))


def pack(message: Any) -> bytes:
    """A message of plain data, values of the protocol and its errors. Raises InvalidCall for
    anything else, such as a schema that is not JSON."""
    data: bytes
    plain = _plain(message)
    try:
        data = msgpack.packb(plain, use_bin_type=True)
    except OverflowError:
        data = msgpack.packb(_with_large(plain), use_bin_type=True)
    return data


def unpack(data: bytes) -> Any:
    """The message; lists are tuples. Raises ValueError for bytes that are none."""
    try:
        return msgpack.unpackb(
            data, raw=False, use_list=False, strict_map_key=False, object_hook=_value
        )
    except (msgpack.UnpackException, msgpack.ExtraData, UnicodeDecodeError) as error:
        raise ValueError(f"not a message: {error}") from error


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple or kind is list:
        if value and all(type(item) is TokenLogprob for item in value):
            return _columns(value)
        return [item if type(item) in _SCALARS else _plain(item) for item in value]
    if kind in FIELDS:
        plain_value = {_TYPE: kind.__name__}
        for name, default in FIELDS[kind]:
            found = getattr(value, name)
            if type(found) is not type(default) or found != default:
                plain_value[name] = _plain(found)
        return plain_value
    match value:  # other types of these kinds
        case int() | float() | str() | bytes():
            return value
        case list() | tuple():
            return [_plain(item) for item in value]
        case frozenset() | set():
            return [_plain(item) for item in sorted(value)]
        case ForkrootError():
            name, args, is_shown = error_parts(value)
            return {_ERROR: name, "args": _plain(args), "is_shown": is_shown}
        case Mapping():
            return _plain_mapping(value)
    raise InvalidCall("value", value, "texts, numbers, bytes, and values of the protocol")


def _columns(values: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Log-probabilities by field: a prompt has thousands, and a mapping of each takes long."""
    rows = ((it.id, it.logprob, it.top) for it in values)
    return {_LOGPROBS: list(zip(*rows, strict=True))}


def _with_large(plain: Any) -> Any:
    """The same with integers that a machine has no word for as texts."""
    if isinstance(plain, list | tuple):
        return [_with_large(item) for item in plain]
    if isinstance(plain, dict):
        return {key: _with_large(item) for key, item in plain.items()}
    is_large = isinstance(plain, int) and not -(2**63) <= plain < 2**63
    return {_WHOLE: str(plain)} if is_large else plain


def _plain_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    if all(isinstance(key, int) for key in value):
        return {_PAIRS: [[key, _plain(item)] for key, item in value.items()]}
    try:
        return {_JSON: json.dumps(value)}
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidCall("value", value, f"a mapping in JSON form ({error})") from None


def error_parts(error: ForkrootError) -> tuple[str, list[Any], bool]:
    """An error as the nearest of those that are known to all: its name, the arguments of its class,
    and whether the value among them is only shown."""
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in ERRORS)
    if isinstance(error, InvalidCall):
        shown = error.value
        is_text = isinstance(shown, str) and not isinstance(shown, Shown)
        is_plain = shown is None or is_text or isinstance(shown, bool | int | float)
        args = [error.field, shown if is_plain else Shown(_shown(shown)), error.allowed]
        return name, args, not is_plain
    return name, [str(error)], False


def _shown(value: object) -> str:
    try:
        return repr(value)[:100]
    except RecursionError:
        return f"a {type(value).__name__} of great depth"


def _value(plain: dict[str, Any]) -> Any:
    """The value that a mapping encodes; its own values are decoded already."""
    name = plain.pop(_TYPE, None)
    if isinstance(name, str) and name in _NAMES:
        known = _NAMES[name]
        return _VALUES[name](**{key: item for key, item in plain.items() if key in known})
    if _LOGPROBS in plain:
        return tuple(starmap(TokenLogprob, zip(*plain[_LOGPROBS], strict=True)))
    if _JSON in plain:
        return json.loads(plain[_JSON])
    if _PAIRS in plain:
        return dict(plain[_PAIRS])
    if _WHOLE in plain:
        return int(plain[_WHOLE])
    if _ERROR in plain:
        return _error(plain)
    raise ValueError(f"not a value of the protocol: {name!r}")


def _error(plain: Mapping[str, Any]) -> ForkrootError:
    kind = ERRORS.get(plain[_ERROR], ForkrootError)
    args = list(plain["args"])
    if plain["is_shown"]:
        args[1] = Shown(args[1])
    return kind(*args)
