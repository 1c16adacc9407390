"""Pictures are fetched from allowed hosts with public addresses alone, within limits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from forkroot.adapters.http.server.fetch import Fetcher, is_public
from forkroot.adapters.http.server.settings import Settings
from forkroot.core.api.protocol import InvalidCall, UnsupportedCall

PICTURE = b"\x89PNG picture"


class Site(BaseHTTPRequestHandler):
    """Answers by its path; notes the hosts that it was asked as."""

    seen: list[tuple[str, str]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.seen.append((self.headers["Host"], self.path))
        name = self.path.partition("?")[0]
        if name.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        kind = {"/page.html": "text/html", "/none.png": ""}.get(name, "image/png")
        self.send_response(404 if name == "/missing.png" else 200)
        self.send_header("Content-Type", "application/octet-stream" if name == "/raw" else kind)
        if name == "/packed.png":
            self.send_header("Content-Encoding", "gzip")
        if name == "/says-much.png":
            self.send_header("Content-Length", "99999999")
        self.end_headers()
        if name == "/much.png":
            self.wfile.write(bytes(5000))
        elif name == "/slow.png":
            for _ in range(100):
                self.wfile.write(b"a")
                self.wfile.flush()
                time.sleep(0.05)
        else:
            self.wfile.write(PICTURE)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: Any) -> None:
        """A client that leaves is no error."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with Quiet(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


async def local(host: str, port: int) -> list[str]:
    """Every name is this machine's; private.site has a private address beside it."""
    return ["127.0.0.1"] + ["10.0.0.1"] * (host == "private.site")


def fetch(url: str, *hosts: str, kind: str = "image", **options: Any) -> bytes:
    given = {"resolve": local, "is_allowed": lambda it: it == "127.0.0.1", **options}
    return asyncio.run(Fetcher(hosts, **given).fetch(url, kind, "part.url"))


def test_an_allowed_host_is_asked_by_its_name_at_the_address_that_was_checked(port: int) -> None:
    Site.seen.clear()
    assert fetch(f"http://a.site:{port}/a.png?x=1", f"a.site:{port}") == PICTURE
    assert Site.seen == [(f"a.site:{port}", "/a.png?x=1")]
    assert fetch(f"http://b.a.site:{port}/raw", f".a.site:{port}", kind="video") == PICTURE
    assert fetch(f"http://any.site:{port}/a.png", f"*:{port}") == PICTURE
    assert fetch(f"HTTP://A.Site:{port}/a.png", f"a.site:{port}") == PICTURE


@pytest.mark.parametrize(
    "url",
    [
        "http://b.site/a.png",
        "http://xa.site/a.png",
        "http://a.site.evil.example/a.png",
        "http://a.site:81/a.png",
        "http://a.site./a.png",
        "http://user@a.site/a.png",
        "http://a.site@b.site/a.png",
        "http://b.site#@a.site/a.png",
        "http://b.site\\@a.site/a.png",
        "http://a.site\t/a.png",
        "http://a.site /a.png",
        "http://ä.site/a.png",
        "http:///a.png",
        "http://a.site:99999/a.png",
        "http://[::1/a.png",
        "ftp://a.site/a.png",
        "ftp://a.site:80/a.png",
        "file:///etc/passwd",
        "gopher://a.site/",
        "http://a.site/" + "a" * 9000,
    ],
)
def test_other_hosts_ports_and_schemes_are_refused_before_any_look_up(url: str) -> None:
    async def never(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    with pytest.raises(UnsupportedCall, match=r"invalid part\.url=.*--media-hosts: a\.site"):
        fetch(url, "a.site", resolve=never)


def test_nothing_is_fetched_without_hosts() -> None:
    with pytest.raises(UnsupportedCall, match="--media-hosts: none"):
        fetch("https://example.org/a.png")


def test_each_hop_is_checked_again(port: int) -> None:
    site = f"http://a.site:{port}"
    hosts = f"a.site:{port}", f"b.site:{port}", f"private.site:{port}"
    assert fetch(f"{site}/to//a.png", *hosts) == PICTURE
    assert fetch(f"{site}/to/http://b.site:{port}/a.png", *hosts) == PICTURE
    for other in (f"http://c.site:{port}/a.png", "http://a.site:1/a.png", "file:///etc/passwd"):
        with pytest.raises(UnsupportedCall, match="--media-hosts"):
            fetch(f"{site}/to/{other}", *hosts)
    with pytest.raises(UnsupportedCall, match="not public"):
        fetch(f"{site}/to/http://private.site:{port}/a.png", *hosts)
    with pytest.raises(InvalidCall, match="redirects: expected at most 3"):
        fetch(f"{site}/to//to//to//to//a.png", *hosts)


def test_a_host_with_any_address_that_is_not_public_is_refused(port: int) -> None:
    Site.seen.clear()
    with pytest.raises(UnsupportedCall, match="address is not public"):
        fetch(f"http://private.site:{port}/a.png", f"private.site:{port}")
    for host in ("127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1"):
        with pytest.raises(InvalidCall):
            asyncio.run(Fetcher([f"*:{port}"]).fetch(f"http://{host}:{port}/", "image", "x"))
    assert Site.seen == []


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1"),
        *("::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1", "fec0::1"),
    ],
)
def test_addresses_of_networks_of_ones_own_are_not_public(address: str) -> None:
    assert not is_public(address)


def test_addresses_of_the_internet_are_public() -> None:
    assert is_public("8.8.8.8")
    assert is_public("2606:4700:4700::1111")
    assert is_public("64:ff9b::808:808")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("page.html", "type 'text/html': expected image/"),
        ("none.png", "type ''"),
        ("missing.png", "status 404"),
        ("packed.png", "compressed content"),
        ("much.png", "too large: expected at most 4000 bytes"),
        ("says-much.png", "too large"),
        ("slow.png", "no answer in time: expected 0.3 s"),
    ],
)
def test_what_is_no_picture_too_large_or_slow_is_refused(port: int, path: str, error: str) -> None:
    with pytest.raises(InvalidCall, match=error):
        fetch(f"http://a.site:{port}/{path}", f"a.site:{port}", most=4000, seconds=0.3)


def test_a_host_that_is_not_there_ends_in_a_typed_error() -> None:
    async def none(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    with pytest.raises(InvalidCall, match="a URL that answers"):
        fetch("http://a.site/a.png", "a.site", resolve=none)
    with pytest.raises(InvalidCall, match="ConnectError"):
        fetch("http://a.site:1/a.png", "a.site:1")


@pytest.mark.parametrize("host", ["http://a.site", "a.site/x", "", "a..site", "a.site:0", "-a"])
def test_settings_refuse_what_is_no_host(host: str) -> None:
    with pytest.raises(InvalidCall, match="media_hosts"):
        Settings(media_hosts=(host,))


def test_settings_take_hosts() -> None:
    hosts = ("a.site", ".a.site", "a.site:8080", "*", "*:8080", "[2606:4700::1]", "[::1]:80")
    assert Settings(media_hosts=hosts).media_hosts == hosts
