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
class Kept:
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
        self, kept: Kept, key: Key, asked: RunRequest, context: RequestContext
    ) -> AsyncGenerator[bytes]:
        """The body of a run, piece by piece, as `running.pieces` gives it. Raises InvalidCall for a
        run that cannot begin."""
        program = _checked(kept.program, asked)
        host = self._registry.backend
        if isinstance(host, ProgramHost) and host.takes_programs():
            sent_on = _sent_on(kept, key.digest, asked, context, self._registry)
            relayed = RelayedRun(host, sent_on, context)
            self._registry.watch(relayed.reply, context)
            return pieces(relayed.pieces(), relayed)
        known = await self._info.known()
        budget = Budget(self._limits, known.context_len)
        tenant = asked.tenant if context.client.is_admin else None
        backend = RunBackend(
            self._registry, context, self._limits, budget, known, tenant, asked.weight
        )
        work = ProgramWork(_run(program, asked, backend, self._threads, budget), context)
        here = run_here(self._threads, tenant or key.tenant, work, asked.stream)
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


def _checked(program: CompiledProgram, asked: RunRequest) -> CompiledProgram:
    """The program with the passes that are asked for, which takes the arguments. Raises
    InvalidCall."""
    if asked.passes is not None:
        program = CompiledProgram(program.graph, asked.passes)
    try:
        signature(program.body).bind(None, **asked.arguments)
    except TypeError as error:
        names = ", ".join(it.name for it in program.graph.parameters) or "none"
        shown = Shown(", ".join(asked.arguments)[:_SHOWN] or "none")
        raise InvalidCall("arguments", shown, f"those of the program, {names} ({error})") from error
    check_media(program.graph, asked.arguments)
    return program


def _sent_on(
    kept: Kept, digest: str, asked: RunRequest, context: RequestContext, registry: RequestRegistry
) -> ProgramRequest:
    """The run for the served backend, in the client's part of the cache and in its name."""
    client = context.client
    if not client.is_admin or asked.tenant is None:
        asked = replace(asked, tenant=client.tenant, weight=client.weight)
    namespace = within(client.namespace, asked.namespace)
    asked = replace(asked, namespace=namespace, deadline=registry.within_deadline(asked.deadline))
    body = json.dumps(asked.as_json(), allow_nan=False).encode()
    opening = opening_of(kept.program.graph, asked.arguments)
    return ProgramRequest(digest, kept.graph, namespace, body, opening)


def _run(
    program: CompiledProgram,
    asked: RunRequest,
    backend: RunBackend,
    threads: RunThreads,
    budget: Budget,
) -> Run:
    """The run that is asked for. Raises InvalidCall."""
    return Run(
        program.body,
        asked.settings(backend),
        (),
        asked.arguments,
        ProgramState,
        threads.worker,
        program.hint,
        budget.spend_chars,
    )
