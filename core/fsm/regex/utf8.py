"""UTF-8 one byte at a time: where in the code points a beginning of a character leads.

A prefix is the beginning of one character, as an int that is never 0: the number of bytes that
are still to come, and the bits read so far. Overlong forms and surrogates have no prefix.
"""

from __future__ import annotations

from typing import NamedTuple

BITS = 18
CONTINUATION = range(0x80, 0xC0)
_LEAST = (0, 0x80, 0x800, 0x10000)
_LEAST_BITS = (0, 0x20, 0x10)


class Split(NamedTuple):
    """A token's bytes: the end of one character, whole characters, the beginning of another.

    tail: the prefix that its last bytes form, or 0.
    """

    head: bytes
    text: str
    tail: int


def lead(byte: int) -> int:
    """The prefix that a first byte >= 0x80 opens, or 0 where no character begins with it."""
    if 0xC2 <= byte < 0xE0:
        return 1 << BITS | byte & 0x1F
    if 0xE0 <= byte < 0xF0:
        return 2 << BITS | byte & 0x0F
    if 0xF0 <= byte < 0xF5:
        return 3 << BITS | byte & 0x07
    return 0


def follow(prefix: int, byte: int) -> int:
    """The prefix after one more byte, or 0 where it cannot follow.

    Only where more than one byte is to come; the last byte makes a `code_point`.
    """
    to_come = (prefix >> BITS) - 1
    bits = (prefix & (1 << BITS) - 1) << 6 | byte & 0x3F
    start, end = bits << 6 * to_come, bits + 1 << 6 * to_come
    if byte not in CONTINUATION or bits < _LEAST_BITS[to_come]:
        return 0
    if start >= 0x110000 or (start >= 0xD800 and end <= 0xE000):
        return 0
    return to_come << BITS | bits


def code_point(prefix: int, byte: int) -> int:
    """The character that a last byte completes, or -1 where it cannot follow."""
    if byte not in CONTINUATION:
        return -1
    return (prefix & (1 << BITS) - 1) << 6 | byte & 0x3F


def num_missing(prefix: int) -> int:
    """How many bytes the character still needs."""
    return prefix >> BITS


def span(prefix: int) -> tuple[int, int]:
    """The half-open range of code points that begin so."""
    shift = 6 * num_missing(prefix)
    bits = prefix & (1 << BITS) - 1
    least = _LEAST[num_missing(prefix)]
    return max(bits << shift, least), min(bits + 1 << shift, 0x110000)


def split(data: bytes) -> Split | None:
    """Take a token's bytes apart; None where they are not part of any UTF-8 text."""
    start = 0
    while start < len(data) and data[start] in CONTINUATION:
        start += 1
    if start > 3:
        return None
    end = _tail_start(data, start)
    try:
        text = data[start:end].decode()
    except UnicodeDecodeError:
        return None
    tail = _prefix(data[end:]) if end < len(data) else 0
    return None if end < len(data) and not tail else Split(data[:start], text, tail)


def _tail_start(data: bytes, start: int) -> int:
    """Where an unfinished last character begins, or the end."""
    for index in range(len(data) - 1, max(start, len(data) - 4) - 1, -1):
        if data[index] >= 0xC0:
            prefix = lead(data[index])
            return index if num_missing(prefix) > len(data) - 1 - index else len(data)
        if data[index] < 0x80:
            break
    return len(data)


def _prefix(data: bytes) -> int:
    prefix = lead(data[0])
    for byte in data[1:]:
        prefix = follow(prefix, byte) if prefix else 0
    return prefix
