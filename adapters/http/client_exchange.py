"""One call on its way to a server, and the answer on its way back.

Whatever happens, its mailbox ends exactly once. It lives in one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx

from ...core.api.protocol import (
    BackendClosed,
    CallFailed,
    CallTooLarge,
    Chunk,
    Completion,
    DeadlineExceeded,
    EngineDied,
    ForkrootError,
    InvalidCall,
    Output,
    Overloaded,
    Shown,
    Text,
)
from ...core.api.reply import Mailbox
from .lines import Lines
from .wire.callwire import PATH, RESTARTS, error_of, value_of

T = TypeVar("T")
STALE = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


async def sent_request(send: Callable[[], Awaitable[T]], has_started: Callable[[], bool]) -> T:
    """What `send` gives. A connection that the server closed while it was idle is found out by
    using it: then once more, on a new one, unless an answer has started."""
    try:
        return await send()
    except STALE:
        if has_started():
            raise
        return await send()


def failure_of(error: Exception, url: httpx.URL, use: str = "read") -> ForkrootError:
    """What an exchange with a server ends in. use: what its answer was for."""
    if isinstance(error, httpx.HTTPError):
        return unreachable(url, error)
    if isinstance(error, ForkrootError):
        return error
    is_strange = isinstance(error, ValueError | KeyError | TypeError | AttributeError)
    if use == "read" and is_strange:  # it is no server of forkroot
        return no_server(url, f"its answer cannot be read ({error!r:.100})")
    failure = CallFailed(f"the server's answer cannot be {use}: {error!r:.200}")
    failure.__cause__ = error
    return failure


class EventReader:
    """Reads server-sent events that come in pieces. take: called with the JSON of each."""

    def __init__(self, take: Callable[[dict[str, Any]], object]) -> None:
        self._take = take
        self._rest = b""  # of a line that has not come to its end

    def __call__(self, piece: bytes) -> None:
        """A piece: its whole lines are taken now, the rest with the next piece."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            if line.startswith(b"data:"):
                self._take(json.loads(line[5:]))


class Exchange:
    """A call and its answer. http: the client of the server; body: the call, encoded. lines: in its
    place, where they can be used."""

    def __init__(
        self, http: httpx.AsyncClient, mailbox: Mailbox, body: bytes, lines: Lines | None = None
    ) -> None:
        self.mailbox = mailbox
        self._http = http
        self._lines = lines
        self._body = body
        self._name: str | None = None
        self._has_started = False
        self._is_given_up = False
        self._chunks: list[Chunk] = []
        self._cancelling: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(lambda _: self._end())

    def cancel(self) -> None:
        """End the call early: by a request where the server has accepted the call, which then
        returns what it has; else by closing the connection."""
        if self._name is None:
            self._give_up()
        elif self._cancelling is None:
            self._cancelling = asyncio.create_task(self._cancel_on_server(self._name))

    async def _run(self) -> None:
        mailbox = self.mailbox
        try:
            await sent_request(self._send_once, lambda: self._has_started)
            mailbox.fail(BackendClosed("the server ended its answer before the end"))
        except Exception as error:
            mailbox.fail(failure_of(error, self._http.base_url))

    def _end(self) -> None:
        """The task is over: if it was cancelled, maybe before it ran, this is the call's end."""
        if self._cancelling is not None:
            self._cancelling.cancel()
        if self._is_given_up:
            self.mailbox.finish(self._aborted())
        else:
            self.mailbox.fail(BackendClosed("the backend was closed before the call ended"))

    async def _send_once(self) -> None:
        """Send the call and take its answer."""
        if self._lines is None:
            await self._send_by_httpx()
            return
        take = EventReader(self._take)
        response = await self._lines.post(PATH, self._body, take, self._note_start)
        if response is not None:
            raise refused(self._http.base_url, response, response.content)

    def _note_start(self) -> None:
        self._has_started = True

    async def _send_by_httpx(self) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._http.stream("POST", PATH, content=self._body, headers=headers) as response:
            self._has_started = True
            if response.status_code != httpx.codes.OK:
                raise refused(self._http.base_url, response, await response.aread())
            take = EventReader(self._take)
            async for piece in response.aiter_bytes():
                take(piece)

    def _take(self, event: dict[str, Any]) -> None:
        if "accepted" in event:
            self._name = event["accepted"]
        elif "chunk" in event:
            chunk = value_of(event["chunk"])
            self._chunks.append(chunk)
            self.mailbox.put(chunk)
        elif "completion" in event:
            self.mailbox.finish(value_of(event["completion"]))
        else:
            self.mailbox.fail(error_of(event["forkroot"]))

    async def _cancel_on_server(self, name: str) -> None:
        with contextlib.suppress(httpx.HTTPError):
            response = await self._http.delete(f"{PATH}/{name}")
            if response.status_code in (httpx.codes.OK, httpx.codes.NOT_FOUND):
                return  # the end comes, or has come
        self._give_up()

    def _give_up(self) -> None:
        self._is_given_up = True
        self.task.cancel()

    def _aborted(self) -> Completion:
        """The outputs as far as their chunks have come."""
        call = self.mailbox.call
        return Completion(() if call.options else tuple(map(self._output, range(call.sampling.n))))

    def _output(self, index: int) -> Output:
        chunks = [chunk for chunk in self._chunks if chunk.index == index]
        text = "".join(chunk.text for chunk in chunks)
        return Output(
            text,
            tuple(token for chunk in chunks for token in chunk.ids),
            "abort",
            segments=(Text(text),) if text else (),
            logprobs=tuple(one for chunk in chunks for one in chunk.logprobs),
        )


