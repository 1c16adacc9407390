"""Calls as keys of the meta-tree: the digests of a prompt's tokens, or of its text.

Where the tokenizer is known, a key is of tokens, as engines cache and report them; else of text,
with a mark in front of every message, and the digest of a picture in its place. A prompt that
cannot be encoded, or is longer than nearly all models take, has an empty key.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator
from typing import Any, Protocol

from ...core.api.protocol import (
    Call,
    Chat,
    Image,
    Output,
    Prompt,
    Segment,
    Text,
    Tokens,
    Video,
)
from ...core.common.digests import CHUNK, digests
from .policies import Request

MOST_TEXT = 1 << 20  # characters of a prompt that are looked at
MOST_TOKENS = 1 << 18  # of a prompt that has a key


class Encoder(Protocol):
    """The method that is needed of a tokenizer."""

    def encode_prompt(self, prompt: Any, most: int | None = None) -> list[int]:
        """Token ids of a whole prompt."""


def request_of(call: Call, encoder: Encoder | None = None) -> Request:
    """What a policy sees of a call."""
    hint = call.hint
    root = None if hint is None or not hint.root else (f"{call.namespace}\n{call.owner}", hint.root)
    key, rest = _cut(_bytes(call.prompt, encoder))
    return Request(call.namespace, key, rest, root)


def answered(request: Request, call: Call, output: Output, encoder: Encoder | None) -> bytes:
    """The digests of a call's prompt and one of its outputs; those of the prompt where the output
    does not fill another chunk."""
    if encoder is not None and not _has_media(call.prompt):
        added = array("i", output.ids).tobytes()
    else:
        mark = b"\x00assistant\x00" if isinstance(call.prompt, Chat) else b""
        added = mark + output.text[:MOST_TEXT].encode(errors="replace")
    return request.key + digests(request.rest + added)


def _bytes(prompt: Prompt, encoder: Encoder | None) -> bytes:
    if encoder is not None and not _has_media(prompt):
        try:
            return array("i", encoder.encode_prompt(prompt, MOST_TOKENS)).tobytes()
        except Exception:  # its replica says what is wrong
            return b""
    return b"".join(_texts(prompt))


def _cut(data: bytes) -> tuple[bytes, bytes]:
    end = len(data) // CHUNK * CHUNK
    return digests(data), data[end:]


def _has_media(prompt: Prompt) -> bool:
    return any(isinstance(it, Image | Video) for it in _segments(prompt))


def _segments(prompt: Prompt) -> Iterator[Segment]:
    if isinstance(prompt, Chat):
        for message in prompt.messages:
            yield from message.content
    else:
        yield from prompt


def _texts(prompt: Prompt) -> Iterator[bytes]:
    if not isinstance(prompt, Chat):
        yield from map(_text, prompt)
        return
    if prompt.tools:
        yield json.dumps(prompt.tools, default=dict, sort_keys=True).encode()
    for message in prompt.messages:
        yield f"\x00{message.role}\x00".encode(errors="replace")
        yield from map(_text, message.content)


def _text(segment: Segment) -> bytes:
    match segment:
        case Text(text=text):
            return text[:MOST_TEXT].encode(errors="replace")
        case Tokens(ids=ids):
            return array("q", ids).tobytes()
        case Image(data=data) | Video(data=data):
            return hashlib.blake2b(data, digest_size=32).digest()
