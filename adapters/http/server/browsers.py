"""Keeps pages of other sites from using a server without keys through the browser of somebody who
can reach it.

A page whose name leads to this server (DNS rebinding) bears that name in `Host`; a page of another
site bears its own in `Origin`. Programs other than browsers send the address that they were given,
and no `Origin`.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from .errors import Fault, Refused
from .settings import ANY, Settings

_EXPECTED = "an address, localhost, or a name given by --allowed-host"


class Browsers:
    """Which hosts and origins a server answers. With keys it answers all: other sites have none."""

    def __init__(self, settings: Settings) -> None:
        self._is_open = not settings.keys
        names = {"localhost", socket.gethostname(), *settings.allowed_hosts}
        self._names = frozenset(_plain(name) for name in names)
        self._origins = frozenset(settings.cors_origins)

    def check(self, headers: Mapping[bytes, str]) -> None:
        """Raise Refused for a request that a page of another site may have sent: 421 by its `Host`,
        403 by its `Origin`."""
        if not self._is_open:
            return
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if host and not self._is_own(host):
            message = f"this server is not called {host!r:.100}; expected {_EXPECTED}"
            raise Refused(message, Fault(421, "invalid_request_error", "host_not_allowed"))
        if origin is None or self._origins & {ANY, origin}:
            return
        if not host or _host_of(origin) != host.lower():
            message = (
                f"pages of {origin!r:.100} may not use this server; expected its own pages, or an"
                " origin given by --cors-origin"
            )
            raise Refused(message, Fault(403, "permission_error", "origin_not_allowed"))

    def _is_own(self, host: str) -> bool:
        """Whether no other site can bear this name."""
        name = _plain(_without_port(host))
        return (
            name in self._names
            or ANY in self._names
            or name.endswith(".localhost")
            or _is_address(name)
        )


def _plain(name: str) -> str:
    return name.lower().rstrip(".")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    is_port = bool(colon) and port.isdecimal() and (":" not in name or name.endswith("]"))
    return (name if is_port else host).strip("[]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_of(origin: str) -> str:
    """Name and port in an origin; "" in one that is none, as "null"."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
