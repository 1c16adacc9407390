"""Restarts a runtime whose engine has died: another, with empty caches, takes its place.

Open calls end in their typed errors, and later ones too until the new engine is ready.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..api.owner import ProcessLocal
from ..api.protocol import BackendClosed, BackendInfo, Call, NodeView, Reply
from ..common.exits import close_at_exit
from ..text.tokenizer import Tokenizer
from .client import ProcessBackend

_log = logging.getLogger(__name__)
_CHECK_INTERVAL = 0.5  # seconds


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


class RestartingBackend(ProcessLocal):
    """As `Backend`, over engines that `make` gives, one after another. Raises what the first `make`
    raises.

    is_over: no engine lives, and none will be tried any more.
    """

    def __init__(self, make: Callable[[], ProcessBackend], backoff: Backoff = Backoff()) -> None:
        self.is_over = False
        self._make = make
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
    def tokenizer(self) -> Tokenizer:
        """That of the engine's model."""
        return self._engine.tokenizer

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

    def _new_engine(self) -> ProcessBackend:
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
