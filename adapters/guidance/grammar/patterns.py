"""Guidance's nodes as one pattern, where a pattern says them.

An automaton costs a runtime less for each token than a grammar does. Knows nodes and no runtime.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from guidance._ast import (
    GrammarNode,
    JoinNode,
    JsonNode,
    LiteralNode,
    RegexNode,
    RepeatNode,
    RuleNode,
    SelectNode,
)

from .schema import JsonLark, json_lark

MAX_LENGTH = 4_000  # characters; from here on a grammar is the quicker one to prepare
MAX_COUNT = 100  # of one repetition: automata write them out
ANY_TEXT = "(?s:.*)"
_OTHER = re.compile(  # what Guidance's patterns may mean otherwise than ours: words, case, sets
    r"\\(?![dDnrtfxu])[a-zA-Z]|\\[xu]\{|\(\?(?!:|s:|P<)|&&|~~|--|\[\["
)
_COUNTED = re.compile(r"\{(\d*),?(\d*)\}")
_PIECES = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")|/(?P<regex>(?:[^/\\]|\\.)*)/|(?P<name>\w+)|(?P<sign>[()|?*])|\s+'
)


class _UnsupportedNode(Exception):
    """No pattern says this, or only a long one."""


def pattern_of(nodes: Sequence[GrammarNode]) -> str | None:
    """A pattern of all texts of these nodes, one after the other, which have no limits of their
    own; None where there is none, or a grammar does better."""
    try:
        found = "".join(map(_pattern, nodes))
    except (_UnsupportedNode, RecursionError):
        return None
    return found if len(found) <= MAX_LENGTH else None


def pattern_until(end: str | None) -> str | None:
    """A pattern of any text up to the first of these characters, it included; of any text at all
    where `end` is None; None where no short one says it."""
    if end is None:
        return ANY_TEXT
    return f"[^{re.escape(end)}]*{re.escape(end)}" if len(end) == 1 else None


def _pattern(node: GrammarNode) -> str:
    match node:
        case LiteralNode(value=value):
            return re.escape(value)
        case RegexNode(regex=regex):
            return ANY_TEXT if regex is None else f"(?:{_counted(regex)})"
        case RuleNode(value=value):
            return _pattern(value)
        case SelectNode(alternatives=alternatives):
            return f"(?:{'|'.join(map(_pattern, alternatives))})"
        case JoinNode(nodes=parts):
            return "".join(map(_pattern, parts))
        case RepeatNode(node=inner, min=low, max=high):
            most = "" if high is None else str(high)
            return _counted(f"(?:{_pattern(inner)}){{{low},{most}}}")
        case JsonNode():
            lark = json_lark(node)
            if lark is not None:
                return f"(?:{_inlined(lark)})"
    raise _UnsupportedNode


def _counted(pattern: str) -> str:
    """The pattern, unless automata take too long over its counts, or it may mean another."""
    counts = (int(count) for found in _COUNTED.findall(pattern) for count in found if count)
    if _OTHER.search(pattern) or max(counts, default=0) > MAX_COUNT:
        raise _UnsupportedNode
    return pattern


def _inlined(lark: JsonLark) -> str:
    """The pattern of rules, each written where it is named."""
    known: dict[int, str] = {}
    open_rules: set[int] = set()

    def written(index: int) -> str:
        if index in open_rules:
            raise _UnsupportedNode  # it is part of itself
        if index not in known:
            open_rules.add(index)
            known[index] = "".join(pieces(lark.bodies[index]))
            open_rules.remove(index)
        if len(known[index]) > MAX_LENGTH:
            raise _UnsupportedNode
        return f"(?:{known[index]})"

    def pieces(body: str) -> Iterator[str]:
        for found in _PIECES.finditer(body.replace("\0", "")):
            kind, lexeme = found.lastgroup, found[found.lastgroup or 0]
            if kind == "text":
                yield f"(?:{re.escape(json.loads(lexeme))})"
            elif kind == "regex":
                yield f"(?:{_counted(lexeme.replace(chr(92) + '/', '/'))})"
            elif kind == "name":
                yield written(int(lexeme.removeprefix("v")))
            elif kind == "sign":
                yield "(?:" if lexeme == "(" else lexeme

    return written(0)
