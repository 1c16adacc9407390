"""What one run may use, and the backend that its calls go to."""

from __future__ import annotations

import threading
from dataclasses import replace

from ....core.api.protocol import (
    BackendInfo,
    Call,
    CallTooLarge,
    ProgramError,
    Reply,
    Shown,
)
from ..forkroot.calls import check_limits
from ..server.request_registry import RequestContext, RequestRegistry
from ..server.runtime import Limits


class Budget:
    """What is left to one run; thread-safe. context_len: tokens of a call without `max_tokens`."""

    def __init__(self, limits: Limits, context_len: int) -> None:
        own = limits.programs
        self._most = {"calls": own.max_calls, "tokens": own.max_tokens, "characters": own.max_chars}
        self._used = dict.fromkeys(self._most, 0)
        self._context_len = context_len
        self._lock = threading.Lock()

    def spend_chars(self, num: int) -> None:
        """Text was written. Raises CallTooLarge."""
        self._spend("characters", num)

    def spend_call(self, call: Call) -> None:
        """A call is made. Raises CallTooLarge."""
        self._spend("calls", 1)
        if not call.options:
            most = call.sampling.max_tokens
            each = self._context_len if most is None else min(most, self._context_len)
            self._spend("tokens", each * call.sampling.n)

    def _spend(self, what: str, num: int) -> None:
        with self._lock:
            self._used[what] += num
            is_over = self._used[what] > self._most[what]
        if is_over:
            most = self._most[what]
            allowed = f"at most {most} {what} in a run (of this server)"
            raise CallTooLarge("program", Shown(f"more than {most} {what}"), allowed)


class RunBackend:
    """The served backend, for the calls of one run: they belong to its request, whatever thread
    makes them, and are within its limits and its budget. info: of the served backend. tenant,
    weight: of whose calls these are, where an admin sends the run."""

    def __init__(
        self,
        registry: RequestRegistry,
        context: RequestContext,
        limits: Limits,
        budget: Budget,
        info: BackendInfo,
        tenant: str | None = None,
        weight: float = 1.0,
    ) -> None:
        self._tenant, self._weight = tenant, weight
        self._info = info
        self._registry = registry
        self._context = context
        self._limits = limits
        self._budget = budget

    def submit(self, call: Call) -> Reply:
        """As `Backend.submit`. Raises what refuses a call, and ProgramError once the request is
        over."""
        if self._context.is_disconnected:
            raise ProgramError("the run was ended")
        check_limits(call, self._limits)
        self._budget.spend_call(call)
        before = self._registry.current.set(self._context)
        try:
            if self._tenant is not None:
                call = replace(call, tenant=self._tenant, weight=self._weight)
            return self._registry.submit(call)
        finally:
            self._registry.current.reset(before)

    def cancel(self, reply: Reply) -> None:
        """As `Backend.cancel`."""
        reply.cancel()

    def info(self) -> BackendInfo:
        """As `Backend.info`."""
        return self._info

    def close(self) -> None:
        """Nothing: the backend goes on."""
