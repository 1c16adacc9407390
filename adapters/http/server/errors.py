"""Errors of the protocol as HTTP: a status, and a body in OpenAI's shape."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi.responses import Response

from ....core.api.protocol import (
    BackendClosed,
    CallTooLarge,
    DeadlineExceeded,
    EngineDied,
    ForkrootError,
    InvalidCall,
    Overloaded,
    ProgramError,
    UnsupportedCall,
)
from ..wire.callwire import RESTARTS

_log = logging.getLogger("forkroot.http")


class Fault(NamedTuple):
    """An error as HTTP reports it. retry_after: seconds, where trying again may help.
    allowed: the methods that the path takes, where another was used."""

    status: int
    kind: str
    code: str | None = None
    param: str | None = None
    retry_after: int | None = None
    allowed: str | None = None


class Refused(Exception):
    """A request that reaches no backend."""

    def __init__(self, message: str, fault: Fault) -> None:
        super().__init__(message)
        self.fault = fault


def fault_of(error: BaseException) -> Fault:
    """The status and code of an error."""
    if isinstance(error, Refused):
        return error.fault
    if _is_exhausted(error):
        return _FAULTS[Overloaded]
    fault = next((it for kind, it in _FAULTS.items() if isinstance(error, kind)), _INTERNAL)
    return fault._replace(param=error.field) if isinstance(error, InvalidCall) else fault


def _is_exhausted(error: BaseException) -> bool:
    """Whether memory or threads of the process have run out."""
    is_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    return is_thread or isinstance(error, MemoryError)


_INTERNAL = Fault(500, "server_error", "internal_error")
_FAULTS: dict[type[BaseException], Fault] = {  # those of subclasses first
    UnsupportedCall: Fault(400, "invalid_request_error", "unsupported_value"),
    CallTooLarge: Fault(400, "invalid_request_error", "context_length_exceeded"),
    InvalidCall: Fault(400, "invalid_request_error", "invalid_value"),
    Overloaded: Fault(503, "overloaded_error", "overloaded", retry_after=1),
    DeadlineExceeded: Fault(408, "timeout_error", "deadline_exceeded"),
    EngineDied: Fault(503, "server_error", "engine_dead", retry_after=5),
    BackendClosed: Fault(503, "server_error", "shutting_down", retry_after=5),
    ProgramError: Fault(400, "invalid_request_error", "program_failed"),
    RecursionError: Fault(400, "invalid_request_error", "invalid_value"),
}


def message_of(error: BaseException) -> str:
    """What a client may read of an error: nothing of our own faults but that there was one."""
    fault = fault_of(error)
    if fault.code == "internal_error":
        return "the server failed on this request"
    if _is_exhausted(error):
        return "the server has no memory or no threads left for this request; try later"
    if isinstance(error, EngineDied):
        then = RESTARTS if error.is_replaced else "the server ends, too"
        return f"the engine has died; {then}"
    if fault.code == "shutting_down":
        return "the backend is closed"
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    return str(error) or type(error).__name__


def failed_body(error: BaseException) -> dict[str, Any]:
    """The body of a request that failed so. Logs why, where the client may not know."""
    fault = fault_of(error)
    if fault.code == "internal_error" and isinstance(error, ForkrootError):
        _log.error("a call failed: %s", error)  # the server logs other errors itself
    return error_body(message_of(error), fault)


def error_body(message: str, fault: Fault) -> dict[str, Any]:
    """The body of a failed request."""
    fields = {"type": fault.kind, "param": fault.param, "code": fault.code}
    return {"error": {"message": message, **fields}}


def error_response(error: BaseException) -> Response:
    """The whole answer to a failed request."""
    fault = fault_of(error)
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    if fault.allowed is not None:
        headers["Allow"] = fault.allowed
    if fault.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = json.dumps(failed_body(error))
    return Response(body, fault.status, headers, media_type="application/json")


def as_request_names(error: ForkrootError, names: Mapping[str, str]) -> ForkrootError:
    """The same error, its field by the name that the request gave it; a place in it stays."""
    if not isinstance(error, InvalidCall):
        return error
    field, mark, pointer = error.field.partition("#")
    if field not in names:
        return error
    renamed = type(error)(f"{names[field]}{mark}{pointer}", error.value, error.allowed)
    renamed.__cause__ = error
    return renamed
