"""Where a text may be cut: behind lines and sentences, but not inside of what is open there.

Open are code fences, lines of a delimiter that comes again, tags, brackets and double quotes. What
is opened and never closed is open until the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .english import word_set
from .parts import PLACEHOLDER, Part, Piece, Placeholder, Stretch

_DELIMITER = re.compile(r'^[ \t]*(`{3,}|~{3,}|"{3}|\'{3}|([-=*#_+~])\2{2,})([^\n]*)$', re.MULTILINE)
_TAG = re.compile(r"<([A-Za-z][\w-]*)>")
_PAIRS = {"(": ")", "[": "]", "{": "}", "“": "”", "«": "»"}
_SENTENCE = re.compile(
    r"(?<=[.!?])(?<!\.\.)(?P<close>[\"”’»)\]*`]*)[ \t]+(?=[\"“«(\[*`]*(?:[A-Z]|"
    + PLACEHOLDER
    + r"))"
)
_LINE = re.compile(r"\s*\n\s*")
_ABBREVIATIONS = word_set(
    "e.g i.e etc vs cf mr mrs ms dr prof st no nr fig eq sec ch vol pp approx ca al inc ltd co corp"
    " jr sr u.s a.m p.m min max dept est ed eds"
)


def cut(pieces: Sequence[Piece], is_answered: bool = False) -> Stretch:
    """The parts of a text with placeholders. A text that holds the mark of a hole is one part."""
    text = "".join(piece if isinstance(piece, str) else PLACEHOLDER for piece in pieces)
    placeholders = [piece for piece in pieces if isinstance(piece, Placeholder)]
    if text.count(PLACEHOLDER) != len(placeholders):
        return Stretch((Part(0, tuple(pieces)),), is_answered=is_answered)
    inner = text.strip()
    start = len(text) - len(text.lstrip()) if inner else len(text)
    head, tail = text[:start], text[start + len(inner) :]
    left, parts, gap = iter(placeholders), list[Part](), ""
    for part, next_gap in _split(inner):
        parts.append(Part(len(parts), tuple(_filled(part, left)), gap))
        gap = next_gap
    return Stretch(tuple(parts), head, tail, is_answered)


def open_spans(text: str) -> list[tuple[int, int]]:
    """The ranges of a text inside of which nothing may be cut."""
    spans = list(_delimited(text))
    spans += [span for span in _tagged(text) if not _is_inside(span[0], spans)]
    return spans + list(_bracketed(text, spans))


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Parts, each with the blanks behind it."""
    spans, start = open_spans(text), 0
    for first, last in sorted(_positions(text)):
        if first < start or any(low < last and first < high for low, high in spans):
            continue
        yield text[start:first], text[first:last]
        start = last
    if start < len(text):
        yield text[start:], ""


def _positions(text: str) -> Iterator[tuple[int, int]]:
    """The ranges of blanks at which a text could be cut."""
    for found in _LINE.finditer(text):
        yield found.span()
    for found in _SENTENCE.finditer(text):
        if not _is_abbreviation(text[: found.start()]):
            yield found.end("close"), found.end()


def _is_abbreviation(before: str) -> bool:
    """Whether the point at the end of a text ends a word, or a list's number, and no sentence."""
    line = before.rpartition("\n")[2]
    if re.fullmatch(r"\s*(?:\d+|[A-Za-z])\.", line):
        return True
    words = line[:-1].split()
    word = words[-1].lower().lstrip("([\"'“") if words and line.endswith(".") else ""
    return word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word != "i")


def _delimited(text: str) -> Iterator[tuple[int, int]]:
    """Ranges between two lines of the same delimiter, or from one that has no second."""
    opened: re.Match[str] | None = None
    for found in _DELIMITER.finditer(text):
        is_plain = not found[3].strip()
        if opened is None:
            is_heading = found[2] == "#" and not is_plain
            is_sentence = found[2] is not None and not is_plain
            if not is_heading and not is_sentence:
                opened = found
        elif found[1] == opened[1] and is_plain:
            yield opened.start(), found.end()
            opened = None
    if opened is not None:
        yield opened.start(), len(text)


def _tagged(text: str) -> Iterator[tuple[int, int]]:
    end = 0
    for found in _TAG.finditer(text):
        if found.start() < end:
            continue
        closing = text.find(f"</{found[1]}>", found.end())
        if closing >= 0:
            end = closing + len(found[1]) + 3
            yield found.start(), end


def _bracketed(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges of brackets and double quotes, outside of the given spans."""
    opened: list[tuple[str, int]] = []
    for place, char in enumerate(text):
        if _is_inside(place, spans):
            continue
        if opened and char == opened[-1][0]:
            _, start = opened.pop()
            if not opened:
                yield start, place + 1
        elif char == '"' and (not opened or opened[-1][0] != '"'):
            opened.append(('"', place))
        elif char in _PAIRS:
            opened.append((_PAIRS[char], place))
    if opened:
        yield opened[0][1], len(text)


def _is_inside(place: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(low <= place < high for low, high in spans)


def _filled(text: str, placeholders: Iterator[Placeholder]) -> Iterator[Piece]:
    for index, part in enumerate(text.split(PLACEHOLDER)):
        if index:
            yield next(placeholders)
        if part:
            yield part
