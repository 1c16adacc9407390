"""Fetches pictures and clips from the hosts that the operator allows, and from no other address.

Each hop of a redirect is checked again: scheme, host, port, and all addresses that the host has.
The connection goes to an address that was checked, so that no second look-up can give another one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from ....core.api.protocol import InvalidCall, Shown, UnsupportedCall

if TYPE_CHECKING:
    import ssl

    from httpcore import AsyncNetworkBackend

ANY_HOST = "*"
_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_MOST_HOPS = 3
_MOST_CHARS = 8192  # of a URL
_AT_ONCE = 16  # of all requests together
_NAME = re.compile(r"(?!-)[a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:.]+\]")
_ODD = re.compile(r"[^!-~]|[\\^`{|}\"<>]")
_HEADERS = (("Accept-Encoding", "identity"), ("User-Agent", "forkroot"))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_HOSTS = "names as a.site, a.site:8080 or, with all below it, .a.site; * for any"


class _Target(NamedTuple):
    """Where one hop goes. path: with the query."""

    scheme: str
    host: str
    port: int
    path: str


async def addresses_of(host: str, port: int) -> list[str]:
    """The addresses that a host has. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(it[4][0]) for it in found]


def is_public(address: str) -> bool:
    """Whether an address is one of the internet: not private, of this machine, of this link, or a
    way to write one of those."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None or ip.is_site_local:
            return inner is not None and is_public(str(inner))
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


class Fetcher:
    """Fetches from `hosts`. Its methods are for one event loop at a time.

    hosts: as `check_hosts` takes them; none: nothing is fetched. most: bytes of a file. seconds:
      for all of it, redirects included. resolve, is_allowed: the addresses of a host and a port,
      and whether one may be connected to.
    """

    def __init__(
        self,
        hosts: Collection[str] = (),
        most: int = 64 << 20,
        seconds: float = 10.0,
        resolve: Callable[[str, int], Awaitable[list[str]]] = addresses_of,
        is_allowed: Callable[[str], bool] = is_public,
    ) -> None:
        self._hosts = frozenset(it.lower() for it in hosts)
        self._most, self._seconds = most, seconds
        self._resolve, self._is_allowed = resolve, is_allowed
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def fetch(self, url: str, kind: str, field: str) -> bytes:
        """The bytes at a URL. kind: "image" or "video", as its content type has to say. Raises
        UnsupportedCall(field) for what is not allowed, InvalidCall(field) for what fails."""
        import httpcore

        try:
            async with self._turns, asyncio.timeout(self._seconds):
                return await self._followed(url, kind, field)
        except TimeoutError:
            raise _failed(field, url, "no answer in time", f"{self._seconds:g} s") from None
        except (OSError, httpcore.NetworkError, httpcore.ProtocolError, UnicodeError) as error:
            raise _failed(field, url, type(error).__name__, "a URL that answers") from error

    async def _followed(self, url: str, kind: str, field: str) -> bytes:
        at, target = url, self._target(url, field)
        for _ in range(1 + _MOST_HOPS):
            found = await self._read(target, at, kind, field)
            if isinstance(found, bytes):
                return found
            at, before = urljoin(at, found), target
            target = self._target(at, field)
            if before.scheme == "https" != target.scheme:
                raise _failed(field, url, "a redirect to http", "https to the end")
        raise _failed(field, url, "redirects", f"at most {_MOST_HOPS}")

    def _target(self, url: str, field: str) -> _Target:
        """Where a URL leads. Raises UnsupportedCall unless it is allowed."""
        try:
            parts = urlsplit(url)
            port = _PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
        except ValueError:
            parts, port = urlsplit(""), 0
        host = parts.netloc.lower().removesuffix(f":{port}")
        is_plain = len(url) <= _MOST_CHARS and not _ODD.search(url) and _NAME.fullmatch(host)
        usual = _PORTS.get(parts.scheme)
        if not (is_plain and usual and self._is_listed(host, port, usual)):
            hosts = ", ".join(sorted(self._hosts)) or "none"
            allowed = (
                f"data:..., or http(s) of a host that the server allows (--media-hosts: {hosts})"
            )
            raise UnsupportedCall(field, Shown(repr(url[:80])), allowed)
        path = (parts.path or "/") + f"?{parts.query}" * bool(parts.query)
        return _Target(parts.scheme, host, port, path)

    def _is_listed(self, host: str, port: int, usual: int) -> bool:
        names = [host, *(host[at:] for at, char in enumerate(host) if char == "."), ANY_HOST]
        return any(
            (it in self._hosts and port == usual) or f"{it}:{port}" in self._hosts for it in names
        )

    async def _read(self, target: _Target, url: str, kind: str, field: str) -> bytes | str:
        """The bytes, or where it was moved."""
        import httpcore

        host = target.host.strip("[]")
        addresses = await self._resolve(host, target.port)
        if not addresses or not all(map(self._is_allowed, addresses)):
            found = f"{url[:80]!r}, whose address is not public"
            raise UnsupportedCall(field, Shown(found), "a host with public addresses alone")
        context = self._certificates if target.scheme == "https" else None
        path = httpcore.URL(scheme=target.scheme, host=host, port=target.port, target=target.path)
        is_usual = target.port == _PORTS[target.scheme]
        name = target.host if is_usual else f"{target.host}:{target.port}"
        headers = [("Host", name), ("Accept", f"{kind}/*"), *_HEADERS]
        async with (
            httpcore.AsyncConnectionPool(
                context, max_connections=1, network_backend=_pinned(addresses[0])
            ) as pool,
            pool.stream("GET", path, headers=headers) as response,
        ):
            given = {name.lower(): value.decode("latin-1") for name, value in response.headers}
            if response.status in _REDIRECTS and b"location" in given:
                return given[b"location"]
            if response.status != 200:
                raise _failed(field, url, f"status {response.status}", "status 200")
            form = given.get(b"content-type", "").partition(";")[0].strip().lower()
            if form.partition("/")[0] != kind and form != "application/octet-stream":
                raise _failed(field, url, f"content of type {form[:40]!r}", f"{kind}/...")
            if given.get(b"content-encoding", "identity") != "identity":
                raise _failed(field, url, "compressed content", "plain content")
            return await self._body(response, given.get(b"content-length", ""), url, field)

    async def _body(self, response: Any, length: str, url: str, field: str) -> bytes:
        parts, size = list[bytes](), int(length) if length.isdecimal() else 0
        if size <= self._most:
            size = 0
            async for part in response.aiter_stream():
                size += len(part)
                if size > self._most:
                    break
                parts.append(part)
        if size > self._most:
            raise _failed(field, url, "a file that is too large", f"at most {self._most} bytes")
        return b"".join(parts)

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        import httpcore

        return httpcore.default_ssl_context()


def check_hosts(hosts: Iterable[str]) -> None:
    """Raise InvalidCall for what is no host, as `Fetcher` takes them."""
    for host in hosts:
        name, _, port = host.rpartition(":") if re.search(r":\d+$", host) else (host, "", "")
        bare = name.lower().removeprefix(".")
        is_port = not port or 0 < int(port) < 65_536
        if not is_port or (name != ANY_HOST and not _NAME.fullmatch(bare)):
            raise InvalidCall("media_hosts", host, _HOSTS)


def _failed(field: str, url: str, found: str, allowed: str) -> InvalidCall:
    return InvalidCall(field, Shown(f"{url[:80]!r}: {found}"), allowed)


def _pinned(address: str) -> AsyncNetworkBackend:
    """Connects to this address, whatever the name of the host."""
    import httpcore

    class Pinned(httpcore.AnyIOBackend):
        async def connect_tcp(self, host: str, *args: Any, **options: Any) -> Any:
            return await super().connect_tcp(address, *args, **options)

    return Pinned()
