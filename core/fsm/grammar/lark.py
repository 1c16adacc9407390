"""Grammars in Lark, as llguidance reads them: what is refused, and which rules there are.

Tokens that are not text, and what would change how tokens are sampled, are refused by name. A
schema inside (`%json {...}`) is read as every other schema is. The rest is for llguidance to judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from string import ascii_letters
from typing import NamedTuple

from ...api.dialects import log_ignored
from ...api.protocol import COMPACT, InvalidCall, Shown
from ..regex.errors import value_at
from .bnf import read_bnf
from .matcher import FIELD
from .rules import schema_rules
from .terminals import Terminals

MAX_RULES, MAX_SCHEMA_RULES = 1_000, 20_000  # rules and terminals
MAX_OPTIONS, MAX_SCHEMA_OPTIONS = 500, 2_000
MAX_LENGTH = 200_000
SYNTAXES = ("lark", "gbnf", "ebnf")
START = "start"
ATTRIBUTES = frozenset(("capture", "lazy", "suffix"))
_BLANKS = " \t\n\r"
_PIECE = re.compile(
    r"(?P<comment>(?://|\#)[^\n]*)"
    r'|(?P<text>"(?:[^"\\\n]|\\.)*"|/(?:[^/\\\n]|\\.)+/)'
    r"|(?P<json>%json\b\s*)"
    r"|(?P<directive>%\w+)"
    r"|(?P<special><[^>\n]*>)"
    r"|(?P<name>[!?_]*[A-Za-z][\w-]*)"
    r"|(?P<other>\s+|.)",
    re.DOTALL,
)
_WRITTEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|/(?:[^/\\\n]|\\.)+/|[A-Za-z][\w-]*|\n|[^"/A-Za-z\n]+')
_KINDS = {'"': "text", "/": "text", **dict.fromkeys(ascii_letters, "name")}
_ATTRIBUTES = re.compile(r"(?:[^\]\"]|\"(?:[^\"\\\n]|\\.)*\")*\]\s*:")
_ATTRIBUTE = re.compile(r"([A-Za-z_]+)\s*(?:=|,|\])")


class Piece(NamedTuple):
    """A piece of the source: its kind, its text, and the place after it."""

    kind: str
    text: str
    end: int


class Lark(NamedTuple):
    """A grammar.

    parts: what defines each name, and under "" what belongs to none. literals: the texts in quotes.
    """

    source: str
    parts: dict[str, list[Piece]]
    literals: tuple[bytes, ...]

    @property
    def rules(self) -> list[str]:
        """The names of the rules, terminals not among them."""
        return [name for name in self.parts if name.lstrip("_").islower()]

    @property
    def quoted(self) -> list[str]:
        """The patterns of terminals that are texts in quotes, a pattern each."""
        found = list[str]()
        for name, pieces in self.parts.items():
            texts = [piece.text for piece in pieces if piece.kind == "text"]
            if name.isupper() and len(texts) == 1 and texts[0].startswith('/"'):
                found.append(pattern_of(texts[0]))
        return found

    def started_at(self, rule: str) -> str:
        """A grammar of the texts of one rule."""
        names, reached = [rule], {"": None}
        while names:
            name = names.pop()
            if name in self.parts and name not in reached:
                reached[name] = None
                names += [_bare(piece) for piece in self.parts[name] if piece.kind == "name"]
        texts = [
            f"{START}-of-all" if rule != START and _bare(piece) == START else piece.text
            for name in reached
            for piece in self.parts.get(name, ())
        ]
        start = "" if rule == START else f"\n{START}: {rule}\n"
        return "".join(texts) + start


def pattern_of(text: str) -> str:
    """The pattern between the slashes of a text."""
    return text[1:-1].replace("\\/", "/")


def read_grammar(source: str, syntax: str) -> Lark:
    """Read a grammar in any of the notations that a call may use. Raises InvalidCall."""
    if syntax not in SYNTAXES:
        raise InvalidCall("grammar", syntax, f"the syntaxes {', '.join(SYNTAXES)}")
    if len(source) > MAX_LENGTH:
        raise InvalidCall("grammar", source, f"at most {MAX_LENGTH} characters")
    return read_lark(source if syntax == "lark" else Terminals(read_bnf(source, syntax)).lark())


def read_lark(source: str, field: str = FIELD) -> Lark:
    """Check a grammar, and write out the schemas in it. Raises InvalidCall for `field`."""
    written, more = list[str](), list[str]()
    pieces = list(_pieces(source))
    for piece in pieces:
        text = piece.text
        if piece.kind == "special":
            raise refuse(source, piece, "text (special tokens are not allowed)")
        if piece.kind == "json":
            text, rules = _schema(source, piece, f"json-{len(more)}-")
            more.append(rules)
        if piece.kind == "other" and text == "[":
            _check_attributes(source, piece)
        written.append(text)
    whole = "".join([*written, "\n", *more])
    pieces = list(_pieces(whole))
    parts = _parts(pieces)
    lark = Lark(whole, parts, _literals(pieces))
    _check_size(lark, field, source if field == FIELD else "#", MAX_RULES, MAX_OPTIONS)
    return lark


def written_lark(source: str, field: str) -> Lark:
    """The grammar that `rules` wrote, a definition on each line; it may be larger than one that a
    caller wrote. Raises InvalidCall for `field`."""
    parts: dict[str, list[Piece]] = {}
    for line in source.splitlines(keepends=True):
        pieces = [Piece(_KINDS.get(text[0], "other"), text, 0) for text in _WRITTEN.findall(line)]
        pieces[0] = pieces[0]._replace(kind="name")
        parts[pieces[0].text] = pieces
    literals = _literals([piece for pieces in parts.values() for piece in pieces])
    lark = Lark(source, parts, literals)
    _check_size(lark, field, "#", MAX_SCHEMA_RULES, MAX_SCHEMA_OPTIONS)
    return lark


def _check_size(lark: Lark, field: str, value: str, most: int, most_options: int) -> None:
    if len(lark.parts) > most:
        allowed = f"at most {most} rules and terminals; this one has {len(lark.parts)}"
        raise InvalidCall(field, value, allowed)
    for rule in lark.rules:
        others = (piece.text for piece in lark.parts[rule] if piece.kind == "other")
        if sum(text.count("|") for text in others) >= most_options:
            allowed = f"at most {most_options} alternatives in a rule (any number in a terminal)"
            raise InvalidCall(field, value, f"{allowed}; {rule!r} has more")


def refuse(source: str, piece: Piece, allowed: str) -> InvalidCall:
    """The error for a piece, with its line."""
    line = source.count("\n", 0, piece.end) + 1
    return InvalidCall(
        FIELD, source, f"grammars of {allowed}: {piece.text.strip()!r} in line {line}"
    )


def _pieces(source: str) -> Iterator[Piece]:
    position = 0
    while found := _PIECE.match(source, position):
        kind, position = str(found.lastgroup), found.end()
        if kind == "json":
            position = _json_end(source, position)
        yield Piece(kind, source[found.start() : position], position)


def _json_end(source: str, start: int) -> int:
    try:
        return json.JSONDecoder().raw_decode(source, start)[1]
    except (ValueError, RecursionError) as error:
        raise refuse(source, Piece("json", "%json", start), f"JSON after %json ({error})") from None


def _schema(source: str, piece: Piece, prefix: str) -> tuple[str, str]:
    """The name of the rule of a schema, and its rules."""
    schema = json.loads(piece.text.removeprefix("%json"))
    log_ignored(schema, f"{FIELD}: %json")
    try:
        return schema_rules(schema, prefix, _separators(schema))
    except InvalidCall as error:
        raise InvalidCall(FIELD, _shown(schema, str(error.value)), error.allowed) from None


def _shown(schema: object, pointer: str) -> Shown:
    """A pointer into a schema, and the value there."""
    try:
        return Shown(f"%json {pointer}={value_at(schema, pointer)!r}")
    except LookupError:
        return Shown(f"%json {pointer}")


def _separators(schema: object) -> tuple[str, str]:
    """The separators that a schema of guidance's sets: a comma or colon and blanks."""
    match schema:
        case {"x-guidance": {"item_separator": str() as comma, "key_separator": str() as colon}}:
            if comma.strip(_BLANKS) == "," and colon.strip(_BLANKS) == ":":
                return comma, colon
    return COMPACT


