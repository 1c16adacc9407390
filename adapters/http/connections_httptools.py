"""uvicorn's protocol by httptools, which knows whether the head of a request is incomplete."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


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

    def on_message_complete(self) -> None:
        """As in uvicorn; after a body that nobody read the next head is awaited."""
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self.is_in_head = True
