"""Grammars in GBNF or EBNF, read into trees of texts.

GBNF is llama.cpp's notation. EBNF is that of the XML standard with its escapes: besides, texts in
single quotes, `#x41` for a character, `/* */` for comments, and `;` after a rule. Knows nothing of
what becomes of the trees.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from ...api.protocol import InvalidCall
from ..json_schema.patterns.spelling import SURROGATES, common
from ..regex.chars import Ranges, complement, single, union
from ..regex.tree import Alt, Loop, Ref, Seq, Set, Tree
from .matcher import FIELD

MAX_RULES = 1_000
MAX_DEPTH = 64
MAX_COUNT = 10_000
ANY: Ranges = complement(SURROGATES)
_COMMENTS = {"gbnf": r"\#[^\n]*", "ebnf": r"/\*.*?\*/|\#(?!x[0-9A-Fa-f])[^\n]*"}
_TOKEN = (
    r"|(?P<space>\s+)|(?P<define>::=)|(?P<code>\#x[0-9A-Fa-f]+)|(?P<name>[A-Za-z0-9_][A-Za-z0-9_-]*)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<class>\[(?:[^\]\\\n]|\\.)*\])|(?P<count>\{[^}\n]*\})|(?P<mark>[().|*+?;])"
)
_CHAR = re.compile(
    r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|#x([0-9A-Fa-f]+)|\\(.)|(.)",
    re.DOTALL,
)
_COUNT = re.compile(r"\{\s*(\d{1,9})\s*(?:(,)\s*(\d{1,9})?\s*)?\}")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"} | {char: char for char in "\\\"'[]-^/"}
REPEATS: Mapping[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class Token(NamedTuple):
    """A piece of the source, and where it begins."""

    kind: str
    text: str
    position: int


class Bnf(NamedTuple):
    """Rules by name, and the one whose texts are meant."""

    rules: Mapping[str, Tree]
    start: str


def read_bnf(source: str, syntax: str) -> Bnf:
    """Read a grammar; EBNF starts with `root` or its first rule. Raises InvalidCall with a line."""
    reader = _Reader(source, syntax)
    rules = reader.rules()
    start = "root" if "root" in rules or syntax == "gbnf" else next(iter(rules), "")
    if start not in rules:
        raise InvalidCall(FIELD, source, f"a grammar in {syntax} with a rule named root")
    return Bnf(rules, start)


class _Reader:
    """A source and a place in it."""

    def __init__(self, source: str, syntax: str) -> None:
        self._source = source
        self._is_ebnf = syntax == "ebnf"
        self._syntax = syntax
        self._tokens = self._read_tokens()
        self._next = 0

    def rules(self) -> dict[str, Tree]:
        """All rules, which may name each other in any order."""
        found: dict[str, Tree] = {}
        while self._peek().kind != "end":
            name = self._take()
            if name.kind != "name" or self._take().kind != "define":
                raise self._fault(name, "rules as 'name ::= ...'")
            if name.text in found:
                raise self._fault(name, "one definition of each rule")
            found[name.text] = self._either(0)
            if len(found) > MAX_RULES:
                raise self._fault(name, f"at most {MAX_RULES} rules")
        for token, after in pairwise(self._tokens):
            if token.kind == "name" and after.kind != "define" and token.text not in found:
                raise self._fault(token, "names of rules that are defined")
        return found

    def _read_tokens(self) -> list[Token]:
        pattern = re.compile(f"(?P<comment>{_COMMENTS[self._syntax]}){_TOKEN}", re.DOTALL)
        found, position = list[Token](), 0
        while position < len(self._source):
            match = pattern.match(self._source, position)
            kind = str(match.lastgroup) if match else ""
            text = match[0] if match else self._source[position]
            if match is None or (text[0] in "';" and not self._is_ebnf):
                raise self._fault(Token("", text, position), f"the notation of {self._syntax}")
            if kind not in ("space", "comment") and text != ";":
                found.append(Token(kind, text, position))
            position += len(text)
        return [*found, Token("end", "", position)]

    def _either(self, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise self._fault(self._peek(), f"groups at most {MAX_DEPTH} deep")
        options = [self._row(depth)]
        while self._peek().text == "|" and self._peek().kind == "mark":
            self._take()
            options.append(self._row(depth))
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def _row(self, depth: int) -> Tree:
        items: list[Tree] = []
        while not self._is_end_of_row():
            items.append(self._repeated(self._item(depth)))
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def _is_end_of_row(self) -> bool:
        token = self._peek()
        is_next_rule = token.kind == "name" and self._tokens[self._next + 1].kind == "define"
        return is_next_rule or token.kind == "end" or token.text in ("|", ")")

    def _item(self, depth: int) -> Tree:
        token = self._take()
        match token.kind, token.text:
            case "name", name:
                return Ref(name)
            case "text", text:
                return Seq(tuple(Set(single(char)) for char, _ in self._chars(token, text[1:-1])))
            case "class", text:
                return Set(self._class(token, text[1:-1]))
            case "code", text:
                return Set(single(self._char(token, text[2:])))
            case "mark", ".":
                return Set(ANY)
            case "mark", "(":
                inside = self._either(depth + 1)
                if self._take().text != ")":
                    raise self._fault(token, "a ) for each (")
                return inside
        raise self._fault(token, "texts in quotes, classes, groups and names of rules here")

    def _repeated(self, item: Tree) -> Tree:
        while (token := self._peek()).kind == "count" or token.text in REPEATS:
            self._take()
            low, high = REPEATS.get(token.text, (0, 0))
            if token.kind == "count":
                low, high = self._counts(token)
            item = Loop(item, low, high)
        return item

    def _counts(self, token: Token) -> tuple[int, int | None]:
        found = _COUNT.fullmatch(token.text)
        if found is None:
            raise self._fault(token, "counts as {2}, {2,} or {2,5}")
        low = int(found[1])
        high = (int(found[3]) if found[3] else None) if found[2] else low
        if max(low, high or 0) > MAX_COUNT or (high is not None and low > high):
            raise self._fault(token, f"counts that ascend, to at most {MAX_COUNT}")
        return low, high

    def _class(self, token: Token, text: str) -> Ranges:
        is_negated = text.startswith("^")
        chars = self._chars(token, text[is_negated:])
        parts: list[tuple[int, int]] = []
        while chars:
            low, _ = chars.pop(0)
            high = low
            if len(chars) >= 2 and chars[0] == ("-", False):
                high, _ = chars[1]
                del chars[:2]
            if low > high:
                raise self._fault(token, "ranges that ascend")
            parts.append((ord(low), ord(high) + 1))
        ranges = union(parts)
        found = common(ANY, complement(ranges) if is_negated else ranges)
        if not found:
            raise self._fault(token, "classes of at least one character")
        return found

    def _chars(self, token: Token, text: str) -> list[tuple[str, bool]]:
        """The characters of a text, and whether each was escaped."""
        found = []
        for match in _CHAR.finditer(text):
            *codes, escaped, plain = match.groups()
            code = next(filter(None, codes[: 4 if self._is_ebnf else 3]), None)
            if code is not None:
                found.append((self._char(token, code), True))
            elif escaped is not None:
                if escaped not in _ESCAPES:
                    raise self._fault(token, f"the escapes \\x \\u \\U and {' '.join(_ESCAPES)}")
                found.append((_ESCAPES[escaped], True))
            else:
                found += [(char, False) for char in plain or match[0]]
        return found

    def _char(self, token: Token, code: str) -> str:
        number = int(code, 16)
        if number > 0x10FFFF or 0xD800 <= number < 0xE000:
            raise self._fault(token, "characters of Unicode")
        return chr(number)

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _fault(self, token: Token, allowed: str) -> InvalidCall:
        line = self._source.count("\n", 0, token.position) + 1
        shown = repr(token.text) if token.text else "the end"
        return InvalidCall(FIELD, self._source, f"{allowed}; not {shown} in line {line}")
