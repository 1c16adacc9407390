"""Grammars in any of the notations that a call may use, as Lark."""

from __future__ import annotations

from ...api.protocol import InvalidCall
from .bnf import read_bnf
from .lark import Lark, read_lark
from .terminals import Terminals

SYNTAXES = ("lark", "gbnf", "ebnf")
MAX_LENGTH = 200_000


def read_grammar(source: str, syntax: str) -> Lark:
    """Read a grammar. Raises InvalidCall."""
    if syntax not in SYNTAXES:
        raise InvalidCall("grammar", syntax, f"the syntaxes {', '.join(SYNTAXES)}")
    if len(source) > MAX_LENGTH:
        raise InvalidCall("grammar", source, f"at most {MAX_LENGTH} characters")
    return read_lark(source if syntax == "lark" else Terminals(read_bnf(source, syntax)).lark())
