"""Tokens of Guidance's parser as a prompt of the protocol."""

from __future__ import annotations

from typing import Any

from ...core.api.protocol import Segment, Text, Tokens


def prompt_of(tokens: list[int], tokenizer: Any) -> tuple[Segment, ...]:
    """The prompt of these tokens: as text that keeps them, so that what calls share is seen; as
    bare tokens where they end within a character.

    A start token is left to the runtime, which sets its own.
    """
    if len(tokens) < 2:
        return (Tokens(tuple(tokens)),)
    ids = tokens[1:] if tokens[:1] == [tokenizer.bos_token_id] else tokens
    data = bytes(tokenizer.decode(ids))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return (Tokens(tuple(tokens)),)
    return (Text(text, tuple(ids)),)
