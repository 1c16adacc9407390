"""Plain data as JSON, and back, types included. No code is stored, and none is run."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from ....core.api.protocol import InvalidCall, TokenLogprob

_PLAIN = (
    "None, True, False, an int, float, str or bytes, or a list, tuple or dict of these, to be"
    " written to the file of checkpoint="
)
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "$bytes": b64decode,
    "$dict": lambda pairs: {decoded(key): decoded(value) for key, value in pairs},
    "$float": float,
    "$logprob": lambda fields: TokenLogprob(*decoded(fields)),
    "$tuple": lambda items: tuple(map(decoded, items)),
}


def encoded(value: Any, field: str) -> Any:
    """Plain data as what `json` writes and `decoded` reads back, types included. Raises
    InvalidCall, with the name `field`, for anything else."""
    match value:
        case None | bool():
            return value
        case float() if not math.isfinite(value) and type(value) is float:
            return {"$float": str(value)}
        case bytes():
            return {"$bytes": b64encode(value).decode()}
        case TokenLogprob(id=number, logprob=logprob, top=top):
            return {"$logprob": encoded([number, logprob, top], field)}
    kind = type(value)
    if kind in (int, float, str):
        return value
    if kind is list:
        return [encoded(item, f"{field}[{index}]") for index, item in enumerate(value)]
    if kind is tuple:
        return {"$tuple": encoded(list(value), field)}
    if kind is dict:
        pairs = [(key, encoded(item, f"{field}[{key!r}]")) for key, item in value.items()]
        if all(type(key) is str and not key.startswith("$") for key in value):
            return dict(pairs)
        return {"$dict": [[encoded(key, field), item] for key, item in pairs]}
    raise InvalidCall(field, value, _PLAIN)


def decoded(value: Any) -> Any:
    """What `encoded` was given. Raises ValueError, KeyError or TypeError for other JSON."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if isinstance(value, dict):
        name = next(iter(value), "")
        if name.startswith("$"):
            return _DECODERS[name](value[name])
        return {key: decoded(item) for key, item in value.items()}
    return value
