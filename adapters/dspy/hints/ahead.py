"""The next prompt of an agent, as far as it is known while its tool runs.

All of the next prompt of `dspy.ReAct` but what the tool finds: it goes on from the last one with
the thought, the tool and its arguments. So does the trajectory of the prompt that comes at the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dspy

from ....core.api.protocol import Chat, Message, Text
from ..patterns.agents import ARGUMENTS, NAME
from .running import Formatted

_THOUGHT, _SO_FAR = "next_thought", "trajectory"
_NUMBER = re.compile(r"\btool_name_(\d+)\b")


@dataclass(frozen=True, slots=True)
class Step:
    """An agent's answer, and what its prompt was made of. found: what the tool before gave."""

    formatted: Formatted
    answer: Mapping[str, Any]
    found: Any = None

    @property
    def tool(self) -> Any:
        """The name of the tool that it wants."""
        return self.answer.get(NAME)

    def next_chats(self) -> tuple[Chat | None, Chat | None]:
        """The beginnings of its next prompt, and of the last one, which extracts the result; None
        for what is not known. Calls DSPy's adapters."""
        so_far, agent = self.formatted.inputs.get(_SO_FAR), self.formatted.agent
        if not isinstance(so_far, str) or agent is None or self.tool in (None, "finish"):
            return None, None
        with dspy.context(callbacks=[]):
            trajectory = self._trajectory(so_far)
            following = self._chat(self.formatted.signature, self.formatted.demos, trajectory)
            last = agent.extract.predict
            return following, self._chat(last.signature, last.demos, trajectory)

    def _chat(self, signature: Any, demos: Any, trajectory: str) -> Chat | None:
        inputs = {**self.formatted.inputs, _SO_FAR: trajectory}
        return chat_until(self.formatted.adapter.format(signature, demos, inputs), trajectory)

    def _trajectory(self, so_far: str) -> str:
        """With this step. What a trajectory ends in loses its blanks, until more follows."""
        number = 1 + max((int(number_text) for number_text in _NUMBER.findall(so_far)), default=-1)
        fields = {
            f"thought_{number}": self.answer.get(_THOUGHT),
            f"tool_name_{number}": self.tool,
            f"tool_args_{number}": self.answer.get(ARGUMENTS),
        }
        if not so_far:
            return _render(fields)
        before = {f"observation_{number - 1}": self.found}
        ending = _render(before)
        if so_far.endswith(ending):
            return so_far.removesuffix(ending) + _render(before | fields)
        return f"{so_far}\n\n{_render(fields)}"


def _render(fields: Mapping[str, Any]) -> str:
    """As `dspy.ReAct` writes a trajectory."""
    adapter = dspy.settings.adapter or dspy.ChatAdapter()
    signature = dspy.Signature(f"{', '.join(fields)} -> x")
    text: str = adapter.format_user_message_content(signature, fields)
    return text


def chat_until(messages: list[dict[str, Any]], text: str) -> Chat | None:
    """The messages up to the end of a text in the last one; None where they are more than texts."""
    contents = [message["content"] for message in messages]
    if not all(isinstance(content, str) for content in contents) or text not in contents[-1]:
        return None
    contents[-1] = contents[-1][: contents[-1].rindex(text) + len(text)]
    pairs = zip(messages, contents, strict=True)
    turns = tuple(Message(message["role"], (Text(content),)) for message, content in pairs)
    return Chat(turns, open_last=True)
