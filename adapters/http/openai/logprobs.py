"""Log-probabilities of tokens in the shapes of OpenAI: one for completions, one for chats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ....core.api.protocol import TokenLogprob
from ..server.runtime import Texts

LEAST = -9999.0  # what OpenAI writes for minus infinity


def chat_logprobs(texts: Texts, logprobs: Iterable[TokenLogprob]) -> dict[str, Any]:
    """Of a chat's answer; tokens that add no text, such as the one that ends it, are left out."""
    content = [
        {
            **_chat_token(texts, it.id, it.logprob),
            "top_logprobs": [_chat_token(texts, *candidate) for candidate in it.top],
        }
        for it in logprobs
        if _bytes(texts, it.id)
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    texts: Texts, scores: Sequence[TokenLogprob], offset: int = 0
) -> dict[str, Any]:
    """Of a completion. offset: where the first token's text begins. The logarithm of a prompt's
    first token is NaN: nothing comes before it."""
    offsets = []
    for score in scores:
        offsets.append(offset)
        offset += len(_bytes(texts, score.id).decode("utf-8", "ignore"))
    return {
        "tokens": [token_text(texts, score.id) for score in scores],
        "token_logprobs": [_finite(score.logprob) for score in scores],
        "top_logprobs": [_top_logprobs(texts, score) for score in scores],
        "text_offset": offsets,
    }


def token_text(texts: Texts, token: int) -> str:
    """A token's text; its id if it has none, its bytes if these are not UTF-8."""
    data = _bytes(texts, token)
    if not data:
        return f"token_id:{token}"
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _chat_token(texts: Texts, token: int, logprob: float) -> dict[str, Any]:
    data = _bytes(texts, token)
    return {"token": token_text(texts, token), "logprob": _finite(logprob), "bytes": [*data]}


def _top_logprobs(texts: Texts, score: TokenLogprob) -> dict[str, float | None] | None:
    """The likeliest tokens, and the token itself; None for a first token."""
    if math.isnan(score.logprob):
        return None
    top = {token_text(texts, token): _finite(logprob) for token, logprob in score.top}
    return top | {token_text(texts, score.id): _finite(score.logprob)}


def _finite(logprob: float) -> float | None:
    if math.isnan(logprob):
        return None
    return logprob if math.isfinite(logprob) else LEAST


def _bytes(texts: Texts, token: int) -> bytes:
    return texts.token_bytes[token] if token < len(texts.token_bytes) else b""
