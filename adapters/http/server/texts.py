"""Texts of requests, which can hold what is not text: refused by typed errors, before a model sees
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from ....core.api.protocol import (
    BackendInfo,
    Call,
    CallTooLarge,
    Chat,
    Segment,
    Shown,
    Text,
    Tokens,
)
from ...common.surrogates import check_text, check_texts
from .runtime import Texts

_SLICE = 1 << 16
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

    def check_len(self, prompt: tuple[Segment, ...] | Chat, num_new: int) -> None:
        """Raise CallTooLarge for a prompt of texts or tokens that cannot fit, by its length alone.
        num_new: tokens that the context must have room for besides."""
        if isinstance(prompt, Chat):
            return
        most, per_token = self._most(), getattr(self._texts, "chars_per_token", None)
        num_tokens = max((len(it.ids) for it in prompt if isinstance(it, Tokens)), default=0)
        num_chars = max((len(it.text) for it in prompt if isinstance(it, Text)), default=0)
        shown = None
        if num_tokens > most:
            shown = f"{num_tokens} tokens"
        elif per_token is not None and num_chars > most * per_token:
            shown = f"{num_chars} characters"
        if shown is not None:
            allowed = f"at most {most - num_new} tokens, as the context (context_len) has {most}"
            raise CallTooLarge("prompt", Shown(shown), f"{allowed}; a shorter prompt")

    def decode(self, ids: Sequence[int]) -> str:
        """As `Texts.decode`."""
        return self._texts.decode(ids)

    def encode_prompt(
        self, prompt: tuple[Segment, ...] | Chat, most: int | None = None
    ) -> list[int]:
        """As `Texts.encode_prompt`; most: the backend's context if None."""
        Call(prompt).check()
        return self._texts.encode_prompt(prompt, self._most() if most is None else most)

    def _most(self) -> int:
        """Tokens of the context."""
        if self._context_len is None:
            self._context_len = self._info().context_len
        return self._context_len


def check_body(body: bytes) -> None:
    """Raise InvalidCall for a lone surrogate in a body of JSON, by its field. What is not JSON is
    for others to refuse."""
    if not has_sign(body) or not _SURROGATE.search(_PAIR.sub(b" ", body)):
        return
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        return
    check_given(given)


def check_given(given: Any) -> None:
    """Raise InvalidCall for a lone surrogate in the value of a body, by its field."""
    if isinstance(given, dict) and _NOT_READ in given:
        given = {name: value for name, value in given.items() if name != _NOT_READ}
    check_texts(given)


def has_sign(body: bytes) -> bool:
    """Whether a body of JSON may have surrogates, lone ones or pairs."""
    most = max(map(len, _SIGNS)) - 1
    return any(
        sign in body[start : start + _SLICE + most]
        for start in range(0, len(body), _SLICE)
        for sign in _SIGNS
    )
