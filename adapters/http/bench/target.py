"""The server under load: how requests are sent, and how answers are read.

Nothing that a server does raises here: a request that fails is an outcome with a reason.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from ....core.api.protocol import BackendClosed, InvalidCall
from .load import PROBES, Scale
from .outcome import Answer, Outcome, printable, refusal

_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Target:
    """A model behind a URL (without /v1).

    is_chat: chats are sent, else completions. ignores_eos: generates all of `max_tokens`,
      by a field that not every server knows. timeout: seconds for a whole request.
    """

    url: str
    model: str
    is_chat: bool = True
    is_streamed: bool = True
    ignores_eos: bool = False
    timeout: float = 600.0

    @property
    def path(self) -> str:
        """Where requests go."""
        return f"{self.url}/v1/{'chat/completions' if self.is_chat else 'completions'}"

    def body(self, text: str, max_tokens: int, is_streamed: bool) -> dict[str, Any]:
        """A request."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": max_tokens, "temperature": 0}
        if self.is_chat:
            body["messages"] = [{"role": "user", "content": text}]
        else:
            body["prompt"] = text
        if is_streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body | ({"ignore_eos": True} if self.ignores_eos else {})


class Connections:
    """Clients of one connection each, as many as are needed at a time: a client with hundreds of
    connections would spend more time on finding a free one than on what it sends."""

    def __init__(self, api_key: str | None) -> None:
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._tls = httpx.create_ssl_context()
        self._free: list[httpx.AsyncClient] = []
        self._made: list[httpx.AsyncClient] = []

    @contextmanager
    def one(self) -> Iterator[httpx.AsyncClient]:
        """An idle connection, reserved for the caller."""
        http = self._free.pop() if self._free else self._new()
        try:
            yield http
        finally:
            self._free.append(http)

    async def close(self) -> None:
        """Close them all."""
        for http in self._made:
            await http.aclose()

    def _new(self) -> httpx.AsyncClient:
        http = httpx.AsyncClient(headers=self._headers, verify=self._tls, timeout=None)
        self._made.append(http)
        return http


@dataclass(frozen=True, slots=True)
class LoadClient:
    """Sends requests to a target. now: the time of the load."""

    connections: Connections
    target: Target
    now: Callable[[], float]

    async def ask(self, index: int, due: float, text: str, max_tokens: int) -> Outcome:
        """Send one request; its outcome."""
        answer = Answer()
        body = self.target.body(text, max_tokens, self.target.is_streamed)
        answer.failure = await self._failure(answer, body)
        return answer.outcome(index, due, self.now())

    async def scale(self) -> Scale:
        """How long its prompts are, found out by two of them. Raises BackendClosed where it
        does not report usage."""
        found = []
        for text in PROBES:
            answer = Answer()
            body = self.target.body(text, 1, False)
            failure = await self._failure(answer, body)
            tokens = answer.usage.get("prompt_tokens")
            if failure is not None or not isinstance(tokens, int):
                raise BackendClosed(failure or "no usage in its answers")
            found.append((len(text.split()), tokens))
        return Scale.through(*found)

    async def _failure(self, answer: Answer, body: dict[str, Any]) -> str | None:
        """Take an answer in; why that failed, if it did."""
        try:
            async with asyncio.timeout(self.target.timeout):
                await self._take(answer, body)
        except (TimeoutError, httpx.TimeoutException):
            return "timed out"
        except httpx.ConnectError:
            return "cannot connect"
        except (httpx.NetworkError, httpx.RemoteProtocolError):
            return "connection lost"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return type(error).__name__
        except _UNREADABLE:
            return "answer cannot be read"
        return answer.failure

    async def _take(self, answer: Answer, body: dict[str, Any]) -> None:
        with self.connections.one() as http:
            async with http.stream("POST", self.target.path, json=body) as response:
                if not response.is_success:
                    answer.failure = refusal(response.status_code, await response.aread())
                elif not body.get("stream"):
                    answer.take(json.loads(await response.aread()))
                else:
                    async for line in response.aiter_lines():
                        answer.take_line(line, self.now())


async def first_model(connections: Connections, url: str, timeout: float) -> str:
    """The first model that a server lists. Raises BackendClosed where it lists none."""
    try:
        with connections.one() as http:
            response = await http.get(f"{url}/v1/models", timeout=timeout)
        if not response.is_success:
            reason = refusal(response.status_code, response.content)
            key = "; give a key by --api-key" if response.status_code in (401, 403) else ""
            message = f"{url} does not list its models ({reason}); name one by --model{key}"
            raise BackendClosed(message)
        return str(response.json()["data"][0]["id"])
    except httpx.HTTPError as error:
        message = printable(str(error)) or type(error).__name__
        raise BackendClosed(f"the server at {url} cannot be reached: {message}") from error
    except (*_UNREADABLE, IndexError) as error:
        raise BackendClosed(f"{url} lists no model; name one by --model") from error


def base_url(text: str) -> str:
    """The URL of a server, without /v1. Raises InvalidCall for what is none, or is more."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL()
    is_more = url.userinfo or url.query or url.fragment
    if url.scheme not in ("http", "https") or not url.host or is_more:
        raise InvalidCall("url", text, "a URL such as http://127.0.0.1:30000")
    return text.rstrip("/").removesuffix("/v1").rstrip("/")
