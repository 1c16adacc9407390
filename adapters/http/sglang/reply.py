"""Answers in SGLang's form: `{"text", "output_ids", "meta_info"}`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....core.api.protocol import Completion, Output, TokenLogprob
from ..server.runtime import Texts
from .prompt_requests import LogprobOptions, PromptRequest

IMPOSSIBLE = -9999.0  # JSON has no infinity


def answers(texts: Texts, prompt_request: PromptRequest) -> list[dict[str, Any]]:
    """The answers to one prompt, after its end."""
    completion = Completion((Output("", finish_reason="length"),))
    if prompt_request.reply is not None:
        completion = prompt_request.reply.result(0)
    cached, num = completion.usage.cached_tokens, len(prompt_request.ids)
    if prompt_request.media:
        num = completion.usage.prompt_tokens
    bodies = []
    for index, output in enumerate(completion.outputs):
        body = answer_so_far(texts, prompt_request, index, output, min(cached, num))
        body["meta_info"]["prompt_tokens"] = num
        if prompt_request.keeps_stop and isinstance(output.matched, str):
            body["text"] += output.matched
        body["meta_info"]["finish_reason"] = _reason(output)
        if (options := prompt_request.logprobs) is not None:
            # The first of all has NaN, as nothing comes before it.
            first = prompt_request.ids[:1] if options.start == 0 else ()
            scored = [*(TokenLogprob(it, math.nan) for it in first), *completion.prompt_logprobs]
            body["meta_info"] |= _logprobs(texts, options, "input", scored)
        bodies.append(body)
    return bodies


def answer_so_far(
    texts: Texts, prompt_request: PromptRequest, index: int, output: Output, cached: int = 0
) -> dict[str, Any]:
    """Answer `index` to one prompt as far as it has come; all of its text, not what is new.
    cached: tokens of the prompt, once that is known."""
    meta: dict[str, Any] = {
        "id": prompt_request.rids[index],
        "finish_reason": None,
        "prompt_tokens": len(prompt_request.ids),
        "completion_tokens": len(output.ids),
        "cached_tokens": cached,
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
    texts: Texts, options: LogprobOptions, side: str, found: Sequence[TokenLogprob]
) -> dict[str, Any]:
    def entry(token: int, logprob: float) -> list[Any]:
        """In SGLang's format; null for the logarithm of the first token, which has none."""
        number = None if math.isnan(logprob) else max(logprob, IMPOSSIBLE)
        return [number, token, texts.decode([token]) if options.has_text else None]

    body: dict[str, Any] = {f"{side}_token_logprobs": [entry(it.id, it.logprob) for it in found]}
    if options.num_top:
        body[f"{side}_top_logprobs"] = [
            None if math.isnan(it.logprob) else [entry(*top) for top in it.top] for it in found
        ]
    return body
