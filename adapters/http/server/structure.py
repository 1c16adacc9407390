"""Bounds of JSON bodies, checked in their bytes before they are parsed.

`json.loads` holds the interpreter lock until it is done, and makes an object of every value: a body
of 16 MiB would stop the whole server for a second, and take a gigabyte. Counting takes NumPy a
fraction of that, in slices and for the most part without the lock.
"""

from __future__ import annotations

import contextlib
import json
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....core.api.protocol import InvalidCall, Shown
from .runtime import Limits
from .texts import check_body
from .workers import SMALL

_SLICE = 1 << 16
_MOST_DIGITS = 32  # of a value outside of texts, on average
_QUOTE, _BACKSLASH = b'"\\'
_BLANK, _STEP, _COMMA = (np.zeros(256, np.int8) for _ in range(3))
_BLANK[[*b" \t\r\n"]] = 1
_STEP[[*b"[{"]] = 1
_STEP[[*b"]}"]] = -1
_COMMA[[*b",:"]] = 1


class Structure(NamedTuple):
    """What a body of JSON has. values: at most so many, keys of objects included. depth: of lists
    and objects within one another. plain: bytes outside of texts, without blanks and signs."""

    values: int
    depth: int
    plain: int


def is_json(content_type: str) -> bool:
    """Whether a body of this content type is JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def check_json(body: bytes, limits: Limits, has_texts: bool = True) -> None:
    """Raise InvalidCall for a body of JSON that has too many values, or too deep ones, or a lone
    surrogate (has_texts=False: these are not looked for). What is not JSON is for others to
    refuse."""
    if len(body) > SMALL:
        check_structure(measure(body), limits)
    if has_texts:
        check_body(body)


def check_structure(found: Structure, limits: Limits) -> None:
    """Raise InvalidCall for what exceeds the limits."""
    if found.values > limits.max_values:
        allowed = f"at most {limits.max_values} values in a body (max_values)"
        raise InvalidCall("body", Shown(f"{found.values} values"), allowed)
    if found.depth > limits.max_depth:
        allowed = f"at most {limits.max_depth}: the body is nested too deeply"
        raise InvalidCall("body", Shown(f"{found.depth} levels"), allowed)
    if found.plain > SMALL + _MOST_DIGITS * found.values:
        raise InvalidCall("body", Shown("numbers of many digits"), "numbers of fewer digits")


def measure(body: bytes) -> Structure:
    """Count what a body of JSON has, in the encoding that `json.loads` finds, without parsing."""
    encoding = json.detect_encoding(body)
    if not encoding.startswith("utf-8"):
        with contextlib.suppress(ValueError):  # which is then not parsed either
            body = body.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")
    values, depth, deepest, plain = 1, 0, 0, 0
    in_text = is_escaped = False
    for start in range(0, len(body), _SLICE):
        part = np.frombuffer(body, np.uint8, min(_SLICE, len(body) - start), start)
        quotes, is_escaped = _quotes(part, is_escaped)
        inside = (np.cumsum(quotes) + in_text) & 1  # 0 at a closing quote
        in_text = bool(inside[-1])
        outside = part[(inside == 0) & ~quotes]
        steps = _STEP[outside]
        levels = depth + np.cumsum(steps, dtype=np.int64)
        num_commas = int(np.count_nonzero(_COMMA[outside]))
        num_blanks = int(np.count_nonzero(_BLANK[outside]))
        values += num_commas + int(np.count_nonzero(steps == 1))
        plain += len(outside) - num_commas - num_blanks - int(np.count_nonzero(steps))
        if len(levels):
            depth, deepest = int(levels[-1]), max(deepest, int(levels.max()))
    return Structure(values, deepest, plain)


def _quotes(part: npt.NDArray[np.uint8], is_escaped: bool) -> tuple[npt.NDArray[np.bool_], bool]:
    """Where texts begin and end: quotes that no backslash escapes. is_escaped: the first byte is;
    returned is the same of the byte after these."""
    quotes, slashes = part == _QUOTE, part == _BACKSLASH
    if is_escaped:
        quotes[0] = slashes[0] = False
    places = np.flatnonzero(slashes)
    if not len(places):
        return quotes, False
    is_first = np.diff(places, prepend=-2) != 1  # of a run of backslashes
    runs = places[is_first][np.cumsum(is_first) - 1]
    escaped = places[(places - runs) % 2 == 0] + 1
    quotes[escaped[escaped < len(part)]] = False
    return quotes, bool(escaped[-1] == len(part)) if len(escaped) else False
