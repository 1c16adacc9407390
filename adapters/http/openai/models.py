"""`/v1/models`, `/tokenize`, `/detokenize` and `/tokenizer_info`: the served model and its
tokenizer.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter

from ....core.api.protocol import InvalidCall, Text
from ...common.tools import ToolFormat
from ..requests.reading import check_model
from ..server.runtime import Runtime
from ..server.settings import Settings
from ..wire.wire import DetokenizeRequest, TokenizeRequest
from .messages import chat_of
from .toolchoice import format_of


def routes(runtime: Runtime, settings: Settings) -> APIRouter:
    """The routes of models and of the tokenizer."""
    router = APIRouter()
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
        info = await asyncio.to_thread(runtime.backend.info)
        cards = [card(name, info.context_len) for name in runtime.names]
        return {"object": "list", "data": cards}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        check_model(runtime, name)
        info = await asyncio.to_thread(runtime.backend.info)
        return card(name, info.context_len)

    @router.post("/tokenize")
    async def tokenize(request: TokenizeRequest) -> dict[str, Any]:
        check_model(runtime, request.model)
        ids = await asyncio.to_thread(_encode, runtime, request, form)
        info = await asyncio.to_thread(runtime.backend.info)
        return {"tokens": ids, "count": len(ids), "max_model_len": info.context_len}

    @router.post("/detokenize")
    async def detokenize(request: DetokenizeRequest) -> dict[str, Any]:
        check_model(runtime, request.model)
        for token in request.tokens:
            if not 0 <= token < len(runtime.texts.token_bytes):
                allowed = f"token ids 0 to {len(runtime.texts.token_bytes) - 1}"
                raise InvalidCall("tokens", token, allowed)
        return {"prompt": runtime.texts.decode(request.tokens)}

    @router.get("/tokenizer_info")
    async def tokenizer_info() -> dict[str, Any]:
        size = len(runtime.texts.token_bytes)
        return {"vocab_size": size, **settings.tokenizer_info}

    return router


def _encode(runtime: Runtime, request: TokenizeRequest, form: ToolFormat) -> list[int]:
    texts, prompt = runtime.texts, request.prompt
    if (prompt is None) is (request.messages is None):
        raise InvalidCall("prompt", prompt, "either a prompt or messages")
    if prompt is None:
        is_open = bool(request.continue_final_message)
        messages = request.messages or ()
        return texts.encode_prompt(chat_of(messages, request.tools or (), form, open_last=is_open))
    if request.add_special_tokens is False:
        return texts.encode(prompt)
    return texts.encode_prompt((Text(prompt),))
