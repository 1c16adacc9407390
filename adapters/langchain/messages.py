"""LangChain's messages as a chat of the protocol.

`convert_to_openai_messages` brings every provider's content blocks into one shape; tool calls of
earlier turns are written as the model writes them, and the model's template does the rest.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_openai_messages

from ...core.api.protocol import Chat, Image, InvalidCall, Message, Segment, Text, UnsupportedCall
from ..common.spelling import spell
from ..common.surrogates import check_text, check_texts
from ..common.tools import Invocation, ToolFormat, ToolSpec

_ROLES = {"developer": "system", "function": "tool"}
_SKIPPED_PARTS = (  # thoughts are not sent again, and calls are sent beside the content
    *("thinking", "redacted_thinking", "reasoning", "reasoning_content"),
    *("tool_call", "tool_call_chunk", "invalid_tool_call", "function_call"),
)


def has_calls(messages: Sequence[BaseMessage]) -> bool:
    """Whether the messages may have tool calls."""
    return any(getattr(message, "tool_calls", None) for message in messages)


def chat_of(messages: Sequence[BaseMessage], tools: Sequence[ToolSpec], form: ToolFormat) -> Chat:
    """The chat of these messages. tools: those that the template shows. form: how this model writes
    tool calls. Raises InvalidCall."""
    if not messages:
        raise InvalidCall("messages", [], "at least one message")
    try:
        plain = convert_to_openai_messages(list(messages))
    except ValueError as error:
        raise InvalidCall("messages", "content blocks", f"what LangChain knows: {error}") from error
    turns = tuple(_read_message(message, index, form) for index, message in enumerate(plain))
    return Chat(turns, tools=tuple(tool.shown() for tool in tools))


def _read_message(message: Mapping[str, Any], index: int, form: ToolFormat) -> Message:
    role = _ROLES.get(message["role"], message["role"])
    content = _segments(message.get("content") or "", f"messages[{index}].content")
    check_texts(message.get("tool_calls") or (), f"messages[{index}].tool_calls")
    calls = [_invocation(call) for call in message.get("tool_calls") or ()]
    if calls:
        content += (Text(form.write(calls, is_first=not content)),)
    return Message(role, content or (Text(""),))


def _segments(content: str | Sequence[Any], field: str) -> tuple[Segment, ...]:
    if isinstance(content, str):
        check_text(content, field)
        return (Text(content),) if content else ()
    found = [_segment(part, f"{field}[{index}]") for index, part in enumerate(content)]
    return tuple(segment for segment in found if segment is not None)


def _segment(part: Any, field: str) -> Segment | None:
    """What a part of a message shows to the model; None: nothing."""
    match part:
        case str(text) | {"type": "text", "text": str(text)}:
            check_text(text, field)
            return Text(text) if text else None
        case {"type": kind} if kind in _SKIPPED_PARTS:
            return None
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return Image(_data(url, field))
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise UnsupportedCall(f"{field}.type", kind, "text, or an image given as data")


def _data(url: str, field: str) -> bytes:
    head, _, data = url.partition(",")
    if not (head.startswith("data:") and head.endswith(";base64")):
        raise UnsupportedCall(f"{field}.image_url", url, "an image as data:...;base64, not a URL")
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise InvalidCall(f"{field}.image_url", url, f"base64 ({error})") from error


def _invocation(call: Mapping[str, Any]) -> Invocation:
    """A call of an earlier turn, spelled as an answer is that the grammar of tools allows."""
    function = call["function"]
    given = function.get("arguments") or "{}"
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:  # as it was written, if it is not JSON
        return Invocation(function["name"], given)
    return Invocation(function["name"], spell(value))
