"""Grammars of programs, prepared once: the parser of each, and which calls it allows.

Programs write the same grammars again and again, in loops and in threads.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from typing import Any

import llguidance
from guidance._ast import GrammarNode, JoinNode, LiteralNode, SpecialToken

from .grammar.plan import Route, has_limit
from .tokens import FolderTokenizer

MOST_GRAMMARS = 128


@dataclass(frozen=True, slots=True)
class _Source:
    """A grammar, known by its text."""

    text: str
    node: GrammarNode = field(compare=False)


class Grammars:
    """The grammars that were used last, for one tokenizer. Safe for threads."""

    def __init__(self, tokenizer: FolderTokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._prepared = lru_cache(MOST_GRAMMARS)(self._prepare)

    def start(self, node: GrammarNode) -> tuple[Any, Route]:
        """A parser of its own at the start of a grammar, and the steps of it. Raises ValueError for
        a grammar that is not sound."""
        parser, route = self._prepared(_Source(node.ll_grammar(), node))
        with self._lock:
            return parser.deep_copy(), route

    def _prepare(self, source: _Source) -> tuple[Any, Route]:
        parser = llguidance.LLInterpreter(
            self._tokenizer._ll_tokenizer,
            source.text,
            True,  # it may take tokens back
            True,  # and give forced ones
            log_level=int(os.environ.get("LLGUIDANCE_LOG_LEVEL", "1")),
        )
        return parser, Route(source.node)


def led_by(node: GrammarNode, tokenizer: FolderTokenizer, prompt: str) -> tuple[str, GrammarNode]:
    """The text that a grammar begins with, and the grammar of what follows it, which is null where
    nothing does; so that grammars with other texts before them are the same.

    What comes first is the same for Guidance whether it is a part of the prompt or of the grammar,
    but for special tokens: a text that spells one stays in the grammar; and for a limit of tokens
    in the middle of a grammar, which its parser counts otherwise where the text begins with less.
    """
    nodes = list(_flat(node))
    found = (_text_of(part, tokenizer) for part in nodes)
    texts = [text for text in takewhile(lambda text: text is not None, found) if text is not None]
    lead, rest = "".join(texts), nodes[len(texts) :]
    if not rest:
        return lead, LiteralNode("")
    is_text = all(isinstance(part, LiteralNode) for part in nodes[: len(texts)])
    if not is_text or any(map(has_limit, rest[1:])) or not tokenizer.is_plain(prompt, lead):
        return "", node
    return lead, rest[0] if len(rest) == 1 else JoinNode(tuple(rest))


def _flat(node: GrammarNode) -> list[GrammarNode]:
    """The nodes that follow each other, joins taken apart."""
    if isinstance(node, JoinNode):
        return [part for inner in node.nodes for part in _flat(inner)]
    return [] if node.is_null else [node]


def _text_of(node: GrammarNode, tokenizer: FolderTokenizer) -> str | None:
    if isinstance(node, LiteralNode):
        return node.value
    if isinstance(node, SpecialToken) and node.id is not None:
        return tokenizer.decode([node.id]).decode("utf-8", "replace")
    return None
