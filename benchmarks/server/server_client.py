"""A client that takes as little as can be: HTTP/1.1 over plain asyncio transports.

While an answer comes in it is only kept, with the time of its first text; it is read afterwards.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHAT, COMPLETION, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
_TEXTS = (b'"delta":{"content"', b'"text":"', b'"choices"')
_END = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. status: 0 where nothing did. Times are of time.perf_counter; `first` is of
    the first text, None where there was none. is_whole: it came to its end."""

    status: int
    body: bytes
    sent: float
    first: float | None
    ended: float
    is_whole: bool

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of a stream."""
        lines = self.body.split(b"\n\n")
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]

    @property
    def text(self) -> str:
        """The text of a streamed chat or completion."""
        choices = [choice for event in self.events for choice in event.get("choices", ())]
        return "".join(it.get("text") or it.get("delta", {}).get("content") or "" for it in choices)

    @property
    def finish(self) -> str | None:
        """Why it ended, by itself; None where it gave none."""
        choices = [choice for event in self.events for choice in event.get("choices", ())]
        endings = [it["finish_reason"] for it in choices if it["finish_reason"]]
        is_done = self.is_whole and self.body.endswith(b"data: [DONE]\n\n")
        return endings[-1] if endings and is_done else None

    @property
    def error(self) -> str | None:
        """The code of its error."""
        found = self.events if self.body.startswith(b"data:") else [json.loads(self.body or b"{}")]
        return next((event["error"]["code"] for event in found if "error" in event), None)


class Line(asyncio.Protocol):
    """One connection, for one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._found = bytearray()
        self._first: float | None = None
        self._num_reads = 0
        self._most_reads: int | None = None

    @classmethod
    async def to(cls, address: tuple[str, int]) -> Line:
        """Connect."""
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(cls, *address)
        return line

    async def ask(self, message: bytes, most_reads: int | None = None) -> Answer:
        """Send a request and await its end. most_reads: hang up after so many pieces. Raises
        ConnectionError where the server has closed the line meanwhile, as it does with idle ones.
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the server has closed this connection")
        self._ended = asyncio.get_running_loop().create_future()
        self._found.clear()
        self._first, self._num_reads, self._most_reads = None, 0, most_reads
        sent = time.perf_counter()
        self._transport.write(message)
        is_whole = await self._ended
        return self._answer(sent, is_whole)

    @property
    def has_text(self) -> bool:
        """Whether some text of the present answer has come."""
        return self._first is not None

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._found += data
        self._num_reads += 1
        if self._first is None and any(mark in data for mark in _TEXTS):
            self._first = time.perf_counter()
        if self._is_whole():
            self._end(True)
        elif self._most_reads is not None and self._num_reads >= self._most_reads:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(False)

    def _end(self, is_whole: bool) -> None:
        if not self._ended.done():
            self._ended.set_result(is_whole)

    def _is_whole(self) -> bool:
        if self._found.endswith(_END):
            return True
        head, _, body = self._found.partition(b"\r\n\r\n")
        _, has_length, rest = head.lower().partition(b"content-length: ")
        return bool(has_length) and len(body) >= int(rest.partition(b"\r\n")[0])

    def _answer(self, sent: float, is_whole: bool) -> Answer:
        head, _, body = bytes(self._found).partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head.lower():
            body = _joined(body)
        status = int(head.split(b" ", 2)[1]) if head else 0
        return Answer(status, body, sent, self._first, time.perf_counter(), is_whole)


def request(path: str, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """A POST of JSON; bytes are sent as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}{lines}Content-Length: {len(data)}\r\n\r\n".encode() + data


def _joined(body: bytes) -> bytes:
    """The chunks of a body as one."""
    found, start = bytearray(), 0
    while (end := body.find(b"\r\n", start)) > 0:
        size = int(body[start:end], 16)
        found += body[end + 2 : end + 2 + size]
        start = end + 2 + size + 2
    return bytes(found)
