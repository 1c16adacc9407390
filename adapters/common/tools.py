"""How a model writes tool calls, as text: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`.

It is the format of Hermes, Qwen and the embedded model; they differ in the blanks within. Which
blanks a model was trained on is found by a call to the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...core.api.dialects import ignored
from ...core.api.protocol import Call, Chat, Completion, Grammar, InvalidCall, Message, Text
from .spelling import rule_of

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MOST_CALLS = 16  # of one answer whose calls are constrained
GAPS = ("", "\n")
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


class Invocation(NamedTuple):
    """A tool's name, and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool. parameters: JSON Schema of its arguments, an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] | None = None

    def shown(self) -> dict[str, Any]:
        """As chat templates know tools; they read the parameters even where there are none."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema()}
        return {"type": "function", "function": function}

    def schema(self) -> dict[str, Any]:
        """The schema of its arguments, always of an object."""
        if not self.parameters:
            return {"type": "object", "properties": {}, "additionalProperties": False}
        schema = dict(self.parameters)
        return schema if "type" in schema or "$ref" in schema else {**schema, "type": "object"}


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """gap: the blanks between a tag and what it encloses, and between two calls."""

    gap: str = ""

    @classmethod
    def question(cls) -> Call:
        """The call that finds which gap a model writes, by the likelihood of each one."""
        tool = ToolSpec("look_up", "Look up a word.", {"properties": {"word": {"type": "string"}}})
        chat = Chat((Message("user", (Text("Look up the word."),)),), tools=(tool.shown(),))
        return Call(chat, options=tuple(cls(gap).opening("look_up") for gap in GAPS))

    @classmethod
    def of_answer(cls, completion: Completion) -> ToolFormat:
        """The format of a model, from its answer to `question`."""
        scores = [score.logprob / max(1, len(score.ids)) for score in completion.scores]
        return cls(GAPS[scores.index(max(scores))] if scores else GAPS[0])

    def opening(self, name: str) -> str:
        """How a call of this tool begins, up to its arguments."""
        return f'{OPEN}{self.gap}{{"name": {json.dumps(name)}, "arguments": '

    def closing(self) -> str:
        """How a call ends after its arguments."""
        return f"}}{self.gap}{CLOSE}"

    def write(self, calls: Sequence[Invocation], is_first: bool = True) -> str:
        """These calls as the model writes them; not is_first: after other text."""
        lead = "" if is_first else self.gap
        written = (f"{self.opening(it.name)}{it.arguments}{self.closing()}" for it in calls)
        return lead + self.gap.join(written)

    def grammar(
        self,
        tools: Sequence[ToolSpec],
        *,
        is_parallel: bool,
        has_text: bool = False,
        instead: Mapping[str, Any] | bool | None = None,
    ) -> Grammar:
        """Calls of these tools, with arguments that their schemas accept. is_parallel: several.
        has_text: after, or instead of, text without calls. instead: the schema of answers without
        calls; None: there are none."""
        gap = f"{_quoted(self.gap)} " if self.gap else ""
        more = f" ({gap}call){{0,{MOST_CALLS - 1}}}" if is_parallel else ""
        start = "TEXT calls?" if has_text else "calls" if instead is None else "calls | instead"
        rules = [f"start: {start}", f"calls: call{more}"]
        rules.append("call: " + " | ".join(f"call_{index}" for index in range(len(tools))))
        for index, tool in enumerate(tools):
            head, tail = _quoted(self.opening(tool.name)), _quoted(self.closing())
            rules.append(f"call_{index}: {head} args_{index} {tail}")
            rules.append(rule_of(f"args_{index}", tool.schema()))
        if has_text:
            rules.append(f"TEXT: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/")
        if instead is not None:
            rules.append(rule_of("instead", instead))
        return Grammar("\n".join(rules) + "\n")


def check_tools(tools: Sequence[ToolSpec], within: str = "") -> None:
    """Raise InvalidCall for a tool that cannot be called. within: what its fields lie in, where
    they lie deeper, as in "function."."""
    for index, tool in enumerate(tools):
        if not _NAME.fullmatch(tool.name):
            allowed = "1 to 64 letters, digits, dots, dashes and underscores"
            raise InvalidCall(f"tools[{index}].{within}name", tool.name, allowed)
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise InvalidCall("tools", names, "names without duplicates")


def _quoted(text: str) -> str:
    """A literal of a Lark grammar."""
    return json.dumps(text, ensure_ascii=False)


def check_keywords(schema: object, field: str) -> None:
    """Raise InvalidCall for the first unknown keyword in the parameters of a strict tool."""
    for it in ignored(schema, 1):
        name = it.pointer.rpartition("/")[2]
        expected = f"keywords and formats that are known, in a strict tool{it.hint}"
        raise InvalidCall(f"{field}{it.pointer}", name, expected)
