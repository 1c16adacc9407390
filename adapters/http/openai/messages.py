"""Chat messages of a request as a chat of the protocol.

Tool calls of earlier turns are written as the model writes them; the template does the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ....core.api.protocol import Chat, InvalidCall, Message, Segment, Text, UnsupportedCall
from ...common.tools import Invocation, ToolFormat
from ..requests.media import KINDS, NO_MEDIA, MediaParts
from ..wire.wire import ROLES, ChatMessage, Tool, ToolCall, check_role

TEXT_PARTS = ("text", "input_text", "output_text")
_EMPTY = Text("")
_CONTENT = "a text, or a list of at least one part"


def chat_of(
    messages: Sequence[ChatMessage],
    tools: Sequence[Tool],
    form: ToolFormat,
    *,
    open_last: bool = False,
    media: MediaParts = NO_MEDIA,
    fields: Sequence[str] = (),
) -> Chat:
    """The chat of a request. tools: those that the template shows. form: how this model writes tool
    calls. media: how pictures are read. fields: of the messages' contents, where they are
    not in `messages`. Raises InvalidCall."""
    if not messages:
        raise InvalidCall("messages", [], "at least one message")
    fields = fields or [f"messages[{index}].content" for index in range(len(messages))]
    pairs = zip(messages, fields, strict=True)
    turns = tuple(_read_message(message, field, form, media) for message, field in pairs)
    return Chat(turns, open_last, tuple(map(_shown, tools)))


def _shown(tool: Tool) -> dict[str, Any]:
    """A tool as templates know it: they read its parameters, even where it has none."""
    shown = tool.model_dump(exclude_none=True)
    shown["function"].setdefault("parameters", {"type": "object", "properties": {}})
    return shown


def _read_message(message: ChatMessage, field: str, form: ToolFormat, media: MediaParts) -> Message:
    check_role(message.role, field.replace(".content", ".role"))
    content = message.content
    if (content is None or content == []) and message.role != "assistant":
        raise InvalidCall(field, content, _CONTENT)
    if (content is None or content == []) and not message.tool_calls:
        raise InvalidCall(field, content, f"{_CONTENT}; none only beside tool_calls")
    segments = segments_of(content, field, media)
    if message.tool_calls:
        calls = [_invocation(call) for call in message.tool_calls]
        text = form.write(calls, is_first=segments == (_EMPTY,))
        segments = _joined([*segments, Text(text)])
    return Message(ROLES[message.role], segments)


def segments_of(
    content: str | Sequence[str | Mapping[str, Any]] | None,
    field: str,
    media: MediaParts = NO_MEDIA,
) -> tuple[Segment, ...]:
    """A message's content: at least one segment, and no two texts beside each other. Raises
    InvalidCall for a part that is neither text nor what `media` reads, by its place in `field`."""
    if content is None or isinstance(content, str):
        return (Text(content or ""),)
    return _joined([_part(part, f"{field}[{index}]", media) for index, part in enumerate(content)])


def _joined(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Texts that follow one another, as one; empty ones only where there is nothing else."""
    found: list[Segment] = []
    for is_text, group in groupby(segments, lambda it: isinstance(it, Text)):
        if not is_text:
            found += group
        elif text := "".join(it.text for it in group if isinstance(it, Text)):
            found.append(Text(text))
    return tuple(found) or (_EMPTY,)


def _part(part: str | Mapping[str, Any], field: str, media: MediaParts) -> Segment:
    if isinstance(part, str):
        return Text(part)
    kind = part.get("type")
    if media.accepts and kind in KINDS:
        return media.segment(part, field)
    if kind not in TEXT_PARTS:
        allowed = "text (this model reads nothing else)"
        if media.accepts:
            allowed = f"text, {', '.join(KINDS)}"
        raise UnsupportedCall(f"{field}.type", kind, allowed)
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidCall(f"{field}.text", text, "a text")
    return Text(text)


def _invocation(call: ToolCall) -> Invocation:
    given = call.function.arguments
    if given is None or isinstance(given, str):
        return Invocation(call.function.name, given or "{}")
    return Invocation(call.function.name, json.dumps(given, ensure_ascii=False))
