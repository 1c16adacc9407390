"""One prompt of `/generate` at work: its call, and the answers that it gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....core.api.protocol import (
    Call,
    Completion,
    ForkHint,
    JsonSchema,
    Output,
    Reply,
    Text,
    TokenLogprob,
    Tokens,
    Usage,
)
from ..requests.work import Work as RequestCalls
from ..server.runtime import Runtime
from .prompt_requests import PromptRequest
from .reply import answer

_WITHIN = "sampling_params."


@dataclass(frozen=True, slots=True)
class Shared:
    """What all calls of one request have in common."""

    hint: ForkHint | None
    stream: bool
    namespace: str
    priority: int
    deadline: float | None


@dataclass(slots=True)
class Work:
    """One prompt at work. call: None for an empty prompt after which nothing is to be written.
    replies: to it, once it is submitted."""

    prompt_request: PromptRequest
    ids: tuple[int, ...]
    call: Call | None
    replies: tuple[Reply, ...] = ()

    def submit(self, runtime: Runtime) -> tuple[Reply, ...]:
        """Submit its call."""
        self.replies = () if self.call is None else (runtime.backend.submit(self.call),)
        return self.replies

    def answers(self, runtime: Runtime) -> list[dict[str, Any]]:
        """Its answers, once its call has ended."""
        completion = Completion((Output("", finish_reason="length"),))
        if self.replies:
            completion = self.replies[0].result(0)
        found = self._scored(completion)
        usage = self.usage(completion.usage)
        return [
            answer(runtime.texts, self.prompt_request, index, output, usage, found)
            for index, output in enumerate(completion.outputs)
        ]

    def usage(self, completed: Usage) -> Usage:
        """The usage of the prompt itself."""
        return Usage(len(self.ids), min(completed.cached_tokens, len(self.ids)))

    def _scored(self, completion: Completion) -> list[TokenLogprob]:
        """The prompt's tokens that are wanted; the first of all with NaN, as nothing comes before
        it."""
        logprob_options = self.prompt_request.logprobs
        is_first = logprob_options is not None and logprob_options.start == 0 and bool(self.ids)
        first = [TokenLogprob(self.ids[0], math.nan)] if is_first else []
        return [*first, *completion.prompt_logprobs]


def error_names_of(prompt_requests: Sequence[PromptRequest]) -> RequestCalls:
    """The names that errors of a request's calls use: its own."""
    names = {"json_schema": f"{_WITHIN}json_schema", "regex": f"{_WITHIN}regex"}
    names |= {"grammar": f"{_WITHIN}ebnf", "namespace": "cache_salt", "hint": "forkroot"}
    names |= {"max_tokens": f"{_WITHIN}max_new_tokens", "min_tokens": f"{_WITHIN}min_new_tokens"}
    names["prompt"] = "text" if isinstance(prompt_requests[0].prompt, str) else "input_ids"
    found = [
        it.constraint.schema for it in prompt_requests if isinstance(it.constraint, JsonSchema)
    ]
    is_one = len(prompt_requests) == len(found) == 1
    return RequestCalls((), names, {names["json_schema"]: found[0]} if is_one else {})


def prepare(runtime: Runtime, prompt_request: PromptRequest, shared: Shared) -> Work:
    """The call of one prompt, cut into tokens here: every answer has their number. Raises
    InvalidCall."""
    ids = prompt_request.prompt
    if isinstance(ids, str):
        ids = tuple(runtime.texts.encode_prompt((Text(ids),))) if ids else ()
    if not ids and prompt_request.sampling.max_tokens == 0:
        return Work(prompt_request, ids, None)
    start = None if prompt_request.logprobs is None else prompt_request.logprobs.start
    call = Call(
        (Tokens(ids),),
        prompt_request.sampling,
        prompt_request.constraint,
        hint=shared.hint,
        stream=shared.stream,
        namespace=shared.namespace,
        priority=shared.priority,
        deadline=shared.deadline,
        scored_from=None if start is None else start + 1,
    )
    return Work(prompt_request, ids, call)
