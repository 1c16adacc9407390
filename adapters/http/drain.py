"""`forkroot drain`: a server takes no new requests, and its open ones end.

It asks over HTTP, and does not know what the server runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import httpx

from ...core.api.protocol import BackendClosed, InvalidCall

_INTERVAL = 0.2  # seconds


def run(options: argparse.Namespace) -> int:
    """Drain, or resume; 1 if requests are open at the end of the wait."""
    keys = os.environ.get("FORKROOT_ADMIN_KEYS", "").split()
    key = options.admin_key or next(iter(keys), None)
    if options.resume:
        set_draining(options.url, key, False)
        return 0
    num_open = drain(options.url, key, options.wait)
    if num_open:
        print(f"open requests: {num_open}", file=sys.stderr)
    return 1 if num_open else 0


def drain(url: str, key: str | None, wait: float) -> int:
    """How many requests are open after at most `wait` seconds without new ones. Raises as
    `set_draining`."""
    end = time.monotonic() + wait
    while (num_open := set_draining(url, key, True)) and time.monotonic() < end:
        time.sleep(_INTERVAL)
    return num_open


def set_draining(url: str, key: str | None, is_draining: bool) -> int:
    """Ask a server to drain, or to take requests again; how many are open there. Raises
    BackendClosed where no forkroot server answers, InvalidCall for a wrong URL or key."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        method = "POST" if is_draining else "DELETE"
        answer = httpx.request(method, f"{url.rstrip('/')}/drain", headers=headers)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise InvalidCall("url", url, "a URL such as http://127.0.0.1:30000") from error
    except httpx.HTTPError as error:
        raise BackendClosed(f"the server at {url} cannot be reached: {error!r:.200}") from error
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise InvalidCall("admin_key", None, f"an admin key of the server at {url}")
    try:
        return int(answer.raise_for_status().json()["open"])
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError) as error:
        raise BackendClosed(f"{url} is no forkroot server: {error!r:.200}") from error
