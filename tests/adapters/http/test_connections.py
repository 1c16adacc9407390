"""Connections of a server: how many, how long a request may take to arrive, and how large its head
may be."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from forkroot.adapters.common.seldom import Seldom
from forkroot.adapters.http.connections import (
    MAX_HEAD,
    Connections,
    address_of,
    protocol_of,
)
from forkroot.adapters.http.server.runtime import Limits, Runtime
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call

from .conftest import Letters, serving

LIMITS = Limits(request_timeout=0.3, max_connections=3, max_body=1000)
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


class Slow(ScriptedBackend):
    """Takes longer for a call with a seed than the head of a request may."""

    def submit(self, call: Call) -> Any:
        if call.sampling.seed is not None:
            time.sleep(3 * LIMITS.request_timeout)
        return super().submit(call)


@pytest.fixture(scope="module", params=["httptools", "h11"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server by each of the two parsers."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "h11":
            patch.setitem(sys.modules, "forkroot.adapters.http.connections_httptools", None)
        else:
            pytest.importorskip("httptools")
        kind = protocol_of(Connections(LIMITS)).__name__
        assert kind == {"httptools": "BoundedHttpTools", "h11": "BoundedH11"}[request.param]
        with serving(Runtime(Slow("x"), Letters(), ("m",), LIMITS)) as url:
            yield url


def connected(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answer(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and body of what comes until the connection is closed; status 0 for nothing."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    head, _, body = data.partition(b"\r\n\r\n")
    return (int(head.split()[1]), json.loads(body)) if data else (0, {})


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"", 0, None),
        (b"GET /heal", 408, "headers_too_slow"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-", 408, "headers_too_slow"),
        (POST + b"Content-Length: 100\r\n\r\n{", 408, "body_too_slow"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 408, "body_too_slow"),
    ],
)
def test_a_request_that_does_not_arrive_in_time_is_ended(
    url: str, sent: bytes, status: int, code: str | None
) -> None:
    with connected(url) as connection:
        connection.sendall(sent)
        found, body = answer(connection)
    assert found == status
    assert code is None or body["error"]["code"] == code


def test_a_second_request_of_a_connection_has_to_arrive_in_time_too(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        assert answer(connection)[0] == 408


def test_bytes_that_come_one_by_one_do_not_prolong_the_time(url: str) -> None:
    with connected(url) as connection, pytest.raises(OSError):
        for _ in range(200):
            connection.sendall(b"G")
            time.sleep(0.02)


def test_large_headers_are_refused(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        status = 0
        try:
            for number in range(8 * MAX_HEAD // 1000):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"x" * 1000))
        except OSError:
            status = 431
        status = status or answer(connection)[0]
    assert status == 431


def test_the_rest_of_a_body_that_was_refused_may_follow(url: str) -> None:
    with connected(url) as connection:
        connection.sendall(POST + b"Content-Length: 200000\r\n\r\n")
        time.sleep(0.05)
        connection.sendall(b"x" * 200_000)
        data = connection.recv(65536)
    assert data.startswith(b"HTTP/1.1 413")


def test_an_address_has_a_limited_number_of_connections(url: str) -> None:
    until_free(url)
    held = [connected(url) for _ in range(3)]
    try:
        for connection in held:  # so that they are accepted
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        with connected(url) as connection:
            status, body = answer(connection)
        assert (status, body["error"]["code"]) == (429, "too_many_connections")
    finally:
        for connection in held:
            connection.close()
    until_free(url)


def until_free(url: str) -> None:
    """Wait until connections that were closed are forgotten."""
    for _ in range(200):
        try:
            if httpx.get(f"{url}/health", headers={"Connection": "close"}).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)


def test_connections_are_counted_by_address_and_in_all() -> None:
    found = Connections(Limits(max_connections=2), max_files=8)
    assert [found.open("a") for _ in range(3)] == [True, True, False]
    found.close("a")
    found.close("a")
    assert found.open("a")
    assert found.open("b")
    assert found.open("c") and not found.open("d")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a.socket", "a.socket"),
    ],
)
def test_an_ipv6_client_is_its_network(host: str, address: str) -> None:
    assert address_of(host) == address


def test_failures_to_accept_are_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    connections = Connections(Limits(), max_files=100)
    now = [0.0]
    connections.seldom = Seldom(lambda: now[0])
    error = OSError(errno.EMFILE, "Too many open files")
    with caplog.at_level(logging.WARNING):
        for second in range(3):
            now[0] = float(second)
            for _ in range(500):
                connections.report(loop, {"message": "socket.accept()", "exception": error})
        lines = [record.getMessage() for record in caplog.records]
        connections.report(loop, {"message": "another", "exception": ValueError("x")})
    loop.close()
    first = "connections cannot be accepted: Too many open files"
    assert lines == [first, *[f"{first} (499 times more in the last second)"] * 2]
    assert caplog.records[-1].name == "asyncio"


def test_a_half_sent_second_request_does_not_end_the_answer_to_the_first(url: str) -> None:
    body = b'{"prompt": "x", "seed": 1}'
    with connected(url) as connection:
        connection.sendall(
            POST
            + b"Content-Type: application/json\r\n"
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
            + b"GET /health HTTP/1.1\r\nHost: local"
        )
        data = connection.recv(65536)
        head, _, found = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        answer, _ = json.JSONDecoder().raw_decode((found or connection.recv(65536)).decode())
        assert answer["object"] == "text_completion"  # the error of the second one may follow


def test_requests_that_are_no_http_are_one_line_a_second(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with connected(url) as connection:
                connection.sendall(b"no request at all\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 400")
    texts = [record.getMessage() for record in caplog.records]
    assert not [text for text in texts if text.startswith("Invalid HTTP")]
    assert 1 <= len([text for text in texts if "no HTTP" in text]) <= 2


def test_a_line_that_is_logged_seldom_may_have_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    seldom = Seldom(lambda: 0.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            try:
                raise OSError("no space")
            except OSError:
                seldom.warn("it could not be written", with_cause=True)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], OSError)
