"""Grammars of guidance's clients, which set in a rule what a request sets in its fields."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from ..wire.wire import Generation

R = TypeVar("R", bound=Generation)
_FIELDS = ("ebnf", "grammar", "guided_grammar")
_RULE = re.compile(r"^(\w+)\[([^\]\n]*)\]\s*:", re.MULTILINE)
_START = re.compile(r"^start\s*:\s*(\w+)\s*$", re.MULTILINE)
_SETTING = re.compile(r"\b(temperature|max_tokens)=([0-9.]+)")


def settled(request: R) -> R:
    """The request with temperature and max_tokens of its grammar's only rule moved to its fields;
    unchanged where the grammar sets these for a part of the answer (which is then refused)."""
    changes: dict[str, Any] = {}
    for field in _FIELDS:
        source = getattr(request, field)
        if source is not None:
            changes[field] = _without_settings(source, changes)
    outputs = request.structured_outputs
    if outputs is not None and outputs.grammar is not None:
        plain_grammar = _without_settings(outputs.grammar, changes)
        changes["structured_outputs"] = outputs.model_copy(update={"grammar": plain_grammar})
    for name, given in (("temperature", request.temperature), ("max_tokens", request.max_tokens)):
        if given is not None:
            changes.pop(name, None)
    return request.model_copy(update=changes) if changes else request


def _without_settings(source: str, found: dict[str, Any]) -> str:
    """The grammar without the settings of the rule that is its whole start; these go to `found`."""
    start = _START.search(source)
    rules = [rule for rule in _RULE.finditer(source) if _SETTING.search(rule[2])]
    if start is None or [rule[1] for rule in rules] != [start[1]]:
        return source
    (rule,) = rules
    for name, value in _SETTING.findall(rule[2]):
        found[name] = float(value) if name == "temperature" else int(float(value))
    kept = [part.strip() for part in rule[2].split(",") if not _SETTING.search(part)]
    head = f"{rule[1]}[{', '.join(kept)}]:" if kept else f"{rule[1]}:"
    return source[: rule.start()] + head + source[rule.end() :]
