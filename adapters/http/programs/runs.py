"""Runs of kept programs: in a thread of this server, or sent on as a whole where the served backend
is a router over servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from inspect import signature

from ....core.api.protocol import BackendInfo, InvalidCall, Shown
from ...native import CompiledProgram, ProgramState
from ...native.compiler.opening import opening_of
from ...native.remote.requests import RunRequest
from ...native.run import Run
from ...programs import ProgramHost, ProgramRequest
from ..server.keys import within
from ..server.request_registry import RequestContext, RequestRegistry
from ..server.runtime import Limits
from .budget import Budget, RunBackend
from .media import check_media
from .relay import RelayedRun
from .running import ProgramWork, RunThreads, pieces, run_here
from .store import Key

_SHOWN = 200


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """A program, and the JSON of its graph as it is sent on."""

    program: CompiledProgram
    graph: bytes


class ProgramRuns:
    """Makes the runs of a server. registry: what their calls are submitted to."""

    def __init__(self, registry: RequestRegistry, limits: Limits) -> None:
        self._registry = registry
        self._limits = limits
        self._threads = RunThreads(limits.programs)
        self._info = KnownInfo(registry)

    async def pieces_of(
        self, stored: StoredProgram, key: Key, request: RunRequest, context: RequestContext
    ) -> AsyncGenerator[bytes]:
        """The body of a run, piece by piece, as `running.pieces` gives it. Raises InvalidCall for a
        run that cannot begin."""
        program = _checked(stored.program, request)
        host = self._registry.backend
        if isinstance(host, ProgramHost) and host.takes_programs():
            sent_on = _sent_on(stored, key.digest, request, context, self._registry)
            relayed = RelayedRun(host, sent_on, context)
            self._registry.watch(relayed.reply, context)
            return pieces(relayed.pieces(), relayed)
        known = await self._info.known()
        budget = Budget(self._limits, known.context_len)
        tenant = request.tenant if context.client.is_admin else None
        backend = RunBackend(
            self._registry, context, self._limits, budget, known, tenant, request.weight
        )
        work = ProgramWork(_run(program, request, backend, self._threads, budget), context)
        here = run_here(self._threads, tenant or key.tenant, work, request.stream)
        return pieces(here, work)


class KnownInfo:
    """What the served backend reports of itself, asked once: figures in it are those of then."""

    def __init__(self, registry: RequestRegistry) -> None:
        self._registry = registry
        self._known: BackendInfo | None = None

    async def known(self) -> BackendInfo:
        """The info. Raises as `Backend.info`."""
        if self._known is None:
            self._known = await asyncio.to_thread(self._registry.info)
        return self._known


def _checked(program: CompiledProgram, request: RunRequest) -> CompiledProgram:
    """The program with the passes that are asked for, which takes the arguments. Raises
    InvalidCall."""
    if request.passes is not None:
        program = CompiledProgram(program.graph, request.passes)
    try:
        signature(program.body).bind(None, **request.arguments)
    except TypeError as error:
        names = ", ".join(it.name for it in program.graph.parameters) or "none"
        shown = Shown(", ".join(request.arguments)[:_SHOWN] or "none")
        raise InvalidCall("arguments", shown, f"those of the program, {names} ({error})") from error
    check_media(program.graph, request.arguments)
    return program


def _sent_on(
    stored: StoredProgram,
    digest: str,
    request: RunRequest,
    context: RequestContext,
    registry: RequestRegistry,
) -> ProgramRequest:
    """The run for the served backend, in the client's part of the cache and in its name."""
    client = context.client
    if not client.is_admin or request.tenant is None:
        request = replace(request, tenant=client.tenant, weight=client.weight)
    namespace = within(client.namespace, request.namespace)
    request = replace(
        request, namespace=namespace, deadline=registry.within_deadline(request.deadline)
    )
    body = json.dumps(request.as_json(), allow_nan=False).encode()
    opening = opening_of(stored.program.graph, request.arguments)
    return ProgramRequest(digest, stored.graph, namespace, body, opening)


def _run(
    program: CompiledProgram,
    request: RunRequest,
    backend: RunBackend,
    threads: RunThreads,
    budget: Budget,
) -> Run:
    """The run that is asked for. Raises InvalidCall."""
    return Run(
        program.body,
        request.settings(backend),
        (),
        request.arguments,
        ProgramState,
        threads.worker,
        program.hint,
        budget.spend_chars,
    )
