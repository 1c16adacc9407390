"""Texts of requests, which can hold what is not text: refused by typed errors, before a model sees
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from ....core.api.protocol import BackendInfo, Call, Chat, Segment, Text
from ...common.surrogates import check_text, check_texts
from .runtime import Texts
from .workers import SMALL

_SIGNS = (b"\\ud", b"\\uD", b"\xed")  # without one of these a body has no surrogate
_PAIR = re.compile(rb"(?<!\\)\\u[dD][89abAB]..\\u[dD][c-fC-F]..")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
_NOT_READ = "metadata"  # is returned as it came


class CheckedTexts:
    """As the tokenizer that it wraps; prompts are checked before they are encoded.

    info: of the backend, whose context bounds prompts.
    """

    def __init__(self, texts: Texts, info: Callable[[], BackendInfo]) -> None:
        self._texts = texts
        self._info = info
        self._context_len: int | None = None
        self.token_bytes = texts.token_bytes
        self.start_ids = texts.start_ids

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """As `Texts.encode`. Raises InvalidCall for invalid text, such as lone surrogates."""
        check_text(text, "prompt")
        Call((Text(text),)).check()
        return self._texts.encode(text, most)

    def decode(self, ids: Sequence[int]) -> str:
        """As `Texts.decode`."""
        return self._texts.decode(ids)

    def encode_prompt(
        self, prompt: tuple[Segment, ...] | Chat, most: int | None = None
    ) -> list[int]:
        """As `Texts.encode_prompt`; most: the backend's context if None."""
        Call(prompt).check()
        if most is None:
            if self._context_len is None:
                self._context_len = self._info().context_len
            most = self._context_len
        return self._texts.encode_prompt(prompt, most)


def check_body(body: bytes) -> None:
    """Raise InvalidCall for a lone surrogate in a body of JSON, by its field. What is not JSON is
    for others to refuse."""
    if not any(sign in body for sign in _SIGNS):
        return
    if len(body) <= SMALL and not _SURROGATE.search(_PAIR.sub(b" ", body)):
        return
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return
    if isinstance(given, dict):
        given.pop(_NOT_READ, None)
    check_texts(given)
