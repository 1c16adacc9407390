"""LangChain's messages as a chat of the protocol.

`convert_to_openai_messages` brings every provider's content blocks into one shape; videos, which it
does not know, are given OpenAI's shape before. Tool calls of earlier turns are written as the model
writes them, and the model's template does the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_openai_messages

from ...core.api.protocol import (
    Chat,
    Image,
    InvalidCall,
    Message,
    Segment,
    Shown,
    Text,
    UnsupportedCall,
    Video,
)
from ...core.media.sources import from_url
from ..common.spelling import spell
from ..common.surrogates import check_text, check_texts
from ..common.tools import Invocation, ToolFormat, ToolSpec

NUM_FRAMES = 32  # of a video whose block has no `num_frames`; as of the server's routes
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
        plain = convert_to_openai_messages([_with_video_urls(message) for message in messages])
    except (ValueError, TypeError) as error:
        reason = str(error).partition(" Full content block")[0]
        raise InvalidCall(
            "messages", Shown("content blocks"), f"what LangChain knows: {reason}"
        ) from error
    turns = tuple(_read_message(message, index, form) for index, message in enumerate(plain))
    return Chat(turns, tools=tuple(tool.shown() for tool in tools))


def _with_video_urls(message: BaseMessage) -> BaseMessage:
    """The message, LangChain's video blocks in it in OpenAI's shape."""
    content = message.content
    if isinstance(content, str) or not any(map(_is_video, content)):
        return message
    return message.model_copy(update={"content": list(map(_video_url, content))})


def _is_video(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "video"


def _video_url(block: Any) -> Any:
    if not _is_video(block):
        return block
    data = block.get("base64", block.get("data"))
    kind = block.get("mime_type", "video/mp4")
    url = block.get("url") if data is None else f"data:{kind};base64,{data}"
    extras = {**(block.get("metadata") or {}), **(block.get("extras") or {}), **block}
    frames = extras.get("num_frames", NUM_FRAMES)
    return {"type": "video_url", "video_url": {"url": url}, "num_frames": frames}


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
        case (str() as text) | {"type": "text", "text": str() as text}:
            check_text(text, field)
            return Text(text) if text else None
        case {"type": kind} if kind in _SKIPPED_PARTS:
            return None
        case {
            "type": "image_url" | "input_image",
            "image_url": {"url": str() as url} | (str() as url),
        }:
            return Image(from_url(url, "image", f"{field}.image_url"))
        case {"type": "video_url", "video_url": {"url": url} | (str() as url) as given}:
            inner = given if isinstance(given, Mapping) else {}
            frames = inner.get("num_frames", part.get("num_frames", NUM_FRAMES))
            if type(frames) is not int or frames < 1:
                raise InvalidCall(f"{field}.num_frames", frames, "an integer >= 1")
            return Video(from_url(url, "video", f"{field}.video_url"), frames)
    kind = part.get("type") if isinstance(part, Mapping) else part
    raise UnsupportedCall(f"{field}.type", kind, "text, or an image or a video given as data")


def _invocation(call: Mapping[str, Any]) -> Invocation:
    """A call of an earlier turn, spelled as an answer is that the grammar of tools allows."""
    function = call["function"]
    given = function.get("arguments") or "{}"
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:  # as it was written, if it is not JSON
        return Invocation(function["name"], given)
    return Invocation(function["name"], spell(value))
