"""The shortest text of each rule of a grammar, from the definitions (Knuth, "A generalization of
Dijkstra's algorithm", 1977).

A search by a matcher finds an end where it lies near; this one finds it also where an answer needs
something that nothing leads to, as an array that must hold one certain item among any others.
A definition that this module does not read has no text here, nor has what needs it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from time import thread_time

from ...api.protocol import InvalidCall
from ..regex.chars import single
from ..regex.limits import Limits, Meter
from ..regex.syntax import read_syntax
from ..regex.tree import Alt, Capture, Loop, Ref, Seq, Set, Tree
from .bnf import REPEATS
from .lark import Lark, Piece, pattern_of

MAX_PIECES = 200_000
MAX_ROUNDS = 60
MAX_TEXT = 2_000  # characters
MAX_SECONDS = 1.0
_LIMITS = Limits(length=100_000, positions=100_000, seconds=0.5)
_OTHER = re.compile(r"\{\s*\d*\s*(?:,\s*\d*\s*)?\}|~\s*\d+(?:\s*\.\.\s*\d+)?|->|\.\.|\S")
_FEW_LETTERS = "0aA"  # those that an answer is likely to spell in few tokens
_PRINTABLE = range(0x20, 0x7F)


def shortest_texts(lark: Lark, seconds: float = MAX_SECONDS) -> dict[str, str]:
    """The shortest text of each rule and terminal for which one is found, by name. seconds: of
    processor time, after which no further definition is read."""
    if sum(map(len, lark.parts.values())) > MAX_PIECES:
        return {}
    trees, ends_at = dict[str, Tree](), thread_time() + seconds
    for name, pieces in lark.parts.items():
        if thread_time() > ends_at:
            break
        with suppress(_Unread):
            trees[name] = _Definition(pieces).tree()
    found, is_new = dict[str, str](), True
    for _ in range(MAX_ROUNDS):
        if not is_new:
            break
        is_new = False
        for name, tree in trees.items():
            text = _shortest(tree, found)
            if text is not None and (name not in found or len(text) < len(found[name])):
                found[name] = text
                is_new = True
    return found


def _shortest(tree: Tree, known: Mapping[str, str]) -> str | None:
    """The shortest text of a tree; None: none is known."""
    match tree:
        case Set(ranges=ranges):
            return _char(ranges) if ranges else None
        case Ref(name=name):
            return known.get(name)
        case Capture(item=item):
            return _shortest(item, known)
        case Seq(items=items):
            texts = list[str]()
            for item in items:
                text = _shortest(item, known)
                if text is None:
                    return None
                texts.append(text)
            return _short("".join(texts))
        case Alt(options=options):
            found = [text for it in options if (text := _shortest(it, known)) is not None]
            return min(found, key=len, default=None)
        case Loop(item=item, low=low):
            text = _shortest(item, known) if low else ""
            return None if text is None or len(text) * low > MAX_TEXT else text * low
    return None


def _short(text: str) -> str | None:
    return text if len(text) <= MAX_TEXT else None


def _char(ranges: Sequence[tuple[int, int]]) -> str:
    """A character of a set: a usual one, where there is any."""
    for char in _FEW_LETTERS:
        if any(low <= ord(char) < end for low, end in ranges):
            return char
    for low, end in ranges:
        first = max(low, _PRINTABLE.start)
        if first < min(end, _PRINTABLE.stop):
            return chr(first)
    return chr(ranges[0][0])


class _Unread(Exception):
    """A definition has something that is not read here."""


class _Definition:
    """Reads one definition: a name, a colon, and what it stands for."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._tokens = list(_tokens(pieces))
        self._at = 0

    def tree(self) -> Tree:
        """What the name stands for. Raises _Unread."""
        depth = 0
        while (found := self._next()) != ("other", ":") or depth:
            depth += (found[1] == "[") - (found[1] == "]") if found[0] == "other" else 0
        tree = self._options()
        if self._peek() is not None:
            raise _Unread
        return tree

    def _options(self) -> Tree:
        options = [self._sequence()]
        while self._peek() == ("other", "|"):
            self._next()
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def _sequence(self) -> Tree:
        items = list[Tree]()
        while (found := self._peek()) is not None and found not in _ENDS:
            items.append(self._repeated(self._item()))
            if self._peek() == ("other", "->"):
                self._next()
                self._next()
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def _item(self) -> Tree:
        kind, text = self._next()
        if kind == "name":
            return Ref(text)
        if kind == "text":
            tree = _literal(text) if text[0] == '"' else _pattern(text)
            if self._peek() == ("other", ".."):
                self._next()
                self._next()
            return tree
        if text in _CLOSERS:
            tree = self._options()
            if self._next() != ("other", _CLOSERS[text]):
                raise _Unread
            return tree if text == "(" else Loop(tree, 0, 1)
        raise _Unread

    def _repeated(self, tree: Tree) -> Tree:
        while (found := self._peek()) is not None and found[0] == "other":
            text = found[1]
            if text in REPEATS:
                tree = Loop(tree, *REPEATS[text])
            elif text[0] in "~{" and (count := re.search(r"\d+", text)):
                tree = Loop(tree, 0 if text[1:].lstrip().startswith(",") else int(count[0]), None)
            else:
                break
            self._next()
        return tree

    def _peek(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        if found is None:
            raise _Unread
        self._at += 1
        return found


_CLOSERS = {"(": ")", "[": "]"}
_ENDS = (("other", "|"), ("other", ")"), ("other", "]"))


def _tokens(pieces: Sequence[Piece]) -> Iterator[tuple[str, str]]:
    """(kind, text) pairs: names without marks, texts with their quotes, and single marks. Flags
    behind a text are left out: one of its own texts matches still."""
    joined, end = "", -1
    for piece in pieces:
        if piece.kind == "comment":
            continue
        if piece.kind == "other":
            joined += piece.text
            continue
        yield from (("other", mark) for mark in _OTHER.findall(joined))
        is_flags = piece.kind == "name" and not joined and piece.end - len(piece.text) == end > 0
        joined, end = "", piece.end if piece.kind == "text" else -1
        if piece.kind not in ("name", "text"):
            raise _Unread
        if not is_flags:
            yield piece.kind, piece.text.lstrip("!?") if piece.kind == "name" else piece.text
    yield from (("other", mark) for mark in _OTHER.findall(joined))


def _literal(text: str) -> Tree:
    try:
        return Seq(tuple(Set(single(char)) for char in json.loads(text)))
    except ValueError:  # an escape that JSON does not have
        raise _Unread from None


def _pattern(text: str) -> Tree:
    pattern = pattern_of(text)
    try:
        return read_syntax(pattern, Meter("grammar", pattern, _LIMITS))
    except (InvalidCall, RecursionError):
        raise _Unread from None
