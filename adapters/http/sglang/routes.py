"""SGLang's surface: `/generate` and what else its clients request.

A frontend program (`RuntimeEndpoint`) runs against it unchanged. `input_token_logprobs` begin with
the token after `logprob_start_len`, as that frontend's `select` expects; where that is 0 the first
token comes before them with null.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from ....core.api.protocol import ForkrootError
from ..requests.bodies import BodyRoute, prepared
from ..requests.large_answers import answer
from ..requests.media import media_texts, takes_images
from ..requests.work import as_request_error
from ..server.concurrent_calls import gather_completions, submit_in_thread
from ..server.runtime import Runtime, Texts
from ..server.sse import Event, arrivals, stream
from .body import ConcatenateBody, GenerateBody
from .prompt_requests import PromptRequest, error_names_of, media_of, prompt_requests_of, submit
from .reply import answer_so_far, answers

LONGEST_ID = 128


def routes(runtime: Runtime) -> APIRouter:
    """The routes of SGLang's surface."""
    router = APIRouter(tags=["sglang"], route_class=BodyRoute.of(runtime))
    facts = _facts_of(runtime.name)

    @router.get("/get_model_info")
    @router.get("/model_info")
    async def model_info() -> dict[str, Any]:
        """SGLang's description of the model."""
        return {**facts, "has_image_understanding": await takes_images(runtime)}

    @router.get("/get_server_info")
    @router.get("/server_info")
    async def server_info() -> dict[str, Any]:
        """SGLang's description of the server, with its counters."""
        info = await asyncio.to_thread(runtime.backend.info)
        return {
            **facts,
            "has_image_understanding": "images" in info.features,
            "served_model_name": runtime.name,
            "context_length": info.context_len,
            "vocab_size": info.vocabulary_size,
            "features": sorted(info.features),
            "internal_states": [dict(info.counters)],
        }

    @router.post("/generate")
    @router.put("/generate")
    async def generate(body: GenerateBody, request: Request) -> Response:
        """SGLang's own request: a text and `sampling_params`."""
        name = _named(request, body.rid)
        media = await media_texts(runtime, media_of(body))
        read = partial(prompt_requests_of, body, runtime.limits, name, media)
        prompt_requests = await prepared(runtime, request, read)
        try:
            replies = await submit_in_thread(lambda: submit(runtime, prompt_requests))
            if body.stream:
                return await stream(_events(runtime.texts, prompt_requests, body.is_list))
            completions = await gather_completions(replies)
        except ForkrootError as error:
            raise await as_request_error(runtime, error_names_of(prompt_requests), error) from error

        def made() -> Any:
            found = [one for it in prompt_requests for one in answers(runtime.texts, it)]
            return found if body.is_list else found[0]

        return await answer(runtime.workers, completions, made)

    @router.post("/concate_and_append_request")
    async def concatenate(body: ConcatenateBody) -> Response:
        """Asked by a frontend that joins branches. It has put their texts behind one another itself
        and sends all of it with its next call; keys and values that were computed at other places
        are of no use there, so nothing is to be done."""
        return JSONResponse({"success": True})

    return router


def _facts_of(name: str) -> dict[str, Any]:
    """What SGLang says of a model, where it is the same for all of forkroot's models."""
    return {
        "model_path": name,
        "tokenizer_path": name,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "has_audio_understanding": False,
    }


async def _events(
    texts: Texts, prompt_requests: Sequence[PromptRequest], is_list: bool
) -> AsyncIterator[list[Event]]:
    """The events of a streamed request: each has all of its answer's text so far."""

    def indexed(event: Event, it: PromptRequest, index: int) -> Event:
        return {**event, "index": it.start + index} if is_list else event

    def ended(it: PromptRequest) -> list[Event]:
        return [indexed(one, it, index) for index, one in enumerate(answers(texts, it))]

    at_work = [it for it in prompt_requests if it.reply is not None]
    for it in prompt_requests:
        if it.reply is None:
            yield ended(it)
    async for batch in arrivals([it.reply for it in at_work if it.reply is not None]):
        events: list[Event] = []
        for arrival in batch:
            it, chunk = at_work[arrival.source], arrival.chunk
            if chunk is None:
                events += ended(it)
            else:
                event = answer_so_far(texts, it, chunk.index, it.grown(chunk))
                events.append(indexed(event, it, chunk.index))
        yield events


def _named(request: Request, rid: str | list[str] | None) -> str:
    """The id of the request, by which it can be aborted: the client's own, if it is one."""
    context = request.state.request_context
    if isinstance(rid, str) and 1 <= len(rid) <= LONGEST_ID and rid.isascii():
        context.id = rid
    return str(context.id)
