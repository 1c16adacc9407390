"""The reasoning of an answer apart from its text, by the marks that a family of models writes.

The names of the families and their marks are those of SGLang's reasoning parsers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...core.api.protocol import InvalidCall
from ...core.common.suggestions import did_you_mean
from ..native.language.expressions import Expression, Gen, Row, Split, flatten

SUFFIX = "_reasoning_content"


@dataclass(frozen=True, slots=True)
class Marks:
    """What surrounds the reasoning. is_open: an answer begins inside it, without `start`."""

    start: str = "<think>"
    end: str = "</think>"
    is_open: bool = False

    def divide(self, text: str) -> tuple[str, str]:
        """The text without the reasoning, and the reasoning. One that does not end (the answer was
        cut off) is all of the answer."""
        if not self.is_open and self.start not in text:
            return text, ""
        rest = text
        while rest.startswith(self.start):
            rest = rest.removeprefix(self.start)
        reasoning, _, normal = rest.partition(self.end)
        return normal, reasoning


_OPEN = ("deepseek-r1", "step3", "step3p5", "gigachat35", "qwen3-thinking", "minimax")
_CLOSED = (
    *("qwen3", "deepseek-v3", "glm45", "dots", "mimo", "nanbeige", "interns1", "nemotron_3"),
    *("granite_thinking_parser", "kimi_k2", "poolside_v1"),
)
_FAMILIES = {
    **dict.fromkeys(_OPEN, Marks(is_open=True)),
    **dict.fromkeys(_CLOSED, Marks()),
    "kimi": Marks("◁think▷", "◁/think▷"),
    "minimax-m3": Marks("<mm:think>", "</mm:think>"),
    "mistral": Marks("[THINK]", "[/THINK]"),
}


def separated(expression: Expression, model_type: str | None) -> Expression:
    """The expression, whose answers are kept without their reasoning, and the reasoning of answer
    `name` as variable `name_reasoning_content`. Raises InvalidCall for a family that is not known,
    and for an expression without a named `gen`."""
    marks = _FAMILIES.get(model_type.lower()) if isinstance(model_type, str) else None
    if marks is None:
        allowed = " | ".join(sorted(_FAMILIES))
        if isinstance(model_type, str):
            allowed += did_you_mean(model_type, _FAMILIES)
        raise InvalidCall("model_type", model_type, allowed)
    split = Split(marks.divide, (SUFFIX,))
    nodes = tuple(flatten(expression))
    if not any(isinstance(node, Gen) for node in nodes):
        raise InvalidCall("expr", expression, "an expression with a gen in it")
    for node in nodes:
        if isinstance(node, Gen) and node.name is None:
            raise InvalidCall("name", None, "a name for each gen inside separate_reasoning")
    return Row(
        tuple(replace(node, split=split) if isinstance(node, Gen) else node for node in nodes)
    )
