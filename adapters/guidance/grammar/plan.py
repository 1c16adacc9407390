"""What of a grammar can be asked of the runtime in one call, and from which place in the text.

A plan only makes things faster: Guidance's own parser judges every token. What it must not be is
narrower than the grammar. It knows Guidance's nodes and no runtime.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from guidance._ast import (
    GrammarNode,
    JoinNode,
    JsonNode,
    LarkNode,
    LiteralNode,
    RegexNode,
    RuleNode,
    RuleRefNode,
    SelectNode,
    SpecialToken,
    SubgrammarNode,
)

from ....core.api.protocol import Choices, Constraint, Grammar, InvalidCall, Regex
from ....core.fsm.regex.dfa import DEAD
from ....core.fsm.regex.limits import Limits
from ....core.fsm.regex.regex import compile_regex
from .patterns import pattern_of
from .schema import json_lark

MAX_NODES = 10_000
SLACK = 64  # within so many tokens of the end of its budget, a runtime hurries towards it
_LARK_TEXT = re.compile(r'/(?:[^/\\\n]|\\.)+/|"(?:[^"\\\n]|\\.)*"|//[^\n]*')
_LIMITS = Limits(states=2_000, seconds=0.5)
RESERVE = 8  # one of so many tokens: the parser may count them otherwise than the runtime


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of a grammar that one call can be asked for.

    start: bytes after the prompt at which it begins. constraints: any of these says it, the best
    first; none: it is any text, after a `lead`. is_open: where it may end it may also go on.
    max_tokens: it ends after so many; None: no limit. stop: it ends before this text. follows: the
    first character that follows it then; None: that is not known. is_rest: of what was asked for
    before.
    """

    start: int
    constraints: tuple[Constraint, ...] = ()
    is_open: bool = False
    max_tokens: int | None = None
    stop: str | None = None
    follows: str | None = None
    lead: str = ""
    is_rest: bool = False


class Route:
    """All steps that a grammar may need, each found when it is first asked for. Any thread may ask.

    Of any grammar, with nothing known of it, where `node` is None. refused: constraints that the
    runtime does not take.
    """

    def __init__(self, node: GrammarNode | None) -> None:
        self.nodes = tuple(_flat(node)) if node is not None else ()
        self.leg = cache(self._leg)
        self.refused: set[Constraint] = set()

    def _leg(self, index: int) -> tuple[Step | None, int]:
        """The step of the nodes from here on, which begins at 0, and the place of the first node
        that is not in it."""
        nodes = self.nodes[index:]
        num_literals = next(
            (i for i, node in enumerate(nodes) if not isinstance(node, LiteralNode)), len(nodes)
        )
        if num_literals < len(nodes) and (rule := _limited(nodes[num_literals])) is not None:
            end = num_literals + 1
            return _step_of_rule(rule, nodes[:num_literals], nodes[end:]), index + end
        size = next((i for i, node in enumerate(nodes) if not _is_plain(node)), len(nodes))
        if size <= num_literals:
            return None, index + size
        is_open = not _is_closed(nodes[size - 1])
        if is_open and size < len(nodes):
            return None, index + size
        return Step(0, _constraints(nodes[:size]), is_open), index + size


