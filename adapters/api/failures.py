"""What went wrong with one request: as a typed error, and whether another one may fare better.

No error holds a request, of which the key is a header; texts of servers are shown without the key.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from ...core.api.protocol import (
    CallFailed,
    CallTooLarge,
    ForkrootError,
    InvalidCall,
    InvalidModel,
    Overloaded,
    Shown,
)
from .settings import ApiSettings

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds
LONGEST_RETRY_AFTER = 120.0
_SHOWN = 300  # characters of a server's text
_PASSING = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
_PASSING_KINDS = ("overloaded_error", "rate_limit_error", "api_error", "timeout_error")
_LASTING_CODES = ("insufficient_quota", "billing_hard_limit_reached")


class Failure(Exception):
    """One request failed. error: what the call ends in, if no other request is made.

    is_passing: whether another one may succeed. retry_after: seconds that the server wants to pass.
    status, param, message: of the server's refusal.
    """

    def __init__(
        self,
        error: ForkrootError,
        is_passing: bool = False,
        retry_after: float | None = None,
        status: int = 0,
        param: str = "",
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_passing = is_passing
        self.retry_after = retry_after
        self.status = status
        self.param = param

    @property
    def message(self) -> str:
        """The text of the error."""
        return str(self.error)

    def pause(self, num_retries: int, source: random.Random) -> float:
        """Seconds before retry `num_retries` (from 0): doubled each time, with jitter, and not less
        than the server wants."""
        longest = min(FIRST_PAUSE * 2**num_retries, LONGEST_PAUSE)
        return max(source.uniform(longest / 2, longest), self.retry_after or 0.0)


def unreadable(settings: ApiSettings, reason: str) -> Failure:
    """An answer that cannot be read."""
    text = settings.redacted(reason)[:_SHOWN]
    return Failure(CallFailed(f"the answer of {settings.base_url} cannot be read: {text}"))


def too_long(settings: ApiSettings) -> Failure:
    """An answer that comes too slowly."""
    message = f"the answer of {settings.base_url} did not end within longest={settings.longest:g} s"
    return Failure(CallFailed(message))


def unreachable(settings: ApiSettings, error: httpx.HTTPError | OSError) -> Failure:
    """A connection that was not made or was lost, or a server that fell silent."""
    kind = type(error).__name__
    is_silent = isinstance(error, httpx.ReadTimeout)
    reason = f"no byte within silence={settings.silence:g} s" if is_silent else f"{error}"
    reason = settings.redacted(reason)[:_SHOWN]
    message = f"{settings.base_url} cannot be reached or fell silent: {kind}: {reason}"
    return Failure(CallFailed(message), is_passing=not is_silent)


def refused(settings: ApiSettings, response: httpx.Response, data: bytes) -> Failure:
    """A status other than 200."""
    status = response.status_code
    if response.has_redirect_location:
        message = f"{settings.base_url} redirects; expected the base_url of the API itself"
        return Failure(CallFailed(message), status=status)
    found = _error_of(data)
    text = settings.redacted(str(found.get("message") or f"status {status}"))[:_SHOWN]
    param, code = str(found.get("param") or ""), str(found.get("code") or found.get("type") or "")
    is_passing = status in _PASSING and code not in _LASTING_CODES
    error = _error(settings, status, text, param, is_passing)
    return Failure(error, is_passing, _retry_after(response.headers), status, param)


def interrupted(settings: ApiSettings, found: Mapping[str, Any]) -> Failure:
    """An error that comes within a stream. found: its `error` object."""
    text = settings.redacted(str(found.get("message") or found))[:_SHOWN]
    is_passing = str(found.get("type")) in _PASSING_KINDS
    kind = Overloaded if found.get("type") in _PASSING_KINDS[:2] else CallFailed
    return Failure(kind(f"{settings.base_url} ended its answer: {text}"), is_passing)


def _error(
    settings: ApiSettings, status: int, text: str, param: str, is_passing: bool
) -> ForkrootError:
    where = f"{settings.base_url} (status {status})"
    match status:
        case 401 | 403:
            given = None if settings.api_key is None else Shown("...")
            allowed = f"a key that the API accepts, as api_key= or {settings.provider.key}"
            return InvalidCall("api_key", given, f"{allowed} ({text})")
        case 404 | 405:
            return InvalidModel(f"the model {settings.model!r} is not at {where}: {text}")
        case 413:
            return CallTooLarge("prompt", Shown("..."), f"less than {where} refused: {text}")
        case 400 | 422:
            return InvalidCall(param or "call", Shown("..."), f"what {where} accepts: {text}")
        case 429 | 503 | 529 if is_passing:
            return Overloaded(f"{where} has no capacity now: {text}")
    return CallFailed(f"{where}: {text}")


def _error_of(data: bytes) -> Mapping[str, Any]:
    """The error object of a body, in either API's form; an empty one where there is none."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    found = body.get("error", body) if isinstance(body, dict) else {}
    if isinstance(found, dict):
        return found
    return {"message": found} if isinstance(found, str) else {}


def _retry_after(headers: httpx.Headers) -> float | None:
    """The seconds of `Retry-After` (a number or a date) or `retry-after-ms`; None: none is set."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return max(0.0, seconds) if seconds == seconds else None
    try:
        moment = parsedate_to_datetime(headers["retry-after"])
        return max(0.0, moment.timestamp() - time.time())
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
