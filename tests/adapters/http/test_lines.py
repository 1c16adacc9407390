"""Connections for calls: kept, broken off, silent, refused, and read in any pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.lines import Lines, can_take

pytest.importorskip("httptools")
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Peer:
    """A server that answers each request with these pieces; None: it hangs up."""

    def __init__(self, *answers: list[bytes | None]) -> None:
        self._answers = list(answers)
        self.num_connections = 0
        self.requests: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        with suppress(asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            await self._talk(reader, writer)
        writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self._answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            self.requests.append(head + await reader.readexactly(length))
            for piece in self._answers.pop(0):
                if piece is None:
                    return
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
        await reader.read()


@asynccontextmanager
async def lines(peer: Peer, silence: float | None = 5.0) -> Any:
    server = await asyncio.start_server(peer.talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = Lines(httpx.URL(f"http://127.0.0.1:{port}/below"), {"A": "b"}, 5.0, silence)
    try:
        yield found
    finally:
        found.close()
        server.close()


def posted(peer: Peer, times: int = 1, **options: Any) -> list[Any]:
    """What each of so many requests gave: its pieces as one, a refusal, or an error."""

    async def run() -> list[Any]:
        found: list[Any] = []
        async with lines(peer, **options) as sender:
            for _ in range(times):
                pieces: list[bytes] = []
                try:
                    answer = await sender.post("/x", b"{}", pieces.append, lambda: None)
                except Exception as error:
                    found.append(error)
                else:
                    found.append(b"".join(pieces) if answer is None else answer)
        return found

    return asyncio.run(run())


def test_an_answer_comes_in_any_pieces_and_its_connection_is_kept() -> None:
    whole = OK + b"5\r\nhello\r\n6\r\n there\r\n0\r\n\r\n"
    bytewise: list[bytes | None] = [whole[at : at + 1] for at in range(len(whole))]
    peer = Peer([whole], bytewise, [whole])
    assert posted(peer, 3) == [b"hello there"] * 3
    assert peer.num_connections == 1
    assert peer.requests[0].startswith(b"POST /below/x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nA: b\r\n" in peer.requests[0] and peer.requests[0].endswith(b"\r\n\r\n{}")


def test_a_refusal_is_a_response_with_its_status_and_body() -> None:
    refusal = b"HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\nRetry-After: 3\r\n\r\nfull"
    (found,) = posted(Peer([refusal]))
    assert (found.status_code, found.content) == (429, b"full")
    assert found.headers["retry-after"] == "3" and found.request.headers["a"] == "b"


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([None], httpx.RemoteProtocolError),
        ([OK + b"5\r\nhel", None], httpx.RemoteProtocolError),
        ([b"SMTP ready\r\n\r\n"], httpx.RemoteProtocolError),
        ([OK + b"5\r\nhello\r\n"], httpx.ReadTimeout),
    ],
)
def test_what_breaks_off_raises_the_errors_of_httpx(
    pieces: list[bytes | None], kind: type[Exception]
) -> None:
    (error,) = posted(Peer(pieces), silence=0.2)
    assert isinstance(error, kind)


def test_a_connection_that_was_closed_while_idle_is_not_used_again() -> None:
    whole = OK + b"0\r\n\r\n"
    peer = Peer([whole, None], [whole])

    async def run() -> None:
        async with lines(peer) as sender:
            for _ in range(2):
                assert await sender.post("/x", b"", lambda _: None, lambda: None) is None
                await asyncio.sleep(0.05)

    asyncio.run(run())
    assert peer.num_connections == 2


def test_nobody_there_is_a_connect_error() -> None:
    async def run() -> None:
        sender = Lines(httpx.URL("http://127.0.0.1:9"), {}, 5.0, 5.0)
        with pytest.raises(httpx.ConnectError):
            await sender.post("/x", b"", lambda _: None, lambda: None)

    asyncio.run(run())


def test_lines_are_for_plain_http_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert can_take(httpx.URL("http://host:1")) and not can_take(httpx.URL("https://host"))
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert not can_take(httpx.URL("http://host:1"))
    monkeypatch.setenv("no_proxy", "host")
    assert can_take(httpx.URL("http://host:1"))