def unreachable(url: httpx.URL, error: httpx.HTTPError) -> BackendClosed:
    """The error of a server that cannot be reached, or fell silent."""
    what_to_do = ""
    if "[SSL" in str(error) and "CERTIFICATE" not in str(error):
        what_to_do = f"; did you mean {shown(url, 'http')}?"
    elif isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        what_to_do = "; expected a running server (start one with `forkroot serve`)"
    failure = BackendClosed(
        f"the server at {shown(url)} cannot be reached: {error!r:.200}{what_to_do}"
    )
    failure.__cause__ = error
    return failure


def no_server(url: httpx.URL, reason: str) -> BackendClosed:
    """The error for a URL where something else than a forkroot server answers."""
    allowed = "one that `forkroot serve` started"
    message = f"{shown(url)} is not a server for calls of forkroot: {reason}; expected {allowed}"
    return BackendClosed(message)


def shown(url: httpx.URL, scheme: str | None = None) -> str:
    """A URL as users write it. scheme: in place of its own."""
    return str(url.copy_with(scheme=scheme or url.scheme)).rstrip("/")


def refused(url: httpx.URL, response: httpx.Response, data: bytes) -> ForkrootError:
    """The error of a refusal: a value of the protocol, or what its status and code mean."""
    status = response.status_code
    is_told = True  # by a server of forkroot or OpenAI's kind
    try:
        body: Any = json.loads(data)
        if "forkroot" in body:
            return error_of(body["forkroot"])
        error = body["error"]
        message, code, field = str(error["message"]), error.get("code"), error.get("param")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        message, code, field = f"the server answered with status {status}", None, None
        is_told = False
    if response.has_redirect_location:
        target = response.headers["Location"].partition(PATH.rpartition("/")[0])[0]
        return no_server(url, f"it sends on to {target}")
    if status in (502, 504) or (status >= 500 and not is_told):  # what is before it, or instead
        return no_server(url, message)
    match status:
        case 400:
            return InvalidCall(str(field or "call"), "...", message)
        case 401 | 403:
            is_given = "authorization" in response.request.headers  # no key is shown
            allowed = (
                "a key that the server knows, given as connect(URL, api_key=...), or on the command"
                f" line as --set api_key=... (the server: {message})"
            )
            return InvalidCall("api_key", Shown("...") if is_given else None, allowed)
        case 413:
            return CallTooLarge("prompt", "...", message)
        case 408 if code == "deadline_exceeded":
            return DeadlineExceeded(message)
        case 429:
            return Overloaded(message)
        case 503 if code == "overloaded":
            return Overloaded(message)
        case 503 if code == "engine_dead":
            return EngineDied(message, is_replaced=RESTARTS in message)
        case 404 | 405:
            is_below = (
                url.path != "/" and code is not None
            )  # a path of what may be forkroot's server
            suggestion = f"; did you mean {shown(url.copy_with(path='/'))}?" if is_below else ""
            return no_server(url, f"{message}{suggestion}")
        case 503:
            return BackendClosed(message)
    return CallFailed(message)
