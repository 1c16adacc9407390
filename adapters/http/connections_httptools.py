"""uvicorn's protocol by httptools, which knows whether the head of a request is incomplete, and
lets an application write pieces of a body without a coroutine for each."""

from __future__ import annotations

import weakref
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .server.sse import WRITER


class BodyWriter:
    """Writes pieces of one answer."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = weakref.ref(cycle)  # its scope holds this writer

    def write(self, piece: bytes) -> bool:
        """Send a piece now. False, and nothing is sent, where it has to go by `send`: its client
        reads slowly or has gone, or the answer is not one in pieces."""
        cycle = self._cycle()
        if cycle is None or not cycle.chunked_encoding or cycle.response_complete:
            return False
        if cycle.flow.write_paused or cycle.disconnected:
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True


class HeadHttpTools(HttpToolsProtocol):
    """is_in_head: whether the end of a head is awaited."""

    is_in_head = True

    def on_message_begin(self) -> None:
        """As in uvicorn."""
        self.is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """As in uvicorn."""
        self.is_in_head = False
        super().on_headers_complete()
        if self.cycle is not None:
            writer: Any = {WRITER: BodyWriter(self.cycle)}
            self.scope["extensions"] = writer

    def on_message_complete(self) -> None:
        """As in uvicorn; after a body that nobody read the next head is awaited."""
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self.is_in_head = True
