"""Answers in SGLang's form: `{"text", "output_ids", "meta_info"}`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....core.api.protocol import Output, TokenLogprob, Usage
from ..server.runtime import Texts
from .asks import Ask, LogprobWish

IMPOSSIBLE = -9999.0  # JSON has no infinity


def answer(
    texts: Texts,
    ask: Ask,
    index: int,
    output: Output,
    usage: Usage,
    scored: Sequence[TokenLogprob] = (),
) -> dict[str, Any]:
    """Answer `index` to one prompt, after its end. scored: the prompt's own tokens."""
    text = output.text
    if ask.keeps_stop and isinstance(output.matched, str):
        text += output.matched
    told = answer_so_far(texts, ask, index, output, usage) | {"text": text}
    told["meta_info"]["finish_reason"] = _reason(output)
    if ask.logprobs is not None:
        told["meta_info"] |= _logprobs(texts, ask.logprobs, "input", scored)
    return told


def answer_so_far(
    texts: Texts,
    ask: Ask,
    index: int,
    output: Output,
    usage: Usage,
) -> dict[str, Any]:
    """Answer `index` to one prompt as far as it has come; all of its text, not what is new."""
    meta: dict[str, Any] = {
        "id": ask.rids[index],
        "finish_reason": None,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": len(output.ids),
        "cached_tokens": usage.cached_tokens,
    }
    if ask.logprobs is not None:
        meta |= _logprobs(texts, ask.logprobs, "input", ())
        meta |= _logprobs(texts, ask.logprobs, "output", output.logprobs)
        meta["output_token_logprobs_length"] = len(output.logprobs)
    return {"text": output.text, "output_ids": list(output.ids), "meta_info": meta}


def _reason(output: Output) -> dict[str, Any]:
    match output.finish_reason:
        case "length":
            return {"type": "length", "length": len(output.ids)}
        case "abort":
            return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    return {"type": "stop", "matched": output.matched}


def _logprobs(
    texts: Texts, wish: LogprobWish, side: str, found: Sequence[TokenLogprob]
) -> dict[str, Any]:
    told: dict[str, Any] = {
        f"{side}_token_logprobs": [_entry(texts, wish, one.id, one.logprob) for one in found]
    }
    if wish.num_top:
        told[f"{side}_top_logprobs"] = [_tops(texts, wish, one) for one in found]
    return told


def _tops(texts: Texts, wish: LogprobWish, found: TokenLogprob) -> list[list[Any]] | None:
    if math.isnan(found.logprob):
        return None
    return [_entry(texts, wish, token, logprob) for token, logprob in found.top]


def _entry(texts: Texts, wish: LogprobWish, token: int, logprob: float) -> list[Any]:
    """A token as SGLang tells it; null for the logarithm of the first, which has none."""
    told = None if math.isnan(logprob) else max(logprob, IMPOSSIBLE)
    return [told, token, texts.decode([token]) if wish.has_text else None]
