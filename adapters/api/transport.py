"""Sends one request and gives the JSON values that come back: one, or those of a stream."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx

from .failures import refused, unreachable, unreadable
from .request import Request
from .settings import ApiSettings
from .sse import EventReader

_DONE = "[DONE]"
_MAX_ERROR = 1 << 20  # bytes of an error's body


class Transport:
    """Connections to one API. Lives in one event loop."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        limits = httpx.Limits(
            max_connections=settings.max_concurrency,
            max_keepalive_connections=settings.max_concurrency,
        )
        silence, connect = settings.silence, settings.connect_timeout
        self._http = httpx.AsyncClient(
            headers={"Accept-Encoding": "identity", "User-Agent": "forkroot"},
            timeout=httpx.Timeout(silence, connect=connect, pool=None),
            limits=limits,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def values(self, request: Request) -> AsyncGenerator[dict[str, Any], None]:
        """The objects of the answer, in order. Raises Failure."""
        try:
            content = json.dumps(request.body, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise unreadable(self._settings, f"the request is not JSON ({error})") from None
        url = self._settings.base_url + request.path
        try:
            async with self._http.stream(
                "POST", url, content=content, headers=request.headers, auth=self._sign
            ) as response:
                if response.status_code != httpx.codes.OK:
                    raise refused(self._settings, response, await self._error_body(response))
                found = self._streamed if _is_stream(request, response) else self._whole
                async with aclosing(found(response)) as values:
                    async for value in values:
                        yield value
        except (httpx.HTTPError, OSError) as error:
            raise unreachable(self._settings, error) from None

    def _sign(self, request: httpx.Request) -> httpx.Request:
        """Add the key, which is nowhere else."""
        request.headers["Content-Type"] = "application/json"
        is_anthropic = self._settings.provider.name == "anthropic"
        if (key := self._settings.api_key) is not None:
            name, start = ("x-api-key", "") if is_anthropic else ("Authorization", "Bearer ")
            request.headers[name] = start + key.reveal()
        return request

    async def _error_body(self, response: httpx.Response) -> bytes:
        data = b""
        async for piece in response.aiter_bytes():
            data += piece
            if len(data) > _MAX_ERROR:
                break
        return data

    async def _whole(self, response: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
        pieces = [piece async for piece in self._bounded(response)]
        yield self._object(b"".join(pieces))

    async def _streamed(self, response: httpx.Response) -> AsyncGenerator[dict[str, Any], None]:
        reader = EventReader()
        try:
            async for piece in self._bounded(response):
                for text in reader.push(piece):
                    if text != _DONE:
                        yield self._object(text)
            for text in reader.end():
                if text != _DONE:
                    yield self._object(text)
        except ValueError as error:
            raise unreadable(self._settings, f"in its stream: {error}") from None

    async def _bounded(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        size = 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > self._settings.max_body:
                reason = f"more than max_body={self._settings.max_body} bytes"
                raise unreadable(self._settings, reason)
            yield piece

    def _object(self, data: str | bytes) -> dict[str, Any]:
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            shown = data if isinstance(data, str) else data.decode("utf-8", "replace")
            shown = self._settings.redacted(shown)[:80]
            raise unreadable(self._settings, f"{shown!r} is not JSON") from None
        if not isinstance(found, dict):
            shown = self._settings.redacted(str(found))[:80]
            raise unreadable(self._settings, f"{shown!r} is not a JSON object")
        return found


def _is_stream(request: Request, response: httpx.Response) -> bool:
    """Whether an answer comes as a stream; some servers give a whole one to whoever wants one."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return request.is_streamed and kind != "application/json"
