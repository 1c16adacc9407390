"""How JSON spells texts and values, as patterns. Knows nothing of schemas.

A character of a constrained text has one spelling, that of `json.dumps(..., ensure_ascii=False)`:
itself, or an escape where JSON forbids it. Free texts may use every escape of JSON (surrogates come
in pairs only); long counted ones keep to short escapes, which makes a tenth of the automaton.
"""

from __future__ import annotations

import functools
import json
import math
import re
from typing import Any

from ....api.protocol import COMPACT
from ...regex.chars import Ranges, complement, union
from ...regex.errors import InvalidSchema

SHORT = {0x08: "b", 0x09: "t", 0x0A: "n", 0x0C: "f", 0x0D: "r", 0x22: '"', 0x5C: "\\"}
PLAIN: Ranges = ((0x20, 0x22), (0x23, 0x5C), (0x5D, 0xD800), (0xE000, 0x110000))
SURROGATES: Ranges = ((0xD800, 0xE000),)
_HEX = "[0-9A-Fa-f]"
_PAIR = rf"[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]{_HEX}{{2}}"
_UNIT = rf"(?:[0-9A-CE-Fa-ce-f]{_HEX}{{3}}|[Dd][0-7]{_HEX}{{2}}|{_PAIR})"
_SPECIAL = r"\.^$*+?{}[]|()-"
_CHANGED = re.compile(r"[\\.^$*+?{}\[\]|()\-]|[^ -~\U00010000-\U0010ffff]")
_IN_CLASS = r"\]^[-&~|"


def literal(text: str) -> str:
    """A pattern of this text alone."""
    return _CHANGED.sub(lambda found: _shown(found[0], _SPECIAL), text)


def kind_of(value: object) -> str:
    """The JSON type of a value; an integer may be written with a point."""
    match value:
        case bool():
            return "boolean"
        case None:
            return "null"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "integer" if math.isfinite(value) and value == int(value) else "number"
        case list() | tuple():
            return "array"
    return "object"


def value_text(value: object, separators: tuple[str, str] = COMPACT) -> str:
    """JSON of a value; raises InvalidSchema where it has none."""
    try:
        text = _encoder(separators).encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise InvalidSchema(
            "finite JSON values of moderate depth, without lone surrogates"
        ) from None
    return text


@functools.cache
def _encoder(separators: tuple[str, str]) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, separators=separators, allow_nan=False)


def value_key(value: Any) -> str:
    """Equal for equal values, as JSON Schema has it: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(_with_integers(value), sort_keys=True)


def _with_integers(value: Any) -> Any:
    """The same value, with whole numbers as integers."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list() | tuple():
            return [_with_integers(item) for item in value]
        case dict():
            return {str(name): _with_integers(item) for name, item in value.items()}
    return value


def alternatives(options: list[str]) -> str:
    """One pattern for any of these, none of which may be missing."""
    options = list(dict.fromkeys(options))
    return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"


@functools.lru_cache(maxsize=1_024)
def one_char(ranges: Ranges) -> str:
    """A pattern of the JSON spelling of any one character of the set, which is not empty."""
    plain = common(ranges, PLAIN)
    codes = [code for code in (*range(0x20), 0x22, 0x5C) if contains(ranges, code)]
    short = "".join(_shown(SHORT[code], _IN_CLASS) for code in codes if code in SHORT)
    long = [f"{code:02x}" for code in codes if code not in SHORT]
    escapes = [rf"\\[{short}]"] if short else []
    for high in "01":
        lows = "".join(text[1] for text in long if text[0] == high)
        escapes += [rf"\\u00{high}[{lows}]"] if lows else []
    return alternatives([*([char_class(plain)] if plain else []), *escapes])


def char_class(ranges: Ranges) -> str:
    """A pattern of any one character of the set, as itself."""
    first = ranges[0]
    if len(ranges) == 1 and first[1] - first[0] == 1:
        return literal(chr(first[0]))
    return f"[{''.join(_span(start, end - 1) for start, end in ranges)}]"


def contains(ranges: Ranges, code: int) -> bool:
    """Whether the set holds this code point."""
    return any(start <= code < end for start, end in ranges)


def common(one: Ranges, other: Ranges) -> Ranges:
    """The code points that lie in both sets."""
    return complement(union([*complement(one), *complement(other)]))


def _span(first: int, last: int) -> str:
    low, high = _shown(chr(first), _IN_CLASS), _shown(chr(last), _IN_CLASS)
    return low if first == last else f"{low}-{high}"


def _shown(char: str, special: str) -> str:
    if char in special:
        return "\\" + char
    if " " <= char <= "~" or ord(char) > 0xFFFF:
        return char
    return f"\\u{ord(char):04x}"


FREE_CHAR = rf'(?:{char_class(PLAIN)}|\\(?:["\\/bfnrt]|u{_UNIT}))'
LEAN_CHAR = rf'(?:{char_class(PLAIN)}|\\["\\/bfnrt])'
