"""`/v1/models`: what is served here."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter

from ..requests.reading import check_model
from ..server.runtime import Runtime


def routes(runtime: Runtime) -> APIRouter:
    """The routes of models."""
    router = APIRouter()
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

    return router
