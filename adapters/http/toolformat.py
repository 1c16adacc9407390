"""How a model writes tool calls, as text: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`.

It is the format of Hermes, Qwen and the embedded model; they differ in the blanks within.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...core.protocol import Chat, Grammar, InvalidCall, Message, Text
from ..tools import CLOSE, OPEN
from .runtime import Texts
from .wire import Tool

MOST_CALLS = 16  # of one answer whose calls are constrained
_GAP = re.compile(re.escape(OPEN) + r"(\s*)\{")
_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


class Invocation(NamedTuple):
    """A tool's name, and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """gap: the blanks between a tag and what it encloses, and between two calls."""

    gap: str = "\n"

    @classmethod
    def of_model(cls, texts: Texts) -> ToolFormat:
        """The format that the model's chat template tells the model to write in."""
        function = {"name": "f", "description": "f", "parameters": {"type": "object"}}
        tools = ({"type": "function", "function": function},)
        chat = Chat((Message("user", (Text("?"),)),), tools=tools)
        try:
            shown = texts.decode(texts.encode_prompt(chat))
        except InvalidCall:  # it has no template, or one that knows no tools
            return cls()
        found = _GAP.search(shown)
        return cls(found[1]) if found else cls()

    def write(self, calls: Sequence[Invocation], is_first: bool = True) -> str:
        """These calls as the model writes them; not is_first: after other text."""
        lead = "" if is_first else self.gap
        return lead + self.gap.join(
            f"{OPEN}{self.gap}{self._head(call.name)}{call.arguments}}}{self.gap}{CLOSE}"
            for call in calls
        )

    def grammar(
        self,
        tools: Sequence[Tool],
        *,
        is_parallel: bool,
        has_text: bool = False,
        instead: str | None = None,
    ) -> Grammar:
        """Calls of these tools, with arguments that their schemas accept. is_parallel: several.
        has_text: after, or instead of, text without calls. instead: a rule body (Lark) for
        answers without calls; None: there are none."""
        gap = f"{_quoted(self.gap)} " if self.gap else ""
        more = f" ({gap}call){{0,{MOST_CALLS - 1}}}" if is_parallel else ""
        start = "TEXT calls?" if has_text else "calls" if instead is None else "calls | instead"
        rules = [f"start: {start}", f"calls: call{more}"]
        rules.append("call: " + " | ".join(f"call_{place}" for place in range(len(tools))))
        for place, tool in enumerate(tools):
            head = _quoted(OPEN + self.gap + self._head(tool.function.name))
            tail = _quoted("}" + self.gap + CLOSE)
            rules.append(f"call_{place}: {head} args_{place} {tail}")
            rules.append(f"args_{place}: %json {json.dumps(_schema(tool))}")
        if has_text:
            rules.append(f"TEXT: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/")
        if instead is not None:
            rules.append(f"instead: {instead}")
        return Grammar("\n".join(rules) + "\n")

    def _head(self, name: str) -> str:
        return f'{{"name": {json.dumps(name)}, "arguments": '


def check_tools(tools: Sequence[Tool]) -> None:
    """Raise InvalidCall for a tool that cannot be called."""
    for place, tool in enumerate(tools):
        if tool.type != "function":
            raise InvalidCall(f"tools[{place}].type", tool.type, "function")
        name = tool.function.name
        if not _NAME.fullmatch(name):
            allowed = "1 to 64 letters, digits, dots, dashes and underscores"
            raise InvalidCall(f"tools[{place}].function.name", name, allowed)
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise InvalidCall("tools", names, "names that differ")


def _schema(tool: Tool) -> object:
    """The schema of a tool's arguments, always of an object."""
    schema = tool.function.parameters
    if not schema:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return schema if "type" in schema or "$ref" in schema else {**schema, "type": "object"}


def _quoted(text: str) -> str:
    """A literal of a Lark grammar."""
    return json.dumps(text, ensure_ascii=False)
