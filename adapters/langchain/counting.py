"""How many tokens a text or a chat is, for LangChain to trim what is too long.

A runtime in this process, or a child of it, has its tokenizer at hand. To any other the prompt is
sent for no answer: it is then in the cache, and its length is reported.
"""

from __future__ import annotations

from typing import Any

from ...core.api.protocol import (
    Backend,
    Call,
    ForkrootError,
    Prompt,
    Sampling,
    Text,
    UnsupportedCall,
)
from .errors import as_langchain


def num_tokens(backend: Backend, prompt: Prompt) -> int:
    """Tokens of a prompt, its template's included. Raises as a call does that does not fit."""
    tokenizer: Any = getattr(backend, "tokenizer", None)
    try:
        if tokenizer is not None:
            return len(tokenizer.encode_prompt(prompt))
        return backend.submit(Call(prompt, Sampling(max_tokens=0))).result().usage.prompt_tokens
    except ForkrootError as error:
        raise as_langchain(error) from error


def num_text_tokens(backend: Backend, text: str) -> int:
    """Tokens of a text by itself; where no tokenizer is at hand, those before every text too."""
    tokenizer: Any = getattr(backend, "tokenizer", None)
    if tokenizer is not None:
        return len(tokenizer.encode(text))
    return num_tokens(backend, (Text(text),)) if text else 0


def token_ids(backend: Backend, text: str) -> list[int]:
    """Token ids of a text by itself. Raises UnsupportedCall where no tokenizer is at hand."""
    tokenizer: Any = getattr(backend, "tokenizer", None)
    if tokenizer is None:
        allowed = "get_num_tokens: this runtime's tokenizer is elsewhere"
        raise as_langchain(UnsupportedCall("get_token_ids", text, allowed))
    return list(tokenizer.encode(text))
