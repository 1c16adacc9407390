"""What a prompt is: segments, or the messages of a chat.

Frozen values of the standard library; `is_prompt` checks whether one is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .errors import UnsupportedCall
from .keywords import checks_fields


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of prompt text.

    ids: the tokens that wrote this text, where it is a model's own answer; a runtime with the same
      tokenizer uses them instead of encoding the text again, any other reads the text.
    """

    text: str
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """A piece of prompt given as token ids of the runtime's own tokenizer."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """An encoded image (PNG, JPEG, ...)."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Video:
    """An encoded video, of which `num_frames` evenly spaced frames are shown to the model."""

    data: bytes
    num_frames: int


Segment: TypeAlias = Text | Tokens | Image | Video


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `role` is what the model's chat template knows, as "user"."""

    role: str
    content: tuple[Segment, ...]


@checks_fields()
@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt given as messages, rendered by the model's own chat template.

    open_last: the last message is not closed: the model goes on writing it. Otherwise a new
      assistant message is opened.
    tools: tool descriptions in JSON form, passed to the template.
    """

    messages: tuple[Message, ...]
    open_last: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()


Prompt: TypeAlias = tuple[Segment, ...] | Chat
PROMPTS = (
    "a tuple of segments (Text, Tokens, Image, Video), or a Chat of a tuple of at least one"
    " Message whose content is such a tuple, open_last=True or False, and tools as a tuple of"
    " mappings; text without lone surrogates, ids as a tuple of integers, data as bytes, num_frames"
    " as an integer >= 1"
)


def is_prompt(value: object) -> bool:
    """Whether this is one of PROMPTS."""
    return _is_chat(value) if isinstance(value, Chat) else _are_segments(value)


def check_media(prompt: Prompt, features: Collection[str], model: str) -> None:
    """Raise UnsupportedCall for an image or a video that a backend does not take. features: of its
    `BackendInfo`, of which "images" and "videos" are read. model: the name for the message."""
    if isinstance(prompt, Chat):
        segments = [segment for message in prompt.messages for segment in message.content]
    else:
        segments = list(prompt)
    for kind, noun, feature in ((Image, "an image", "images"), (Video, "a video", "videos")):
        if feature not in features and any(isinstance(it, kind) for it in segments):
            allowed = f"text; {feature} are not supported by this model ({model})"
            raise UnsupportedCall("prompt", noun, allowed)


def is_text(value: object) -> bool:
    """Whether this is a string that can be encoded: one without lone surrogates."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _are_segments(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_segment, value))


def _is_segment(value: object) -> bool:
    match value:
        case Text(text=text, ids=ids):
            return is_text(text) and (ids is None or _are_ids(ids))
        case Tokens(ids=ids):
            return _are_ids(ids)
        case Image(data=data):
            return isinstance(data, bytes)
        case Video(data=data, num_frames=num_frames):
            return isinstance(data, bytes) and type(num_frames) is int and num_frames >= 1
    return False


def _are_ids(value: object) -> bool:
    return isinstance(value, tuple) and all(type(token) is int for token in value)


def _is_chat(value: Chat) -> bool:
    return (
        isinstance(value.messages, tuple)
        and len(value.messages) > 0
        and all(map(_is_message, value.messages))
        and isinstance(value.open_last, bool)
        and isinstance(value.tools, tuple)
        and all(map(_is_sayable, value.tools))
    )


def _is_message(value: object) -> bool:
    return isinstance(value, Message) and is_text(value.role) and _are_segments(value.content)


def _is_sayable(tool: object) -> bool:
    """Whether this is a mapping whose texts can be encoded. Values that are not JSON, a template
    may refuse."""
    if not isinstance(tool, Mapping):
        return False
    try:
        json.dumps(tool, ensure_ascii=False, default=dict).encode()
    except UnicodeEncodeError:
        return False
    except (TypeError, ValueError, RecursionError):
        return True
    return True