def _literals(pieces: list[Piece]) -> tuple[bytes, ...]:
    """The texts in quotes, the shortest first."""
    found = set()
    for piece in pieces:
        if piece.kind == "text" and piece.text[0] == '"':
            try:
                found.add(json.loads(piece.text).encode())
            except ValueError:  # an escape that JSON does not have
                continue
    return tuple(sorted(found - {b""}, key=lambda text: (len(text), text)))


def _parts(pieces: list[Piece]) -> dict[str, list[Piece]]:
    """As `Lark.parts`: a definition goes on to the next one, or to a directive."""
    parts: dict[str, list[Piece]] = {}
    name = ""
    for i, piece in enumerate(pieces):
        if piece.kind == "directive":
            name = ""
        elif piece.kind == "name" and _is_defined(pieces, i):
            name = _bare(piece)
        parts.setdefault(name, []).append(piece)
    return parts


def _is_defined(pieces: list[Piece], i: int) -> bool:
    """Whether a definition begins with this name: it opens a line, and a colon follows."""
    before = pieces[i - 1] if i else None
    if before is not None and before.kind != "comment" and "\n" not in before.text:
        return False
    rest = "".join([piece.text for piece in pieces[i + 1 : i + 40]])
    return re.match(r"\s*(?:\.-?\d+)?\s*(?:\[[^\n]*\])?\s*:", rest) is not None


def _bare(piece: Piece) -> str:
    """A name without the marks that may come before it."""
    return piece.text.lstrip("!?") if piece.kind == "name" else ""


def _check_attributes(source: str, piece: Piece) -> None:
    found = _ATTRIBUTES.match(source, piece.end)
    for name in _ATTRIBUTE.findall(found[0] if found else ""):
        if name not in ATTRIBUTES:
            raise refuse(source, piece._replace(text=name), f"the attributes {sorted(ATTRIBUTES)}")