class Plan:
    """The steps of one run of a grammar, in order; it remembers how far it has come."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._index = 0
        self._last: Step | None = None

    def step(self, written: bytes, last: int) -> Step | None:
        """What to ask for next; None where the plan does not know.

        written: all bytes after the prompt. last: where the last token began that was drawn.
        """
        if self._index == 0:
            return self._take(0, 0)
        nodes = self.route.nodes
        for index in range(self._index, len(nodes)):
            node = nodes[index]
            if isinstance(node, LiteralNode):
                start = _begin(node.value.encode(), written, last)
                return None if start is None else self._take(index, start)
        if self._index == len(nodes) and self._last is not None and not self._last.constraints:
            # nothing comes after it
            return replace(self._last, start=len(written), lead="", is_rest=True)
        return None

    def _take(self, index: int, start: int) -> Step | None:
        step, self._index = self.route.leg(index)
        self._last = step
        return None if step is None else replace(step, start=start)


def _step_of_rule(
    rule: RuleNode, literals: Sequence[GrammarNode], after: Sequence[GrammarNode]
) -> Step | None:
    """The step of a rule with limits of its own, after some literals and before other nodes."""
    bare = RuleNode(name="bare", value=rule.value)
    if rule.stop is None and rule.suffix is None and _is_plain(bare):
        if _is_closed(bare):
            constraints = _constraints((*literals, bare))
            return Step(0, constraints, max_tokens=_budget(rule.max_tokens))
        if not after and bare.value != RegexNode(None):
            return Step(0, _constraints((*literals, bare)), True, rule.max_tokens)
    if not isinstance(rule.value, RegexNode) or rule.value.regex is not None:
        return None
    lead = "".join(node.value for node in literals if isinstance(node, LiteralNode))
    stop = rule.stop.value if isinstance(rule.stop, LiteralNode) else None
    follows = None
    if not after and rule.suffix is None and (stop is not None or rule.stop is None):
        follows = ""
    elif stop is not None and isinstance(after[0], LiteralNode):
        follows = after[0].value[:1]
    return Step(0, (), stop is None, rule.max_tokens, stop, follows, lead)


def _flat(node: GrammarNode) -> Iterator[GrammarNode]:
    """The nodes that follow each other in a grammar, outermost joins taken apart."""
    node = node.simplify()
    if isinstance(node, JoinNode):
        for part in node.nodes:
            yield from _flat(part)
    elif isinstance(node, RuleNode) and isinstance(node.value, JoinNode) and not _has_limits(node):
        yield from _flat(node.value)
    elif not node.is_null:
        yield node


def _begin(literal: bytes, written: bytes, last: int) -> int | None:
    """Where a literal begins that ends the text, or would if it went on; what a drawn token left
    of it counts, too."""
    found = written.find(literal, last)
    if found >= 0:
        return found
    for size in range(len(literal) - 1, 0, -1):
        if written.endswith(literal[:size]) and len(written) - size >= last:
            return len(written) - size
    return None


def _has_limits(rule: RuleNode) -> bool:
    limits = (rule.temperature, rule.max_tokens, rule.stop, rule.suffix, rule.stop_capture)
    return rule.lazy or any(limit is not None for limit in limits)


def _limited(node: GrammarNode) -> RuleNode | None:
    """The rule with limits that this node is, if it is one."""
    return node if isinstance(node, RuleNode) and _has_limits(node) else None


def _budget(limit: int | None) -> int | None:
    """Tokens to ask for where a rule is cut off after so many: fewer, so that the text is whole by
    then; or, where that would bend all of it, more."""
    if limit is None:
        return None
    return limit - limit // RESERVE if limit >= 2 * SLACK else limit + SLACK


def _is_plain(node: GrammarNode) -> bool:
    """Whether nothing in it has limits of its own, nor is a token that is not text."""
    for num_seen, part in enumerate(_parts((node,)), 1):
        if isinstance(part, SpecialToken) or _limited(part) or num_seen > MAX_NODES:
            return False
        if isinstance(part, LarkNode) and set("<[") & set(_LARK_TEXT.sub("", part.lark_grammar)):
            return False  # it may name special tokens, or attributes
        if isinstance(part, JsonNode) and json_lark(part) is None:
            return False
    return True


def has_limit(node: GrammarNode) -> bool:
    """Whether something in it has a limit of tokens; True where it is too large to be looked at."""
    for num_seen, part in enumerate(_parts((node,)), 1):
        is_limited = isinstance(part, RuleNode) and part.max_tokens is not None
        if is_limited or isinstance(part, LarkNode) or num_seen > MAX_NODES:
            return True
    return False


def _parts(nodes: Sequence[GrammarNode]) -> Iterator[GrammarNode]:
    """These nodes and all that are in them, each once."""
    todo, seen = deque(nodes), set[int]()
    while todo:
        node = todo.popleft()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, SubgrammarNode):
            todo.append(node.body)
        elif not isinstance(node, RuleRefNode):
            todo.extend(node.children())
        elif node.target is not None:
            todo.append(node.target)


def _is_closed(node: GrammarNode) -> bool:
    """Whether no text of this node goes on as another one, as far as its end shows."""
    match node:
        case RuleNode(value=inner) | SubgrammarNode(body=inner):
            return _is_closed(inner)
        case JoinNode(nodes=parts):
            return isinstance(parts[-1], LiteralNode) or all(map(_is_closed, parts))
        case SelectNode(alternatives=parts):
            texts = sorted(part.value for part in parts if isinstance(part, LiteralNode))
            is_prefix_free = not any(b.startswith(a) for a, b in pairwise(texts))
            return len(texts) == len(parts) and is_prefix_free
        case RegexNode(regex=pattern):
            return pattern is not None and _has_one_length(pattern)
        case JsonNode():
            lark = json_lark(node)
            numbers = None if lark is None else lark.number_pattern()
            return lark is not None and (numbers is None or _has_one_length(numbers))
    return isinstance(node, LiteralNode)


def _has_one_length(pattern: str) -> bool:
    """Whether all texts of a pattern have one length; False where that takes long to tell."""
    try:
        automaton = compile_regex(pattern, _LIMITS)
    except InvalidCall:
        return False
    states = [automaton.start]
    while not automaton.accepting[states].any():
        states = [*{*automaton.table[states].flat} - {DEAD}]
    return bool(automaton.accepting[states].all() and not automaton.table[states].any())


def _constraints(nodes: Sequence[GrammarNode]) -> tuple[Constraint, ...]:
    """Constraints of all texts of these nodes, one after the other; the best is the first."""
    first = nodes[0]
    while isinstance(first, RuleNode):
        first = first.value
    if len(nodes) == 1 and isinstance(first, SelectNode):
        texts = [part.value for part in first.alternatives if isinstance(part, LiteralNode)]
        if len(texts) == len(first.alternatives):
            return (Choices(tuple(dict.fromkeys(texts))),)
    pattern = pattern_of(nodes)
    return (_grammar(nodes),) if pattern is None else (Regex(pattern), _grammar(nodes))


def _grammar(nodes: Sequence[GrammarNode]) -> Grammar:
    """As llguidance's Lark. Its schemas become rules, which spell JSON as Guidance does."""
    source = JoinNode(tuple(nodes)).ll_grammar()
    rules: list[str] = []
    for found in _parts(nodes):
        if not isinstance(found, JsonNode):
            continue
        lark = json_lark(found)
        assert lark is not None, "_is_plain has looked"
        inlined = "%json " + json.dumps(found._llguidance_json, indent=2)  # as Guidance writes it
        prefix = f"j{len(rules)}_"
        source = source.replace(inlined, prefix + "v0", 1)
        rules.append(lark.rules(prefix))
    return Grammar("".join([source.removeprefix("%llguidance {}"), "\n", *rules]))
