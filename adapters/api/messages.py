"""A prompt as the messages of an API: texts, images, tool calls and their results.

Our tool calls are text in the messages of the assistant; an API has them apart, with ids.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.api.protocol import (
    Call,
    Chat,
    Image,
    Message,
    Prompt,
    Segment,
    Shown,
    Text,
    UnsupportedCall,
)
from ..common.toolreader import ArgumentsPiece, CallStart, TextPiece, ToolReader
from ..common.tools import GAPS, ToolFormat, ToolSpec

_IMAGES = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as base64. kind: its media type."""

    kind: str
    data: str


@dataclass(slots=True)
class ToolUse:
    """A tool call. arguments: JSON text."""

    id: str
    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message. uses: tool calls behind its parts. result_of: id of the call that it answers."""

    role: str
    parts: tuple[str | Picture, ...]
    uses: tuple[ToolUse, ...] = ()
    result_of: str | None = None

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(part for part in self.parts if isinstance(part, str))

    @property
    def is_text(self) -> bool:
        """Whether it has no images."""
        return all(isinstance(part, str) for part in self.parts)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools an answer may call. name: the one that it must call."""

    mode: str = "auto"
    name: str | None = None
    is_parallel: bool = True


def turns_of(prompt: Prompt) -> list[Turn]:
    """The messages of a prompt; plain text is one message of the user. Raises UnsupportedCall."""
    if not isinstance(prompt, Chat):
        return [Turn("user", _parts(prompt))]
    names = frozenset(str(tool["function"]["name"]) for tool in prompt.tools)
    turns, open_ids, num = list[Turn](), deque[str](), 0
    for message in prompt.messages:
        if message.role == "tool" and open_ids:
            turns.append(Turn("tool", _parts(message.content), result_of=open_ids.popleft()))
        elif message.role == "assistant" and names:
            turn = _with_uses(message, names, num)
            num += len(turn.uses)
            open_ids = deque(use.id for use in turn.uses)
            turns.append(turn)
        else:
            _check_role(message)
            turns.append(Turn(message.role, _parts(message.content)))
    return turns


def plain_text(prompt: Sequence[Segment]) -> str | None:
    """The text of a plain prompt; None where it has images. Raises UnsupportedCall."""
    turn = Turn("user", _parts(prompt))
    return turn.text if turn.is_text else None


def tool_choice(call: Call) -> ToolChoice | None:
    """The choice among a chat's tools that its constraint means: that of our adapters' grammars of
    tool calls. None: the constraint is another."""
    prompt = call.prompt
    if call.constraint is None:
        return ToolChoice()
    if not isinstance(prompt, Chat) or not prompt.tools:
        return None
    specs = [_spec(tool) for tool in prompt.tools]
    single = [(spec.name, [spec]) for spec in specs]
    for name, chosen in ((None, specs), *single):
        for form in map(ToolFormat, GAPS):
            for is_parallel in (True, False):
                for has_text in (True, False):
                    found = form.grammar(chosen, is_parallel=is_parallel, has_text=has_text)
                    if found == call.constraint:
                        mode = "auto" if has_text else "required" if name is None else "named"
                        return ToolChoice(mode, name, is_parallel)
    return None


def _spec(tool: Mapping[str, Any]) -> ToolSpec:
    function = tool["function"]
    description = str(function.get("description") or "")
    return ToolSpec(str(function["name"]), description, function.get("parameters"))


def _check_role(message: Message) -> None:
    if message.role == "tool":
        allowed = "a result behind a call of a tool that is in tools"
        raise UnsupportedCall("prompt", "a message of role 'tool'", allowed)


def _with_uses(message: Message, names: frozenset[str], num: int) -> Turn:
    """A message of the assistant, its tool calls apart. num: of the calls before it."""
    parts, uses = list[str | Picture](), list[ToolUse]()
    for part in _parts(message.content):
        if isinstance(part, Picture):
            parts.append(part)
            continue
        reader = ToolReader(names)
        for piece in reader.push(part, is_last=True):
            match piece:
                case TextPiece(text=text):
                    parts.append(text)
                case CallStart(name=name):
                    uses.append(ToolUse(f"call_{num + len(uses)}", name))
                case ArgumentsPiece(text=text):
                    uses[-1].arguments += text
    return Turn(message.role, tuple(parts), tuple(uses))


def _parts(segments: Sequence[Segment]) -> tuple[str | Picture, ...]:
    """Texts and images; adjacent texts are one."""
    found = list[str | Picture]()
    for segment in segments:
        match segment:
            case Text(text=text):
                last = found.pop() if found and isinstance(found[-1], str) else ""
                found.append(f"{last}{text}")
            case Image(data=data):
                found.append(_picture(data))
            case _:
                kind = type(segment).__name__.lower()
                allowed = "text and images: an API takes neither token ids nor videos"
                raise UnsupportedCall("prompt", Shown(f"a segment of {kind}"), allowed)
    return tuple(found)


def _picture(data: bytes) -> Picture:
    kind = next((kind for start, kind in _IMAGES if data.startswith(start)), None)
    if kind is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None:
        raise UnsupportedCall("prompt", Shown("an image"), "one in PNG, JPEG, GIF or WebP")
    return Picture(kind, base64.b64encode(data).decode())
