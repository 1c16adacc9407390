"""The meta information of a variable under SGLang's names, made from that of the native language.

The native names are there as well, but for those whose values SGLang gives in another form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ...core.api.protocol import Backend, TokenLogprob
from .choices import normalized

Text: TypeAlias = Callable[[int], str | None]
_REPLACED = ("logprobs", "prompt_logprobs")


def texts_of(backend: Backend) -> Text:
    """The text of a token, as far as the backend can decode it; None where it cannot."""
    decode = getattr(getattr(backend, "tokenizer", None), "decode", None)
    return (lambda token: None) if decode is None else (lambda token: str(decode([token])))


def as_sglang(native: Any, text: Text) -> Any:
    """Meta information of one variable; of a list of them, as joined branches leave, a list."""
    if isinstance(native, list):
        return [as_sglang(one, text) for one in native]
    if not isinstance(native, Mapping) or not native:
        return native
    if "choices" in native:
        return {**native, **_of_select(native, text)}
    meta = {key: value for key, value in native.items() if key not in _REPLACED}
    return {**meta, **_of_gen(native, text)}


def chunk_meta(ids: int, logprobs: Sequence[TokenLogprob], length: int, text: Text) -> Any:
    """The meta information of a streamed piece of text: the tokens so far (`ids`), the
    log-probabilities of those that are new, and how many there were so far (`length`)."""
    return {
        "completion_tokens": ids,
        "output_token_logprobs": _entries(logprobs, text),
        "output_top_logprobs": _tops(logprobs, text),
        "output_token_logprobs_length": length,
    }


def _of_gen(native: Mapping[str, Any], text: Text) -> dict[str, Any]:
    is_list = isinstance(native["ids"], list)

    def each(make: Callable[..., Any], *names: str) -> Any:
        """`make` of these values: of each answer, where there is a list of them."""
        values = [native[name] for name in names]
        return list(map(make, *values)) if is_list else make(*values)

    found: dict[str, Any] = {"finish_reason": each(_reason, "finish_reason", "matched", "ids")}
    logprobs = native["logprobs"]
    if any(logprobs):
        found["output_token_logprobs"] = each(lambda it: _entries(it, text), "logprobs")
        found["output_top_logprobs"] = each(lambda it: _tops(it, text), "logprobs")
        found["output_token_logprobs_length"] = sum(map(len, logprobs if is_list else [logprobs]))
    if "prompt_logprobs" in native:
        scored = native["prompt_logprobs"]
        is_whole = len(scored) == native["prompt_tokens"] - 1
        first: list[Any] = [[None, None, None]] if is_whole else []
        found["input_token_logprobs"] = [*first, *_entries(scored, text)]
        found["input_top_logprobs"] = [*(None for _ in first), *_tops(scored, text)]
    return found


def _of_select(native: Mapping[str, Any], text: Text) -> dict[str, Any]:
    pairs = zip(native["token_ids"], native["token_logprobs"], strict=True)
    tokens = [
        [[logprob, token, text(token)] for token, logprob in zip(ids, logprobs, strict=True)]
        for ids, logprobs in pairs
    ]
    found = {
        "normalized_prompt_logprobs": [normalized(it) for it in native["token_logprobs"]],
        "input_token_logprobs": tokens,
        "output_token_logprobs": [[] for _ in tokens],
    }
    if "unconditional_token_logprobs" in native:
        found["normalized_unconditional_prompt_logprobs"] = list(native["scores"])
    return found


def _reason(reason: str, matched: object, ids: Sequence[int]) -> dict[str, Any]:
    if reason == "length":
        return {"type": "length", "length": len(ids)}
    return {"type": reason, "matched": matched}


def _entries(found: Sequence[TokenLogprob], text: Text) -> list[list[Any]]:
    return [[None if math.isnan(it.logprob) else it.logprob, it.id, text(it.id)] for it in found]


def _tops(found: Sequence[TokenLogprob], text: Text) -> list[list[list[Any]]]:
    return [[[logprob, token, text(token)] for token, logprob in it.top] for it in found]
