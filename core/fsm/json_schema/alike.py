"""Follows a JSON text, byte by byte, as long as it can be one of a given value: in any spelling of
its numbers and texts, and with the properties of its objects in any order.

Immutable, as `tracker` is. Knows nothing of schemas, automata or tokens.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

BLANKS = b" \t\r\n"
NUMERIC = frozenset(b"-+.eE0123456789")
QUOTE, BACKSLASH, COLON, COMMA = b'"\\:,'
FIRST, AFTER, NAME, VALUE = range(4)  # behind "{", a property, a comma, a name
_HIGH = re.compile(rb"\\u[dD][89abAB]")  # of the two halves of a character
_ZEROS, _EXPONENTS = frozenset(b"-0."), frozenset(b"eE")
_ESCAPES: dict[str, str] = {char: json.loads(f'"\\{char}"') for char in '"\\/bfnrt'}
_SPELLED = {byte: json.dumps(chr(byte))[1:-1].encode() for byte in (*range(32), QUOTE, BACKSLASH)}


class _Begin(NamedTuple):
    """Before a value."""

    value: Any


class _Number(NamedTuple):
    """Inside a number. plain: how it is spelled without an exponent."""

    value: Any
    plain: bytes
    text: bytes


class _Word(NamedTuple):
    """Inside true, false or null."""

    left: bytes


class _String(NamedTuple):
    """Inside a string, which is one of several. left: of each what is still to come, and its whole
    text. escape: an escape that is not whole."""

    left: tuple[tuple[bytes, str], ...]
    is_name: bool
    escape: bytes = b""


class _List(NamedTuple):
    """Inside an array, of which so many items have begun."""

    values: list[Any]
    number: int


class _Record(NamedTuple):
    """Inside an object. done: names that were written. at: FIRST, AFTER, NAME or VALUE. name: whose
    value comes."""

    values: dict[str, Any]
    done: frozenset[str]
    at: int
    name: str = ""


_Place: TypeAlias = _Begin | _Number | _Word | _String | _List | _Record


class Alike(NamedTuple):
    """Where a text of a value has come to. places: what is open, the innermost last; none: the
    value is whole."""

    places: tuple[_Place, ...]

    @classmethod
    def to(cls, value: Any) -> Alike:
        """Before a text of this value."""
        return cls((_Begin(value),))

    def after(self, byte: int, has_exponent: bool = False) -> Alike | None:
        """The same after one more byte; None where the value can be another only, also if the
        number that this is part of gets no exponent. has_exponent: it may get one."""
        if not self.places:
            return self if byte in BLANKS else None
        above, place = self.places[:-1], self.places[-1]
        if isinstance(place, _String):
            return _in_string(above, place, byte)
        if isinstance(place, _Number):
            if byte in NUMERIC:
                text = place.text + bytes((byte,))
                leads = has_exponent or _leads(text, place)
                return Alike((*above, place._replace(text=text))) if leads else None
            return Alike(above).after(byte) if _is_number(place.text, place.value) else None
        if isinstance(place, _Word):
            if place.left[0] != byte:
                return None
            return Alike((*above, _Word(place.left[1:])) if place.left[1:] else above)
        if byte in BLANKS:
            return self
        if isinstance(place, _Begin):
            return _started(above, place.value, byte, has_exponent)
        if isinstance(place, _List):
            return _in_list(above, place, byte)
        return _in_record(above, place, byte)

    @property
    def rests(self) -> tuple[bytes, ...]:
        """How the innermost string, number or word may go on, or what may come next."""
        place = self.places[-1] if self.places else None
        match place:
            case _Begin(value=value):
                text = json.dumps(value, ensure_ascii=False).encode()
                return (text[:1] if isinstance(value, list | dict) else text,)
            case _Number(plain=plain, text=written):
                return (plain[len(written) :],) if plain.startswith(written) else (b"0",)
            case _Word(left=left):
                return (left,)
            case _String(left=left, escape=escape):
                return () if escape else tuple(_spelled(it) + b'"' for it, _ in left)
            case _List(values=values, number=number):
                return (b"]" if number == len(values) else b",",)
            case _Record(values=values, done=done, at=at):
                if at in (FIRST, AFTER) and len(done) == len(values):
                    return (b"}",)
                return ({FIRST: b'"', AFTER: b",", NAME: b'"', VALUE: b":"}[at],)
        return ()


def _started(above: tuple[_Place, ...], value: Any, byte: int, has_exponent: bool) -> Alike | None:
    """Behind the first byte of a value."""
    first = bytes((byte,))
    match value:
        case True | False | None:
            word = json.dumps(value).encode()
            return Alike((*above, _Word(word[1:]))) if word[:1] == first else None
        case int() | float():
            number = _Number(value, _plain(value), first)
            leads = byte in NUMERIC and (has_exponent or _leads(first, number))
            return Alike((*above, number)) if leads else None
        case str():
            left = ((value.encode("utf-8", "surrogatepass"), value),)
            return Alike((*above, _String(left, False))) if first == b'"' else None
        case list():
            inside = (_List(value, 1), _Begin(value[0])) if value else (_List(value, 0),)
            return Alike((*above, *inside)) if first == b"[" else None
    return Alike((*above, _Record(value, frozenset(), FIRST))) if first == b"{" else None


def _in_list(above: tuple[_Place, ...], place: _List, byte: int) -> Alike | None:
    values, number = place
    if byte == COMMA and 0 < number < len(values):
        return Alike((*above, _List(values, number + 1), _Begin(values[number])))
    return Alike(above) if byte == ord("]") and number == len(values) else None


def _in_record(above: tuple[_Place, ...], place: _Record, byte: int) -> Alike | None:
    values, done, at, name = place
    if at == VALUE:
        inside = (_Record(values, done | {name}, AFTER), _Begin(values[name]))
        return Alike((*above, *inside)) if byte == COLON else None
    if byte == QUOTE and at in (FIRST, NAME):
        left = tuple((it.encode("utf-8", "surrogatepass"), it) for it in values if it not in done)
        return Alike((*above, place, _String(left, True))) if left else None
    if byte == COMMA and at == AFTER and len(done) < len(values):
        return Alike((*above, place._replace(at=NAME)))
    is_end = byte == ord("}") and at in (FIRST, AFTER) and len(done) == len(values)
    return Alike(above) if is_end else None


def _in_string(above: tuple[_Place, ...], place: _String, byte: int) -> Alike | None:
    if place.escape or byte == BACKSLASH:
        escape = place.escape + bytes((byte,))
        char = _unescaped(escape)
        if char is None:
            return Alike((*above, place._replace(escape=escape)))
        return _with_bytes(above, place, char.encode("utf-8", "surrogatepass"))
    if byte != QUOTE:
        return _with_bytes(above, place, bytes((byte,)))
    whole = next((text for left, text in place.left if not left), None)
    if whole is None:
        return None
    if not place.is_name:
        return Alike(above)
    record = above[-1]
    assert isinstance(record, _Record)
    return Alike((*above[:-1], record._replace(at=VALUE, name=whole)))


def _with_bytes(above: tuple[_Place, ...], place: _String, data: bytes) -> Alike | None:
    left = tuple((it[len(data) :], text) for it, text in place.left if it.startswith(data))
    return Alike((*above, _String(left, place.is_name))) if left else None


def _unescaped(escape: bytes) -> str | None:
    """The character of an escape; None where it is not whole."""
    if len(escape) < 2:
        return None
    if escape[1:2] != b"u":
        return _ESCAPES.get(chr(escape[1]), "")
    is_high = _HIGH.match(escape) is not None
    if len(escape) < (12 if is_high else 6):
        return None
    try:
        return str(json.loads(b'"' + escape + b'"'))
    except ValueError:
        return ""


@lru_cache(4096)
def _plain(value: int | float) -> bytes:
    plain = format(Decimal(repr(value)), "f") if math.isfinite(value) else repr(value)
    return (plain.rstrip("0").rstrip(".") if "." in plain else plain).encode()


def _leads(text: bytes, number: _Number) -> bool:
    """Whether a number that begins like this may be equal, if it has an exponent by now or gets
    none."""
    if number.plain in (b"0", b"-0"):
        return set(text.lower().partition(b"e")[0]) <= _ZEROS
    if number.plain.startswith(text) or _EXPONENTS & set(text):
        return True
    rest = text[len(number.plain) :] if text.startswith(number.plain) else b"?"
    return set(rest) <= _ZEROS and (b"." not in rest or b"." not in number.plain)


def _is_number(text: bytes, value: Any) -> bool:
    try:
        return bool(json.loads(text) == value)
    except ValueError:
        return False


def _spelled(left: bytes) -> bytes:
    return b"".join(_SPELLED.get(byte, bytes((byte,))) for byte in left)
