"""Replicas that answer questions about themselves as ever, and calls with errors or nonsense."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

import forkroot
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call, Text

from ...serving import serving
from ..http.conftest import Letters

CHATS = "/v1/chat/completions"
PAGE = (200, "text/html", b"<html>back soon</html>")
ANSWERS = [
    (500, "text/plain", b"Internal Server Error"),
    (502, "application/json", b'{"error": {"message": "no upstream"}}'),
    (503, "text/html", b"<html>closed</html>"),
    PAGE,
]


@contextmanager
def strange(url: str, answer: tuple[int, str, bytes]) -> Iterator[str]:
    """A server before another one: it hands on what is asked about that, and answers all else."""
    status, kind, body = answer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = httpx.get(url + self.path)
            self._send(found.status_code, "application/json", found.content)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self._send(status, kind, body)

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("answer", ANSWERS, ids=["500", "502", "503", "a page"])
def test_calls_that_a_replica_answers_with_nonsense_go_to_another(
    answer: tuple[int, str, bytes],
) -> None:
    texts: Any = Letters()
    with ExitStack() as stack:
        good = stack.enter_context(
            serving(Runtime(ScriptedBackend("well"), texts, ("m",)), Settings())
        )
        bad = stack.enter_context(strange(good, answer))
        router: Any = stack.enter_context(forkroot.connect([bad, good], policy="round-robin"))
        end = time.monotonic() + 60
        while not router.info().counters["resent"]:  # the replica may be left out for a while
            replies = [router.submit(Call((Text(f"{number}"),))) for number in range(20)]
            assert [reply.result(60).text for reply in replies] == ["well"] * 20
            assert time.monotonic() < end
        url = stack.enter_context(serving(Runtime(router, texts, ("m",)), Settings()))
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        for _ in range(6):
            found = httpx.post(url + CHATS, json=body, timeout=60)
            assert found.json()["choices"][0]["message"]["content"] == "well"
