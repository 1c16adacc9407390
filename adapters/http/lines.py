"""Connections to one server for calls, where `httptools` is installed: what httpx does for any
server, without its layers, as each takes time for each piece of each answer.

Plain HTTP/1.1 without a proxy only; errors are those of httpx. It lives in one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeAlias, cast
from urllib.request import getproxies, proxy_bypass

import httpx

from ..relays import Flow

_MOST_IDLE = 256
Begin: TypeAlias = Callable[[list[tuple[bytes, bytes]]], object]


def can_take(url: httpx.URL) -> bool:
    """Whether lines can be used for a server."""
    if url.scheme != "http" or find_spec("httptools") is None:
        return False
    proxies = getproxies()
    return not ({"http", "all"} & set(proxies)) or bool(proxy_bypass(url.host))


class Answer:
    """What a server answers to one request.

    take: called with each piece of the body, if the status is 200; else `body` has it.
    begin: called before that with the headers. flow: stops what comes while its reader is behind.
    status: None until the answer begins. ended: set at its end, in an error where it broke off.
    """

    def __init__(
        self,
        take: Callable[[bytes], object],
        ended: asyncio.Future[None],
        begin: Begin | None = None,
        flow: Flow | None = None,
    ) -> None:
        self.take = take
        self.ended = ended
        self.begin, self.flow = begin, flow
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()


class Line(asyncio.Protocol):
    """One connection, for one request at a time. silence: seconds without a byte of an answer after
    which it breaks off; None: any."""

    def __init__(self, silence: float | None) -> None:
        self._silence = silence
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._answer: Answer | None = None
        self._is_whole = False
        self._clock: asyncio.TimerHandle | None = None
        self._heard = 0.0

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(
        self,
        message: bytes,
        take: Callable[[bytes], object],
        begin: Begin | None = None,
        flow: Flow | None = None,
    ) -> Answer:
        """Send a request; what comes back. Arguments as of `Answer`."""
        from httptools import HttpResponseParser

        assert self._transport is not None and self._answer is None
        loop = asyncio.get_running_loop()
        self._answer = Answer(take, loop.create_future(), begin, flow)
        self._parser, self._is_whole = HttpResponseParser(self), False
        self._heard = loop.time()
        self._watch()
        self._transport.write(message)
        return self._answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    # --- of the transport ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As `Protocol.connection_made`."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """As `Protocol.data_received`."""
        self._heard = asyncio.get_running_loop().time()
        if self._answer is None:  # nobody asked
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except Exception as error:
            self._end(httpx.RemoteProtocolError(f"{error!r:.200}"))
            self.close()
            return
        if self._is_whole:
            self._end(None)
        elif self._answer is not None and self._answer.flow is not None:
            self._stop_if_full(self._answer.flow)

    def connection_lost(self, exc: Exception | None) -> None:
        """As `Protocol.connection_lost`."""
        if exc is not None:
            self._end(httpx.ReadError(str(exc) or repr(exc)))
        else:
            self._end(httpx.RemoteProtocolError("the server closed the connection"))

    def _stop_if_full(self, flow: Flow) -> None:
        if flow.is_full and flow.on_room is None and self._transport is not None:
            self._transport.pause_reading()
            flow.on_room = self._go_on

    def _go_on(self) -> None:
        if self.is_open and self._transport is not None:
            self._transport.resume_reading()

    def _watch(self) -> None:
        if self._silence is not None:
            loop = asyncio.get_running_loop()
            self._clock = loop.call_at(self._heard + self._silence, self._look)

    def _look(self) -> None:
        assert self._silence is not None
        now, answer = asyncio.get_running_loop().time(), self._answer
        if answer is not None and answer.flow is not None and answer.flow.is_full:
            self._heard = now  # it is not listened to
        if now < self._heard + self._silence:
            self._watch()
            return
        self._end(httpx.ReadTimeout(f"nothing came for {self._silence:g} s"))
        self.close()

    def _end(self, error: Exception | None) -> None:
        answer, self._answer = self._answer, None
        if self._clock is not None:
            self._clock.cancel()
        if answer is None or answer.ended.done():
            return
        if error is None:
            answer.ended.set_result(None)
        else:
            answer.ended.set_exception(error)

    # --- of the parser ---------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come."""
        if self._answer is not None:
            self._answer.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The answer has begun."""
        answer = self._answer
        if answer is None:
            return
        answer.status = self._parser.get_status_code()
        if answer.begin is not None and answer.status == httpx.codes.OK:
            self._guarded(partial(answer.begin, answer.headers))

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self._answer is None:
            return
        if self._answer.status != httpx.codes.OK:
            self._answer.body += data
            return
        self._guarded(partial(self._answer.take, data))

    def _guarded(self, action: Callable[[], object]) -> None:
        """Hand something on; the answer ends here if it cannot be read."""
        try:
            action()
        except Exception as error:
            self._end(error)
            self.close()

    def on_message_complete(self) -> None:
        """The answer has ended."""
        self._is_whole = True


class Lines:
    """Connections to one server; those that are idle are kept. headers: of each request."""

    def __init__(
        self,
        url: httpx.URL,
        headers: Mapping[str, str],
        connect_timeout: float | None,
        silence: float | None,
    ) -> None:
        self.url = url
        self._connect_timeout, self._silence = connect_timeout, silence
        self._headers = {
            "Host": url.netloc.decode(),
            "Content-Type": "application/json",
            "User-Agent": "forkroot",
            **headers,
        }
        self._head = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        self._idle: list[Line] = []

    async def post(
        self,
        path: str,
        body: bytes,
        take: Callable[[bytes], object],
        started: Callable[[], object],
        begin: Begin | None = None,
        flow: Flow | None = None,
        more: str = "",
    ) -> httpx.Response | None:
        """Send a body; the answer where its status is not 200, else None once all of it was taken.
        started: called at the end, if an answer has begun. begin, flow: as of `Answer`. more: lines
        of the head. Raises the errors of httpx."""
        target = self.url.raw_path.decode().rstrip("/") + path
        head = f"POST {target} HTTP/1.1\r\n{self._head}{more}Content-Length: {len(body)}\r\n\r\n"
        line = await self._taken()
        answer = line.ask(head.encode("latin-1") + body, take, begin, flow)
        try:
            await answer.ended
        except BaseException:
            line.close()
            raise
        finally:
            if answer.status is not None:
                started()
        if line.is_open and len(self._idle) < _MOST_IDLE:
            self._idle.append(line)
        if answer.status == httpx.codes.OK:
            return None
        request = httpx.Request("POST", self.url.copy_with(path=target), headers=self._headers)
        status, content = answer.status or 0, bytes(answer.body)
        return httpx.Response(status, headers=answer.headers, content=content, request=request)

    async def _taken(self) -> Line:
        while self._idle:
            if (line := self._idle.pop()).is_open:
                return line
        loop = asyncio.get_running_loop()
        opening = loop.create_connection(
            lambda: Line(self._silence), self.url.host, self.url.port or 80
        )
        try:
            _, made = await asyncio.wait_for(opening, self._connect_timeout)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("the server did not take the connection") from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return made

    def close(self) -> None:
        """Close the idle ones."""
        for line in self._idle:
            line.close()
        self._idle.clear()
