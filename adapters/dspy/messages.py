"""Messages as DSPy's programs write them, in the form that DSPy can make a request of.

Other spellings of the same are converted: a text part without a `type`, or with that of
OpenAI's other API; files and documents of text; marks for another provider's cache. What cannot be
sent is refused with its position, before DSPy refuses it with less detail.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ...core.api.protocol import InvalidCall, UnsupportedCall
from ...core.common.suggestions import did_you_mean
from ...core.media.sources import from_url

_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_IMAGES = ("image_url", "input_image")
_KNOWN = (*_TEXTS, "document", "file", *_IMAGES, "input_audio")
_PART = "a mapping, as {'type': 'text', 'text': 'Hello'}"
_MESSAGE = "a mapping, as {'role': 'user', 'content': 'Hello'}"
_TEXT_FILE = "a file of text, as file_data='data:text/plain;base64,...'"
_REFUSALS = ("messages[", "Message requires", "at least one message")


def readable(messages: Any) -> Any:
    """The messages, each part in a form that DSPy knows; the same object where all were. Raises
    InvalidCall and UnsupportedCall, with the place of what cannot be sent."""
    if not isinstance(messages, list | tuple):
        raise InvalidCall("messages", messages, f"a list of messages, each {_MESSAGE}")
    found = [_message(it, f"messages[{index}]") for index, it in enumerate(messages)]
    is_changed = any(new is not old for new, old in zip(found, messages, strict=True))
    return found if is_changed else messages


def is_refusal(error: Exception) -> bool:
    """Whether a bare error is DSPy's refusal of a message."""
    return str(error).startswith(_REFUSALS)


def _message(message: Any, field: str) -> Any:
    if not isinstance(message, Mapping):
        if hasattr(message, "role"):  # one of DSPy's own objects
            return message
        raise InvalidCall(field, message, _MESSAGE)
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return message
    if isinstance(content, str):
        return message
    where = f"{field}.content"
    if not isinstance(content, list | tuple) or not content:
        raise InvalidCall(where, content, f"a text, or a list of parts, each {_PART}")
    parts = [_part(it, f"{where}[{index}]") for index, it in enumerate(content)]
    is_changed = any(new is not old for new, old in zip(parts, content, strict=True))
    return {**message, "content": parts} if is_changed else message


def _part(part: Any, field: str) -> Any:
    if not isinstance(part, Mapping):
        raise InvalidCall(field, part, _PART)
    kind = part.get("type")
    if kind is None and isinstance(part.get("text"), str):
        kind = "text"
    if kind == "document":
        return _text(_document(part, field))
    if kind == "file":
        return _text(_file(part.get("file"), f"{field}.file"))
    if kind in _IMAGES:
        return _image(part, field)
    if kind == "input_audio":
        return part
    if not isinstance(kind, str) or kind not in _TEXTS:
        suggestion = did_you_mean(kind, _KNOWN) if isinstance(kind, str) else ""
        raise UnsupportedCall(f"{field}.type", kind, " | ".join(_KNOWN) + suggestion)
    key = _TEXTS[kind]
    text = part.get(key)
    if not isinstance(text, str):
        raise InvalidCall(f"{field}.{key}", text, "a text")
    is_plain = part.get("type") == "text" and part.keys() == {"type", "text"}
    return part if is_plain else _text(text)


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _image(part: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """A part with an image, checked, in the form in which DSPy reads its data."""
    given = part.get("image_url")
    is_plain = part["type"] == "image_url" and isinstance(given, Mapping)
    url = given.get("url") if isinstance(given, Mapping) else given
    from_url(url, "image", f"{field}.image_url")
    return part if is_plain else {"type": "image_url", "image_url": {"url": url}}


def _document(part: Mapping[str, Any], field: str) -> str:
    """The text of a document, below its title and context."""
    source = part.get("source")
    data = source.get("data") if isinstance(source, Mapping) else None
    if not isinstance(source, Mapping) or source.get("type") != "text" or not isinstance(data, str):
        raise UnsupportedCall(f"{field}.source", source, "a text, as dspy.Document(data=...)")
    above = (part.get("title"), part.get("context"))
    return "\n".join([*(text for text in above if isinstance(text, str) and text), data])


def _file(file: Any, field: str) -> str:
    """The text of a file, below its name."""
    if not isinstance(file, Mapping):
        raise InvalidCall(field, file, "a mapping with file_data")
    name, data = file.get("filename"), file.get("file_data")
    if not isinstance(data, str):
        file_id = file.get("file_id") or name
        raise UnsupportedCall(
            field, file_id, f"{_TEXT_FILE}; files of other servers are not fetched"
        )
    head, comma, body = data.partition(",")
    media = head.removeprefix("data:").split(";")
    is_text = media[0].startswith("text/") or media[0] == "application/json"
    if not comma or not head.startswith("data:") or not is_text:
        raise UnsupportedCall(field, name or head[:60], _TEXT_FILE)
    try:
        text = base64.b64decode(body, validate=True).decode() if "base64" in media else body
    except (binascii.Error, ValueError) as error:
        raise InvalidCall(f"{field}.file_data", name or head[:60], f"text ({error})") from error
    return f"{name}\n{text}" if isinstance(name, str) and name else text
