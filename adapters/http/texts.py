"""A tokenizer that refuses what is no text, by a typed error: requests can hold such things."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.protocol import Call, Chat, Segment, Text
from .runtime import Texts


class CheckedTexts:
    """As the tokenizer it stands for; prompts are checked before they are encoded."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self.token_bytes = texts.token_bytes
        self.start_ids = texts.start_ids

    def encode(self, text: str) -> list[int]:
        """As `Texts.encode`. Raises InvalidCall for what is no text, such as lone surrogates."""
        Call((Text(text),)).check()
        return self._texts.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """As `Texts.decode`."""
        return self._texts.decode(ids)

    def encode_prompt(self, prompt: tuple[Segment, ...] | Chat) -> list[int]:
        """As `Texts.encode_prompt`."""
        Call(prompt).check()
        return self._texts.encode_prompt(prompt)
