"""A grammar without terminals as one that has them, in Lark.

GBNF and EBNF speak of characters; llguidance reads terminals, each as long as it can be. So a part
without recursion becomes one terminal where nothing that may come after could have gone on with it;
elsewhere it is taken apart, down to single characters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...api.protocol import InvalidCall
from ..json_schema.patterns.spelling import alternatives, char_class, common
from ..json_schema.patterns.strings import repeated
from ..regex.chars import Ranges, union
from ..regex.dfa import Dfa
from ..regex.limits import Limits, Meter
from ..regex.regex import compile_regex
from ..regex.tree import Alt, Loop, Ref, Seq, Set, Tree
from .bnf import Bnf
from .matcher import FIELD

MAX_LENGTH = 20_000
MAX_DEPTH = 30
MAX_SECONDS = 3.0
MAX_AUTOMATA = 100
LIMITS = Limits(length=MAX_LENGTH, positions=2_000, states=500, cells=50_000, work=20_000)


class First(NamedTuple):
    """The characters with which texts begin, and whether one of them is empty."""

    chars: Ranges = ()
    is_empty: bool = False


class Terminals:
    """Writes the rules of one grammar. Raises InvalidCall where that takes too long."""

    def __init__(self, bnf: Bnf) -> None:
        self._meter = Meter(FIELD, bnf.start, Limits(seconds=MAX_SECONDS))
        self._rules = bnf.rules
        self._start = bnf.start
        self._names = {name: f"r{i}" for i, name in enumerate(bnf.rules)}
        self._firsts = dict.fromkeys(bnf.rules, First())
        self._after: dict[str, Ranges] = dict.fromkeys(bnf.rules, ())
        self._patterns: dict[str, str | None] = {}
        self._open: list[str] = []
        self._extending: dict[str, Ranges | None] = {}

    def lark(self) -> str:
        """The grammar in Lark."""
        self._settle()
        lines = [f"start: {self._names[self._start]}"]
        for name, node in self._rules.items():
            lines.append(f"{self._names[name]}: {self._written(node, self._after[name])}")
        return "\n".join([*lines, ""])

    def _settle(self) -> None:
        """Find what each rule begins with, and what may come after it."""
        names, before = list(self._rules), None
        while before != (before := dict(self._firsts)):
            for name in names:
                self._firsts[name] = self._first(self._rules[name])
            names.reverse()
        after = None
        while after != (after := dict(self._after)):
            for name in names:
                self._spread(self._rules[name], self._after[name])
            names.reverse()

    def _first(self, node: Tree) -> First:
        match node:
            case Set(ranges=ranges):
                return First(ranges)
            case Ref(name=name):
                return self._firsts[name]
            case Seq(items=items):
                found: list[tuple[int, int]] = []
                for item in items:
                    first = self._first(item)
                    found += first.chars
                    if not first.is_empty:
                        return First(union(found))
                return First(union(found), True)
            case Alt(options=options):
                firsts = [self._first(option) for option in options]
                chars = union(pair for first in firsts for pair in first.chars)
                return First(chars, any(first.is_empty for first in firsts))
            case Loop(item=item, low=low, high=high):
                first = self._first(item)
                return First() if high == 0 else First(first.chars, first.is_empty or not low)
        raise AssertionError(node)

    def _spread(self, node: Tree, after: Ranges) -> None:
        """Add what may come after the rules that are named here."""
        self._meter.check_time()
        match node:
            case Ref(name=name):
                self._after[name] = union([*self._after[name], *after])
            case Seq(items=items):
                for item, rest in zip(items, self._afters(items, after), strict=True):
                    self._spread(item, rest)
            case Alt(options=options):
                for option in options:
                    self._spread(option, after)
            case Loop():
                self._spread(node.item, self._again(node, after))

    def _afters(self, items: tuple[Tree, ...], after: Ranges) -> list[Ranges]:
        """What may come after each of these in a row."""
        found = []
        for item in reversed(items):
            found.append(after)
            first = self._first(item)
            after = union([*first.chars, *after]) if first.is_empty else first.chars
        return found[::-1]

    def _again(self, node: Loop, after: Ranges) -> Ranges:
        """What may come after one of several."""
        return after if node.high == 1 else union([*after, *self._first(node.item).chars])

    def _written(self, node: Tree, after: Ranges) -> str:
        """An expression of Lark."""
        self._meter.check_time()
        pattern = self._pattern(node)
        if pattern is not None and (_is_literal(node) or self._is_terminal(pattern, after)):
            return f"/{pattern.replace('/', chr(92) + '/')}/" if pattern else '""'
        match node:
            case Ref(name=name):
                return self._names[name]
            case Seq(items=items):
                pairs = zip(items, self._afters(items, after), strict=True)
                return f"({' '.join(self._written(item, rest) for item, rest in pairs)})"
            case Alt(options=options):
                return f"({' | '.join(self._written(option, after) for option in options)})"
            case Loop(item=item, low=low, high=high):
                inside = self._written(item, self._again(node, after))
                return f"({inside}){{{low},{'' if high is None else high}}}"
        raise AssertionError(node)  # one character is a terminal

    def _is_terminal(self, pattern: str, after: Ranges) -> bool:
        """Whether nothing that may come after this could go on with it."""
        if pattern not in self._extending:
            self._extending[pattern] = self._extending_of(pattern)
        extending = self._extending[pattern]
        return extending is not None and not common(extending, after)

    def _extending_of(self, pattern: str) -> Ranges | None:
        """With what a terminal could go on; None: not known."""
        if len(self._extending) >= MAX_AUTOMATA:
            return None
        try:
            return _extending(compile_regex(pattern, LIMITS))
        except InvalidCall:
            return None

    def _pattern(self, node: Tree) -> str | None:
        """The regular expression of a part without recursion, unless it is long."""
        found = self._pattern_of(node)
        return None if found is None or len(found) > MAX_LENGTH else found

    def _pattern_of(self, node: Tree) -> str | None:
        match node:
            case Set(ranges=ranges):
                return char_class(ranges)
            case Ref(name=name):
                if name not in self._patterns:
                    self._patterns[name] = None  # while it is being written: recursion
                    if len(self._open) < MAX_DEPTH:
                        self._open.append(name)
                        self._patterns[name] = self._pattern(self._rules[name])
                        self._open.pop()
                return self._patterns[name]
            case Seq(items=items):
                parts = [self._pattern(item) for item in items]
                return None if None in parts else "".join(part or "" for part in parts)
            case Alt(options=options):
                parts = [self._pattern(option) for option in options]
                return None if None in parts else alternatives([part or "" for part in parts])
            case Loop(item=item, low=low, high=high):
                inside = self._pattern(item)
                return None if inside is None else repeated(inside, low, high)
        raise AssertionError(node)


def _is_literal(node: Tree) -> bool:
    """Whether this is one character, or a row of them: nothing goes on with it."""
    return isinstance(node, Set) or (
        isinstance(node, Seq) and all(isinstance(item, Set) for item in node.items)
    )


def _extending(dfa: Dfa) -> Ranges:
    """The characters with which some text of an automaton goes on to a longer one."""
    kinds = np.any(dfa.table[dfa.accepting] > 0, axis=0)
    starts, kind_of = dfa.partition
    ends = [*starts[1:].tolist(), 0x110000]
    spans = zip(starts.tolist(), ends, kind_of.tolist(), strict=True)
    return union((start, end) for start, end, kind in spans if kinds[kind])
