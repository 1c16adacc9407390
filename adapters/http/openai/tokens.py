"""`/tokenize`, `/detokenize` and `/tokenizer_info`: the model's own tokenizer."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter

from ....core.api.protocol import InvalidCall, Prompt, Text
from ...common.tools import ToolFormat
from ..requests.reading import check_model
from ..server.runtime import Runtime
from ..server.settings import Settings
from ..wire.wire import DetokenizeRequest, TokenizeRequest
from .messages import chat_of
from .toolformat import format_of


def routes(runtime: Runtime, settings: Settings) -> APIRouter:
    """The routes of the tokenizer."""
    router = APIRouter()
    form = format_of(runtime.texts)

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
    texts = runtime.texts
    if (request.prompt is None) is (request.messages is None):
        raise InvalidCall("prompt", request.prompt, "either a prompt or messages")
    if request.messages is not None:
        is_open = bool(request.continue_final_message)
        prompt: Prompt = chat_of(request.messages, request.tools or (), form, open_last=is_open)
    else:
        prompt = (Text(request.prompt or ""),)
    if request.messages is None and request.add_special_tokens is False:
        return texts.encode(request.prompt or "")
    return texts.encode_prompt(prompt)
