"""`Engine`: SGLang's class for prompts without programs, over a forkroot backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ...core.api.protocol import (
    Call,
    Chunk,
    Completion,
    InvalidCall,
    Reply,
    Sampling,
    Text,
    Tokens,
    UnsupportedCall,
)
from ..native.interpreter.meta import gen_meta
from ..native.language.constraints import constraint_of
from ..native.language.settings import SAMPLING_FIELDS, sampling_fields
from .endpoints import Runtime
from .meta import as_sglang, texts_of
from .primitives import check_no_stop_regex, scored_from

Params: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
_RENAMED = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}
_CONSTRAINTS = ("regex", "json_schema")
_WITHOUT_EFFECT = ("skip_special_tokens", "spaces_between_special_tokens", "stop_regex")


class Logprobs(NamedTuple):
    """Which log-probabilities a prompt shall come with, by SGLang's names."""

    return_logprob: bool = False
    logprob_start_len: int | None = None
    top_logprobs_num: int = 0


class Engine(Runtime):
    """A model in this process, as `Runtime`, with `generate`."""

    def generate(
        self,
        prompt: str | Sequence[str] | None = None,
        sampling_params: Params = None,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        return_logprob: bool = False,
        logprob_start_len: int | None = None,
        top_logprobs_num: int = 0,
        stream: bool = False,
    ) -> Any:
        """The answer as `{"text", "output_ids", "meta_info"}`; a list of them for a list of
        prompts; with `stream` an iterator of answers so far, for one prompt. Raises InvalidCall
        for arguments that are not allowed, and the error that ended a call."""
        logprobs = Logprobs(return_logprob, logprob_start_len, top_logprobs_num)
        calls, is_list = _calls(prompt, input_ids, sampling_params, logprobs, stream)
        replies = [self.submit(call) for call in calls]
        if stream:
            return self._stream(replies[0])
        found = [self._answer(reply.result(), reply.call) for reply in replies]
        return found if is_list else found[0]

    async def async_generate(
        self,
        prompt: str | Sequence[str] | None = None,
        sampling_params: Params = None,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        return_logprob: bool = False,
        logprob_start_len: int | None = None,
        top_logprobs_num: int = 0,
        stream: bool = False,
    ) -> Any:
        """As `generate`, for asyncio."""
        logprobs = Logprobs(return_logprob, logprob_start_len, top_logprobs_num)
        calls, is_list = _calls(prompt, input_ids, sampling_params, logprobs, stream)
        replies = [self.submit(call) for call in calls]
        if stream:
            return self._async_stream(replies[0])
        found = [self._answer(await reply, reply.call) for reply in replies]
        return found if is_list else found[0]

    def encode(self, prompt: Any) -> Any:
        """Raises UnsupportedCall: embeddings are not computed."""
        raise UnsupportedCall("encode", prompt, "generate: embeddings are not computed")

    def _answer(self, completion: Completion, call: Call) -> dict[str, Any]:
        is_list = call.sampling.n > 1
        meta = gen_meta(completion, is_list, call.scored_from is not None)
        texts = [it.text for it in completion.outputs]
        ids = [list(it.ids) for it in completion.outputs]
        return {
            "text": texts if is_list else texts[0],
            "output_ids": ids if is_list else ids[0],
            "meta_info": as_sglang(meta, texts_of(self)),
        }

    def _stream(self, reply: Reply) -> Iterator[Any]:
        so_far = _SoFar()
        for chunk in reply:
            yield from so_far.grown(chunk)
        yield self._answer(reply.result(), reply.call)

    async def _async_stream(self, reply: Reply) -> AsyncIterator[Any]:
        so_far = _SoFar()
        async for chunk in reply:
            for answer in so_far.grown(chunk):
                yield answer
        yield self._answer(await reply, reply.call)


@dataclass(slots=True)
class _SoFar:
    """The first answer of a call as far as it has come."""

    text: str = ""
    ids: tuple[int, ...] = ()

    def grown(self, chunk: Chunk) -> Iterator[dict[str, Any]]:
        """The answer with one more chunk; nothing for a chunk of another answer."""
        if chunk.index == 0:
            self.text, self.ids = self.text + chunk.text, self.ids + chunk.ids
            meta = {"finish_reason": None, "completion_tokens": len(self.ids)}
            yield {"text": self.text, "output_ids": list(self.ids), "meta_info": meta}


def _calls(
    prompt: Any, input_ids: Any, params: Any, logprobs: Logprobs, stream: bool
) -> tuple[list[Call], bool]:
    """A call for each prompt, and whether there is a list of them."""
    if (prompt is None) is (input_ids is None):
        raise InvalidCall("prompt", prompt, "either a prompt or input_ids")
    given = prompt if input_ids is None else input_ids
    is_ids = input_ids is not None and all(isinstance(it, int) for it in input_ids)
    is_list = not isinstance(given, str) and not is_ids
    prompts = list(given) if is_list else [given]
    many = list(params) if isinstance(params, list | tuple) else [params or {}] * len(prompts)
    if len(many) != len(prompts):
        raise InvalidCall("sampling_params", params, f"one mapping, or {len(prompts)} of them")
    if stream and is_list:
        raise InvalidCall("stream", True, "False for a list of prompts")
    pairs = zip(prompts, many, strict=True)
    return [_call(one, own, logprobs, stream) for one, own in pairs], is_list


def _call(prompt: Any, params: Mapping[str, Any], logprobs: Logprobs, stream: bool) -> Call:
    sampling: dict[str, Any] = {}
    check_no_stop_regex(params.get("stop_regex"))
    for name, value in params.items():
        own = _RENAMED.get(name, name)
        if own in SAMPLING_FIELDS and value is not None:
            sampling[own] = value
        elif name not in (*_CONSTRAINTS, *_WITHOUT_EFFECT) and own not in SAMPLING_FIELDS:
            known = sorted({*SAMPLING_FIELDS, *_RENAMED, *_CONSTRAINTS})
            raise InvalidCall(f"sampling_params.{name}", value, ", ".join(known))
    if logprobs.return_logprob:
        sampling["logprobs"] = logprobs.top_logprobs_num
    segment = Text(prompt) if isinstance(prompt, str) else Tokens(tuple(prompt))
    constraint = constraint_of(**{name: params.get(name) for name in _CONSTRAINTS})
    start = scored_from(logprobs.logprob_start_len) if logprobs.return_logprob else None
    checked = Sampling(**sampling_fields(sampling))
    return Call((segment,), checked, constraint, stream=stream, scored_from=start)
