"""Answers in SGLang's form: `{"text", "output_ids", "meta_info"}`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....core.api.protocol import Output, TokenLogprob, Usage
from ..server.runtime import Texts
from .prompt_requests import LogprobOptions, PromptRequest

IMPOSSIBLE = -9999.0  # JSON has no infinity


def answer(
    texts: Texts,
    prompt_request: PromptRequest,
    index: int,
    output: Output,
    usage: Usage,
    scored: Sequence[TokenLogprob] = (),
) -> dict[str, Any]:
    """Answer `index` to one prompt, after its end. scored: the prompt's own tokens."""
    text = output.text
    if prompt_request.keeps_stop and isinstance(output.matched, str):
        text += output.matched
    body = answer_so_far(texts, prompt_request, index, output, usage) | {"text": text}
    body["meta_info"]["finish_reason"] = _reason(output)
    if prompt_request.logprobs is not None:
        body["meta_info"] |= _logprobs(texts, prompt_request.logprobs, "input", scored)
    return body


def answer_so_far(
    texts: Texts,
    prompt_request: PromptRequest,
    index: int,
    output: Output,
    usage: Usage,
) -> dict[str, Any]:
    """Answer `index` to one prompt as far as it has come; all of its text, not what is new."""
    meta: dict[str, Any] = {
        "id": prompt_request.rids[index],
        "finish_reason": None,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": len(output.ids),
        "cached_tokens": usage.cached_tokens,
    }
    if prompt_request.logprobs is not None:
        meta |= _logprobs(texts, prompt_request.logprobs, "input", ())
        meta |= _logprobs(texts, prompt_request.logprobs, "output", output.logprobs)
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
    texts: Texts, logprob_options: LogprobOptions, side: str, found: Sequence[TokenLogprob]
) -> dict[str, Any]:
    body: dict[str, Any] = {
        f"{side}_token_logprobs": [
            _entry(texts, logprob_options, one.id, one.logprob) for one in found
        ]
    }
    if logprob_options.num_top:
        body[f"{side}_top_logprobs"] = [_tops(texts, logprob_options, one) for one in found]
    return body


def _tops(
    texts: Texts, logprob_options: LogprobOptions, found: TokenLogprob
) -> list[list[Any]] | None:
    if math.isnan(found.logprob):
        return None
    return [_entry(texts, logprob_options, token, logprob) for token, logprob in found.top]


def _entry(texts: Texts, logprob_options: LogprobOptions, token: int, logprob: float) -> list[Any]:
    """A token in SGLang's format; null for the logarithm of the first, which has none."""
    number = None if math.isnan(logprob) else max(logprob, IMPOSSIBLE)
    return [number, token, texts.decode([token]) if logprob_options.has_text else None]
