"""Connections to one server, in small pools.

The library looks through all connections of a pool whenever it hands one out or takes one back: one
pool for some hundred calls would spend its time on that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx

_CALLS_AT_ONCE = 8


@dataclass(slots=True, eq=False)
class Pool:
    """Connections for a few calls. num_open: calls that use them; who ends counts it down."""

    http: httpx.AsyncClient
    num_open: int = 0


class Pools:
    """As many pools as the calls at work need; those that were needed stay."""

    def __init__(self, url: httpx.URL, headers: Mapping[str, str], timeout: httpx.Timeout) -> None:
        self._url = url
        self._headers = headers
        self._timeout = timeout
        self._verify = httpx.create_ssl_context() if url.scheme == "https" else False
        self._pools: list[Pool] = []

    def taken(self) -> Pool:
        """A pool with a free connection; counts one more call."""
        pool = next((it for it in self._pools if it.num_open < _CALLS_AT_ONCE), None)
        if pool is None:
            pool = Pool(self._client())
            self._pools.append(pool)
        pool.num_open += 1
        return pool

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools:
            await pool.http.aclose()

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self._url,
            headers=self._headers,
            timeout=self._timeout,
            verify=self._verify,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=_CALLS_AT_ONCE),
        )
