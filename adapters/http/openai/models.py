"""`/v1/models`, `/tokenize`, `/detokenize` and `/tokenizer_info`: the served model and its
tokenizer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from ....core.api.protocol import InvalidCall, Text
from ...common.tools import ToolFormat
from ..requests.bodies import BodyRoute
from ..requests.reading import check_model
from ..server.runtime import Runtime
from ..server.settings import Settings
from ..wire.wire import DetokenizeRequest, TokenizeRequest
from .messages import chat_of
from .toolchoice import format_of


def routes(runtime: Runtime, settings: Settings) -> APIRouter:
    """The routes of models and of the tokenizer."""
    router = APIRouter(route_class=BodyRoute.of(runtime))
    form = format_of(runtime.texts)
    created = int(time.time())

    def card(name: str, context_len: int) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "forkroot",
            "root": runtime.name,
            "max_model_len": context_len,
        }

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The model that is served."""
        info = await asyncio.to_thread(runtime.backend.info)
        cards = [card(name, info.context_len) for name in runtime.names]
        return {"object": "list", "data": cards}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """The served model, by its name."""
        check_model(runtime, name)
        info = await asyncio.to_thread(runtime.backend.info)
        return card(name, info.context_len)

    @router.post("/tokenize")
    async def tokenize(request: TokenizeRequest) -> Response:
        """The tokens of a text or a chat."""
        check_model(runtime, request.model)
        info = await asyncio.to_thread(runtime.backend.info)
        return await asyncio.to_thread(_tokenized, runtime, request, form, info.context_len)

    @router.post("/detokenize")
    async def detokenize(request: DetokenizeRequest) -> Response:
        """The text of tokens."""
        check_model(runtime, request.model)
        return await asyncio.to_thread(_detokenized, runtime, request.tokens)

    @router.get("/tokenizer_info")
    async def tokenizer_info() -> dict[str, Any]:
        """Special tokens and chat template of the tokenizer."""
        size = len(runtime.texts.token_bytes)
        return {"vocab_size": size, **settings.tokenizer_info}

    return router


def _tokenized(
    runtime: Runtime, request: TokenizeRequest, form: ToolFormat, context_len: int
) -> Response:
    ids = _encode(runtime, request, form)
    return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": context_len})


def _detokenized(runtime: Runtime, tokens: Sequence[int]) -> Response:
    most = len(runtime.texts.token_bytes) - 1
    for token in tokens:
        if not 0 <= token <= most:
            raise InvalidCall("tokens", token, f"token ids 0 to {most}")
    return JSONResponse({"prompt": runtime.texts.decode(tokens)})


def _encode(runtime: Runtime, request: TokenizeRequest, form: ToolFormat) -> list[int]:
    """The tokens of a request, which may be more than the context has. Raises InvalidCall."""
    texts, prompt, most = runtime.texts, request.prompt, runtime.limits.max_values
    if (prompt is None) is (request.messages is None):
        raise InvalidCall("prompt", prompt, "either a prompt or messages")
    if prompt is None:
        is_open = bool(request.continue_final_message)
        messages = request.messages or ()
        chat = chat_of(messages, request.tools or (), form, open_last=is_open)
        return texts.encode_prompt(chat, most)
    if request.add_special_tokens is False:
        return texts.encode(prompt, most)
    return texts.encode_prompt((Text(prompt),), most)
