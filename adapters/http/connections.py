"""Open connections, bounded: how many there are of one address and in all, how long the head of a
request may take, and how large it may be.

uvicorn bounds neither: a client that sends half a head keeps a connection for ever.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
from collections import Counter
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..common.seldom import Seldom
from .server.errors import Fault, error_body
from .server.runtime import Limits

MAX_HEAD = 1 << 16  # bytes
_BACKLOG = 1024
_OTHER_FILES = 128  # that the process opens besides connections
_NETWORK = 64  # bits of an IPv6 address that one client can choose below
_SCARCE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class Connections:
    """The open connections of a server.

    limits: of the server. max_files: that the process may have open; None: as the system has it.
    backlog: connections that may wait to be accepted, which may be all at once.
    """

    def __init__(self, limits: Limits, max_files: int | None = None) -> None:
        max_files = max_files or _max_files()
        self.timeout = limits.request_timeout
        self.seldom = Seldom()
        self.backlog = min(_BACKLOG, max_files // 4)
        self._most = max(2, max_files - self.backlog - min(_OTHER_FILES, max_files // 4))
        self._most_each = max(1, min(limits.max_connections, self._most // 2))
        self._open: Counter[str] = Counter()

    def open(self, address: str) -> bool:
        """Count a connection; whether it is within the limits. `close` follows in either case."""
        self._open[address] += 1
        return self._open[address] <= self._most_each and self._open.total() <= self._most

    def close(self, address: str) -> None:
        """A connection has ended."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]

    def is_news(self, record: logging.LogRecord) -> bool:
        """A filter of uvicorn's log: a line a second where requests are no HTTP."""
        if not record.getMessage().startswith("Invalid HTTP request"):
            return True
        self.seldom.warn("requests were refused: they are no HTTP")
        return False

    def report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An event loop's handler of exceptions: a line a second where connections cannot be
        accepted."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _SCARCE:
            self.seldom.warn(f"connections cannot be accepted: {error.strerror}")
        else:
            loop.default_exception_handler(context)


def address_of(host: str) -> str:
    """What connections are counted by: an address, or the network of an IPv6 one."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), _NETWORK), strict=False))


def protocol_of(connections: Connections) -> type[asyncio.Protocol]:
    """uvicorn's protocol for HTTP, within these limits: of httptools if it is installed, else of
    h11."""
    try:
        from .connections_httptools import HeadHttpTools as Head
    except ImportError:
        return type("BoundedH11", (Bounded, HeadH11), {"bounds": connections})
    return type("BoundedHttpTools", (Bounded, Head), {"bounds": connections})


class HeadH11(H11Protocol):
    """uvicorn's protocol by h11, which knows whether the head of a request is incomplete."""

    @property
    def is_in_head(self) -> bool:
        """Whether the end of a head is awaited."""
        return self.conn.their_state is h11.IDLE


class Bounded(asyncio.Protocol):
    """Bounds a connection of uvicorn's, as a class before its protocol.

    bounds: the connections of the server.
    """

    bounds: Connections
    transport: asyncio.Transport
    is_in_head: bool
    client: tuple[str, int] | None
    cycle: Any
    loop: asyncio.AbstractEventLoop
    _address: str | None = None
    _timer: asyncio.TimerHandle | None = None
    _num_bytes = 0  # of the head

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As in uvicorn; one connection too many is refused."""
        super().connection_made(transport)
        if self.client is not None:
            self._address = address_of(self.client[0])
            if not self.bounds.open(self._address):
                self.bounds.seldom.warn("connections were refused: too many are open")
                self._refuse(
                    429, "overloaded_error", "too_many_connections", "too many connections"
                )
                return
        self._start()

    def data_received(self, data: bytes) -> None:
        """As in uvicorn, as long as the head of a request is neither large nor late."""
        if self.transport.is_closing():
            return
        was_in_head = self.is_in_head
        super().data_received(data)
        if not self.is_in_head:
            if not self._has_rest:
                self._stop()
            return
        if was_in_head:
            self._num_bytes += len(data)
        else:
            self._stop()
            self._num_bytes = 1  # or more, behind the end of the request before
        if self._num_bytes > MAX_HEAD:
            text = f"the request's headers are larger than {MAX_HEAD} bytes"
            self._refuse(431, "invalid_request_error", "headers_too_large", text)
        elif self._timer is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        """As in uvicorn."""
        self._stop()
        if self._address is not None:
            self.bounds.close(self._address)
            self._address = None
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """As in uvicorn; the rest of a body that was not read has to come in time, too."""
        super().on_response_complete()  # type: ignore[misc]
        if self._has_rest and self._timer is None:
            self._start()

    @property
    def _has_rest(self) -> bool:
        """Whether a request was answered before all of its body had come."""
        return bool(self.cycle and self.cycle.response_complete and self.cycle.more_body)

    @property
    def _is_answering(self) -> bool:
        """Whether a request is being answered, besides the one whose head is awaited."""
        return self.cycle is not None and not self.cycle.response_complete

    def _start(self) -> None:
        self._timer = self.loop.call_later(self.bounds.timeout, self._time_out)

    def _stop(self) -> None:
        self._num_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self._is_answering:  # an earlier request: the head of the next one may be late
            self._start()
            return
        if (
            self._num_bytes == 0 or not self.is_in_head
        ):  # there is no request that could be answered
            self.transport.close()
            return
        text = "the request's headers did not arrive in time"
        self._refuse(408, "timeout_error", "headers_too_slow", text)

    def _refuse(self, status: int, kind: str, code: str, text: str) -> None:
        """Answer with an error of OpenAI's shape, unless another answer is being sent, and close
        the connection."""
        self._stop()
        if self.transport.is_closing():
            return
        if self._is_answering:
            self.transport.close()
            return
        body = json.dumps(error_body(text, Fault(status, kind, code))).encode()
        head = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(["Retry-After: 1"] if status == 429 else []),
            "Connection: close",
        ]
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()


def _max_files() -> int:
    """How many files the process may have open, after that is raised as far as it may be."""
    try:
        import resource
    except ImportError:  # where processes have no such limit
        return 1 << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        hard = soft
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard
