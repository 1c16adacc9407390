"""Restarts a runtime whose engine has died: another, with empty caches, takes its place.

Open calls end in their typed errors, and later ones too until the new engine is ready. That takes
the time to load the model: the processes of the next engine wait with their code loaded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ..api.config import EngineConfig
from ..api.evictions import NUM_PREFIXES, EvictionReport, PrefixReport
from ..api.owner import Owner, ProcessLocal
from ..api.program_report import ProgramReport
from ..api.protocol import Backend, BackendClosed, BackendInfo, Call, NodeView, Reply
from ..common.exits import close_at_exit
from .client import ProcessBackend
from .ipc import Child
from .launch import start_engine
from .liveness import is_stopped

_log = logging.getLogger(__name__)
_CHECK_INTERVAL = 0.5  # seconds


class Engine(Backend, Protocol):
    """What can be restarted: a backend that ends with its process. is_replaced: as in EngineDied,
    for its errors."""

    is_replaced: bool

    @property
    def tokenizer(self) -> Any:
        """That of its model."""

    def clear_cache(self) -> int:
        """Forget what no open call uses; returns how many tokens."""

    def snapshot(
        self, max_nodes: int | None = 1000, max_tokens: int | None = 64
    ) -> tuple[NodeView, ...]:
        """The radix tree now."""

    def evictions(self, after: int = -1) -> EvictionReport:
        """What the cache has forgotten since a report that ended with this number."""

    def prefixes(self, count: int = NUM_PREFIXES) -> PrefixReport:
        """The prefixes in the cache that were used last."""

    def program_report(self, tenant: str | None = None) -> ProgramReport:
        """What programs have used, by kind. tenant: of one only."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """When a new engine is started. tries: in a row, before giving up. delay: seconds before the
    second try, doubled for each one after it. settled: seconds of life after which an engine no
    longer counts as one of such a row."""

    tries: int = 5
    delay: float = 1.0
    settled: float = 60.0

    def before(self, num_tries: int) -> float:
        """Seconds to wait after `num_tries` tries."""
        return self.delay * 2 ** (num_tries - 1) if num_tries else 0.0


class WarmEngines:
    """Makes engines of one model, as `ProcessBackend` with these arguments. The next one's
    processes are started before it is needed: they load their code, and wait. Not for several
    threads at a time."""

    def __init__(self, model: str | Path = "tiny", **settings: Any) -> None:
        self._config = EngineConfig.from_settings(settings)
        self._model, self._settings = model, settings
        self._owner = Owner()
        self._spare: Child | None = None

    def __call__(self) -> ProcessBackend:
        """An engine. Raises as `ProcessBackend`."""
        if self._spare is not None and not _is_well(self._spare):
            self.close()
        spare, self._spare = self._spare, None
        engine = ProcessBackend(self._model, spare, **self._settings)
        try:
            self._spare = start_engine(self._config)
        except OSError as error:  # as many processes as are allowed
            _log.warning("no spare process for another engine could be started: %s", error)
        return engine

    @property
    def spare_pid(self) -> int | None:
        """The id of the next engine's process; None where there is none."""
        return None if self._spare is None else self._spare.process.pid

    def close(self) -> None:
        """End what waits for the next engine. Nothing in a fork of this process."""
        spare, self._spare = self._spare, None
        if spare is not None and self._owner.is_here:
            spare.process.kill()  # its ranks end with it
            spare.connection.close()
            spare.process.wait()


def _is_well(child: Child) -> bool:
    return child.process.poll() is None and not is_stopped(child.process.pid)


class RestartingBackend(ProcessLocal):
    """As `Backend`, over engines that `make` gives, one after another. Raises what the first `make`
    raises.

    release: is called at the end, when no more engines are made.
    is_over: no engine lives, and none will be tried any more.
    """

    def __init__(
        self,
        make: Callable[[], Engine],
        backoff: Backoff = Backoff(),
        release: Callable[[], object] | None = None,
    ) -> None:
        self.is_over = False
        self._make, self._release = make, release
        self._backoff = backoff
        self._engine = self._new_engine()
        self._num_restarts = 0
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._wake = threading.Event()
        self._watch = threading.Thread(target=self._run, name="forkroot-restarts", daemon=True)
        self._watch.start()
        close_at_exit(self)

    @property
    def tokenizer(self) -> Any:
        """That of the engine's model."""
        return self._engine.tokenizer

    @property
    def engine_pid(self) -> int | None:
        """The process id of the engine that lives now, if it is a process of this machine."""
        pid: int | None = getattr(self._engine, "pid", None)
        return pid

    def submit(self, call: Call) -> Reply:
        """As `Backend.submit`; the call ends in BackendClosed where no engine lives now."""
        reply = self._engine.submit(call)
        reply.when_done(self._note_end)
        return reply

    def cancel(self, reply: Reply) -> None:
        """As `Backend.cancel`."""
        reply.cancel()

    def info(self) -> BackendInfo:
        """What runs now; its counters began with this engine, but for "restarts". Raises
        BackendClosed where no engine lives."""
        try:
            info = self._engine.info()
        except BackendClosed:
            self._wake.set()
            raise
        return replace(info, counters={**info.counters, "restarts": self._num_restarts})

    def evictions(self, after: int = -1) -> EvictionReport:
        """As `ProcessBackend.evictions`, of the engine that lives now."""
        return self._engine.evictions(after)

    def prefixes(self, count: int = NUM_PREFIXES) -> PrefixReport:
        """As `ProcessBackend.prefixes`, of the engine that lives now."""
        return self._engine.prefixes(count)

    def program_report(self, tenant: str | None = None) -> ProgramReport:
        """As `ProcessBackend.program_report`, of the engine that lives now."""
        return self._engine.program_report(tenant)

    def clear_cache(self) -> int:
        """Forget what no open call uses; returns how many tokens."""
        return self._engine.clear_cache()

    def snapshot(
        self, max_nodes: int | None = 1000, max_tokens: int | None = 64
    ) -> tuple[NodeView, ...]:
        """The radix tree of the engine that lives now."""
        return self._engine.snapshot(max_nodes, max_tokens)

    def close(self) -> None:
        """As `Backend.close`; waits for an engine that is just being made."""
        with self._lock:
            self._is_closed.set()
        self._wake.set()
        self._engine.close()
        if threading.current_thread() is not self._watch:
            self._watch.join()
        if self._release is not None:
            self._release()

    def _new_engine(self) -> Engine:
        engine = self._make()
        engine.is_replaced = True
        return engine

    def _note_end(self, reply: Reply) -> None:
        if isinstance(reply.error(), BackendClosed):
            self._wake.set()

    # --- in the watch's thread -----------------------------------------------------------------

    def _run(self) -> None:
        began, num_tries = time.monotonic(), 0
        while self._wait_for_death():
            if time.monotonic() - began >= self._backoff.settled:
                num_tries = 0
            while num_tries < self._backoff.tries:
                if self._is_closed.wait(self._backoff.before(num_tries)):
                    return
                num_tries += 1
                if self._has_restarted():
                    break
            else:
                _log.error("no engine stays alive (%d tries): given up", num_tries)
                self.is_over, self._engine.is_replaced = True, False
                return
            began = time.monotonic()

    def _wait_for_death(self) -> bool:
        """Wait until the engine has died (True), or all is closed."""
        while True:
            self._wake.wait(_CHECK_INTERVAL)
            self._wake.clear()
            if self._is_closed.is_set():
                return False
            try:
                self._engine.info()
            except Exception as error:  # an engine that cannot answer is as good as dead
                _log.error("%s; another is started", error)
                return True

    def _has_restarted(self) -> bool:
        """Put a new engine in the place of the dead one, if one can be made."""
        start = time.monotonic()
        try:
            self._engine.close()
            engine = self._new_engine()
        except Exception as error:
            _log.error("no engine could be started: %s", error)
            return False
        with self._lock:
            is_closed_meanwhile = self._is_closed.is_set()
            if not is_closed_meanwhile:
                self._engine = engine
                self._num_restarts += 1
        if is_closed_meanwhile:
            engine.close()
        _log.info("an engine was started again in %.1f s", time.monotonic() - start)
        return True
