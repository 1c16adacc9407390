"""Chat messages of a request as a chat of the protocol.

Tool calls of earlier turns are written as the model writes them; the template does the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.api.protocol import Chat, InvalidCall, Message, Text, UnsupportedCall
from ...common.tools import Invocation, ToolFormat
from ..wire.wire import ROLES, ChatMessage, Tool, ToolCall, check_role

TEXT_PARTS = ("text", "input_text", "output_text")
_CONTENT = "a text, or a list of at least one part"


def chat_of(
    messages: Sequence[ChatMessage],
    tools: Sequence[Tool],
    form: ToolFormat,
    *,
    open_last: bool = False,
) -> Chat:
    """The chat of a request. tools: those that the template shows. form: how this model writes tool
    calls. Raises InvalidCall."""
    if not messages:
        raise InvalidCall("messages", [], "at least one message")
    turns = tuple(_read_message(message, index, form) for index, message in enumerate(messages))
    return Chat(turns, open_last, tuple(map(_shown, tools)))


def _shown(tool: Tool) -> dict[str, Any]:
    """A tool as templates know it: they read its parameters, even where it has none."""
    shown = tool.model_dump(exclude_none=True)
    shown["function"].setdefault("parameters", {"type": "object", "properties": {}})
    return shown


def _read_message(message: ChatMessage, index: int, form: ToolFormat) -> Message:
    check_role(message.role, f"messages[{index}].role")
    field, content = f"messages[{index}].content", message.content
    if (content is None or content == []) and message.role != "assistant":
        raise InvalidCall(field, content, _CONTENT)
    if (content is None or content == []) and not message.tool_calls:
        raise InvalidCall(field, content, f"{_CONTENT}; none only beside tool_calls")
    text = text_of(content, field)
    if message.tool_calls:
        calls = [_invocation(call) for call in message.tool_calls]
        text += form.write(calls, is_first=not text)
    return Message(ROLES[message.role], (Text(text),))


def text_of(content: str | Sequence[str | Mapping[str, Any]] | None, field: str) -> str:
    """The text of a message's content. Raises InvalidCall for a part that is not text, by its place
    in `field`."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_part(part, f"{field}[{index}]") for index, part in enumerate(content))


def _part(part: str | Mapping[str, Any], field: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type")
    if kind not in TEXT_PARTS:
        raise UnsupportedCall(f"{field}.type", kind, "text (this model reads nothing else)")
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidCall(f"{field}.text", text, "a text")
    return text


def _invocation(call: ToolCall) -> Invocation:
    given = call.function.arguments
    if given is None or isinstance(given, str):
        return Invocation(call.function.name, given or "{}")
    return Invocation(call.function.name, json.dumps(given, ensure_ascii=False))
