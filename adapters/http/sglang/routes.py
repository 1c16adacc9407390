"""SGLang's surface: `/generate` and what else its clients request.

A frontend program (`RuntimeEndpoint`) runs against it unchanged. `input_token_logprobs` begin with
the token after `logprob_start_len`, as that frontend's `select` expects; where that is 0 the first
token comes before them with null.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from ....core.api.protocol import Chunk, ForkrootError, Output, Reply, Usage
from ..requests.work import as_request_error
from ..server.concurrent_calls import gather_completions, submit_in_thread
from ..server.runtime import Runtime
from ..server.sse import Event, arrivals, stream
from ..wire.hints import hint_of
from .body import ConcatenateBody, GenerateBody
from .prompt_requests import prompt_requests_of
from .reply import answer_so_far
from .work import Shared, Work, error_names_of, prepare

LONGEST_ID = 128


def routes(runtime: Runtime) -> APIRouter:
    """The routes of SGLang's surface."""
    router = APIRouter(tags=["sglang"])

    @router.get("/get_model_info")
    @router.get("/model_info")
    async def model_info() -> dict[str, Any]:
        return _model_info(runtime)

    @router.get("/get_server_info")
    @router.get("/server_info")
    async def server_info() -> dict[str, Any]:
        return await asyncio.to_thread(_server_info, runtime)

    @router.post("/generate")
    @router.put("/generate")
    async def generate(body: GenerateBody, request: Request) -> Response:
        prompt_requests = prompt_requests_of(body, runtime.limits, _named(request, body.rid))
        shared = _shared(body, runtime)
        works: list[Work] = []

        def begin() -> Sequence[Reply]:
            works.extend(
                prepare(runtime, prompt_request, shared) for prompt_request in prompt_requests
            )
            return [reply for work in works for reply in work.submit(runtime)]

        replies = await submit_in_thread(begin)
        try:
            if shared.stream:
                return await stream(_events(runtime, works, replies, body.is_list))
            await gather_completions(replies)
        except ForkrootError as error:
            raise await as_request_error(runtime, error_names_of(prompt_requests), error) from error
        answers = [one for work in works for one in work.answers(runtime)]
        return JSONResponse(answers if body.is_list else answers[0])

    @router.post("/concate_and_append_request")
    async def concatenate(body: ConcatenateBody) -> dict[str, bool]:
        """Asked by a frontend that joins branches. It has put their texts behind one another itself
        and sends all of it with its next call; keys and values that were computed at other places
        are of no use there, so nothing is to be done."""
        return {"success": True}

    return router


async def _events(
    runtime: Runtime, works: Sequence[Work], replies: Sequence[Reply], is_list: bool
) -> AsyncIterator[list[Event]]:
    """The events of a streamed request: each has all of its answer's text so far."""
    prompts = list(_growing(runtime, works, is_list))
    of_reply = [prompt for prompt in prompts for _ in prompt.work.replies]
    for prompt in prompts:
        if not prompt.num_left:
            yield prompt.ended()
    async for batch in arrivals(replies):
        events: list[Event] = []
        for arrival in batch:
            prompt = of_reply[arrival.source]
            if arrival.chunk is not None:
                events.append(prompt.grown(arrival.chunk))
            else:
                prompt.num_left -= 1
                events += [] if prompt.num_left else prompt.ended()
        yield events


def _growing(runtime: Runtime, works: Sequence[Work], is_list: bool) -> Iterator[Growing]:
    start = 0
    for work in works:
        yield Growing(runtime, work, start if is_list else None, len(work.replies))
        start += work.prompt_request.sampling.n


@dataclass(slots=True)
class Growing:
    """The answers to one prompt, as they grow. start: of the first among all of the request; None:
    there is but one. num_left: calls that have not ended."""

    runtime: Runtime
    work: Work
    start: int | None
    num_left: int
    outputs: dict[int, Output] = field(default_factory=dict)

    def grown(self, chunk: Chunk) -> Event:
        """An answer with one more chunk."""
        had = self.outputs.get(chunk.index, Output(""))
        ids, logprobs = had.ids + chunk.ids, had.logprobs + chunk.logprobs
        output = Output(had.text + chunk.text, ids, logprobs=logprobs)
        self.outputs[chunk.index] = output
        work = self.work
        event = answer_so_far(
            self.runtime.texts, work.prompt_request, chunk.index, output, work.usage(Usage())
        )
        return self._indexed(event, chunk.index)

    def ended(self) -> list[Event]:
        """The answers, complete."""
        answers = self.work.answers(self.runtime)
        return [self._indexed(one, index) for index, one in enumerate(answers)]

    def _indexed(self, event: Event, index: int) -> Event:
        return event if self.start is None else {**event, "index": self.start + index}


def _named(request: Request, rid: str | list[str] | None) -> str:
    """The id of the request, by which it can be aborted: the client's own, if it is one."""
    request_context: Any = getattr(request.state, "request_context", None)
    if request_context is None:
        return uuid.uuid4().hex
    if isinstance(rid, str) and 1 <= len(rid) <= LONGEST_ID and rid.isascii():
        request_context.id = rid
    return str(request_context.id)


def _shared(body: GenerateBody, runtime: Runtime) -> Shared:
    return Shared(
        hint_of(body.forkroot),
        bool(body.stream),
        body.cache_salt or body.extra_key or "",
        body.priority or 0,
        runtime.limits.deadline,
    )


def _model_info(runtime: Runtime) -> dict[str, Any]:
    return {
        "model_path": runtime.name,
        "tokenizer_path": runtime.name,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_image_understanding": False,
        "has_audio_understanding": False,
    }


def _server_info(runtime: Runtime) -> dict[str, Any]:
    info = runtime.backend.info()
    return {
        **_model_info(runtime),
        "served_model_name": runtime.name,
        "context_length": info.context_len,
        "vocab_size": info.vocabulary_size,
        "features": sorted(info.features),
        "internal_states": [dict(info.counters)],
    }
