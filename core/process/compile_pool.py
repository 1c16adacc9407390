"""A pool of processes that compile large constraints, so that they slow no running call.

Who waits for one, and whose turn it is, is the business of `core.common.fair_executor`.

A compilation is plain Python, which would hold the interpreter lock against the engine's thread. A
worker runs `core.process.compile_worker`; it is started by the first constraint that is too large
for this process, and stopped when a compilation takes too long. While all are busy, another worker
serves the others, up to a limit, and stops when it has been idle for a while.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, InvalidStateError, TimeoutError
from typing import Any

import numpy as np

from ..api.owner import Owner
from ..api.protocol import (
    BackendClosed,
    CallFailed,
    Choices,
    ForkrootError,
    Grammar,
    InvalidCall,
    JsonSchema,
    Overloaded,
    Regex,
)
from ..common.exits import close_at_exit
from ..fsm.grammar.explore import Known
from ..fsm.json_schema.jsontext import schema_text
from ..fsm.json_schema.shapes import Shape
from ..fsm.plan import Unrepeated
from ..fsm.regex.dfa import Dfa
from ..fsm.regex.errors import NotRegular
from ..fsm.regex.partition import Partition
from ..fsm.tokens.regular import Compiled
from .ipc import Child, spawn
from .liveness import LivenessMonitor, cpu_seconds

SECONDS = 12.0  # of the child's processor time, for one constraint
SECONDS_IN_ALL = 30.0  # for one constraint where other programs keep the processor
SECONDS_SILENT = 5.0  # without processor time, after which a child is replaced
NICENESS = 10  # a child takes a tenth of a processor that the engine or the server want as well
SECONDS_STARVED = 2.0  # with little processor time, after which a child's priority is raised
STARVED_SHARE = 0.05  # of a processor: half of what it has beside the engine on the same one
TRIES = 3  # of one constraint, where its child dies or is replaced
SECONDS_BEFORE_LOG = 2.0  # before the log says what is being compiled
CHECK_INTERVAL = 0.25  # seconds between two checks of the child's time
SECONDS_TO_WAIT = 0.25  # before another worker is started
SECONDS_IDLE = 30.0  # before it is stopped
MAX_WORKERS = 2
_NICEST = 19
_log = logging.getLogger("forkroot.constraints")


def compilers() -> int:
    """How many workers this machine may have: one for each of a few cores but one, which the engine
    uses, and one more that no tenant may have beside all others."""
    return max(1, min(4, (os.cpu_count() or 1) - 1)) + 1


class CompilePool:
    """Compile workers. Any thread may call.

    token_bytes, end_ids: of the vocabulary that they compile for. max_workers: as many at most.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        end_ids: Collection[int],
        max_workers: int = MAX_WORKERS,
    ) -> None:
        self._token_bytes = token_bytes
        self._end_ids = [token for token in end_ids if token < len(token_bytes)]
        self._owner = Owner()
        self._condition = threading.Condition()
        self._workers: list[CompileWorker] = []
        self._of_threads: dict[int, CompileWorker] = {}
        self._max_workers = max_workers
        self._is_closed = False
        self._watch: threading.Timer | None = None
        close_at_exit(self)

    @property
    def is_running(self) -> bool:
        """Whether a worker was started."""
        return any(worker.is_running for worker in list(self._workers))

    @property
    def is_busy(self) -> bool:
        """Whether a compilation that is requested now has to wait."""
        workers = list(self._workers)
        return bool(workers) and all(worker.is_taken for worker in workers)

    def compiled(
        self, constraint: Regex | Choices, field: str | None = None, tenant: str = ""
    ) -> Compiled:
        """The automaton of a pattern or a list of texts, called `field` (or what it is) in errors.
        Raises InvalidCall for one that is not allowed, Overloaded where no child could compile it
        now, and CallFailed."""
        match constraint:
            case Regex(pattern=pattern):
                return _read(self._compile("regex", pattern, field or "regex", tenant))
            case Choices(options=options):
                return _read(self._compile("choices", options, field or "choices", tenant))

    def plan(
        self, constraint: JsonSchema | Grammar, tenant: str = ""
    ) -> Compiled | Known | Unrepeated:
        """The automaton of a JSON schema, or what is known of a grammar. Raises as `compiled`."""
        source: tuple[str, ...]
        if isinstance(constraint, Grammar):
            source = constraint.source, constraint.syntax
            kind, made, rows = self._compile("grammar", source, "grammar", tenant)
        else:
            source = schema_text(constraint.schema), *constraint.separators
            kind, made, rows = self._compile("schema", source, "json_schema", tenant)
        plan = Known(*made) if kind == "known" else _read(made)
        return Unrepeated(plan, tuple(Shape(*row) for row in rows)) if rows else plan

    def close(self) -> None:
        """Stop the workers; their compilations end in BackendClosed. Does nothing in a fork of this
        process."""
        if not self._owner.is_here:
            return
        with self._condition:
            self._is_closed = True
            workers = list(self._workers)
            self._condition.notify_all()
        for worker in workers:
            worker.end(_closed())

    def abandon(self, thread: int) -> None:
        """Stop what is compiled for the caller in this thread; nothing where nothing is."""
        if (worker := self._of_threads.get(thread)) is not None:
            worker.stop(CallFailed("nobody waits for this constraint any more"))

    def _compile(self, kind: str, source: Any, field: str, tenant: str) -> Any:
        worker = self._of_threads[threading.get_ident()] = self._acquire()
        try:
            message = kind, source, field, tenant
            status, *answer = worker.request(_description(kind, source), *message)
        except TimeoutError:
            shown = str(source[0] if kind in ("schema", "grammar") else source)[:200]
            raise InvalidCall(field, shown, _limits()) from None
        finally:
            del self._of_threads[threading.get_ident()]
            self._release(worker)
        if status == "made":
            return answer[0]
        if status == "not regular":
            raise NotRegular(*answer)
        raise answer[0]

    def _acquire(self) -> CompileWorker:
        """A free worker: a new one, where all have been busy for a while."""
        started = time.monotonic()
        with self._condition:
            while not self._is_closed:
                worker = next((it for it in self._workers if not it.is_taken), None)
                left = started + SECONDS_TO_WAIT - time.monotonic() if self._workers else 0.0
                if worker is None and left <= 0 and len(self._workers) < self._max_workers:
                    worker = CompileWorker(self._start_child)
                    self._workers.append(worker)
                if worker is not None:
                    worker.is_taken = True
                    return worker
                self._condition.wait(left if len(self._workers) < self._max_workers else None)
        raise _closed()

    def _release(self, worker: CompileWorker) -> None:
        with self._condition:
            worker.is_taken, worker.released_at = False, time.monotonic()
            self._condition.notify()
            if len(self._workers) > 1:
                self._watch_idle(SECONDS_IDLE)

    def _watch_idle(self, seconds: float) -> None:
        """Look after so many seconds for workers to stop; once for all that are released until
        then."""
        if self._watch is None:
            self._watch = threading.Timer(seconds, self._retire)
            self._watch.daemon = True
            self._watch.start()

    def _retire(self) -> None:
        """Stop the workers that have been idle for a while, except for the last."""
        ended = []
        with self._condition:
            self._watch = None
            if self._is_closed:
                return
            latest = time.monotonic() - SECONDS_IDLE
            for worker in list(self._workers):
                is_idle = not worker.is_taken and worker.released_at <= latest
                if is_idle and len(self._workers) > 1:
                    self._workers.remove(worker)
                    ended.append(worker)
            free = [it.released_at for it in self._workers if not it.is_taken]
            if len(self._workers) > 1 and free:
                self._watch_idle(max(0.0, min(free) - latest))
        for worker in ended:
            worker.end(_closed())

    def _start_child(self, niceness: int) -> Child:
        child = spawn(f"{__name__.rpartition('.')[0]}.compile_worker", str(niceness))
        sizes = np.array([len(data) for data in self._token_bytes], np.int32)
        child.connection.send(sizes.tobytes(), b"".join(self._token_bytes), self._end_ids)
        return child


class CompileWorker:
    """A child process that compiles one constraint at a time. start: starts the child, with a
    niceness beside this process: none where one before got too little processor time.

    is_taken, released_at: whether a caller has it, and when the last one had done with it, by the
      monotonic clock; kept by the pool.
    """

    def __init__(self, start: Callable[[int], Child]) -> None:
        self.is_taken, self.released_at = False, 0.0
        self._start = start
        self._lock = threading.Lock()
        self._end: ForkrootError | None = None  # after which it is closed
        self._child: Child | None = None
        self._is_starved, self._seconds = False, 0.0  # of the last request
        self._answers: Future[Any] = Future()

    @property
    def is_running(self) -> bool:
        """Whether the child was started."""
        return self._child is not None

    def request(self, description: str, *message: Any) -> tuple[Any, ...]:
        """The answer of the child, or the error that closed it. Raises TimeoutError where that
        takes too much processor time: the child is stopped. Another child takes the place of one
        that dies, or gets no processor time; after a few, the answer is Overloaded. description: of
        the constraint, for the log."""
        if self._is_starved and self._child is not None:
            _set_niceness(self._child.process.pid, NICENESS)
        self._seconds, self._is_starved = 0.0, False
        for _ in range(TRIES):
            status, *answer = self._try(description, message)
            if status != "lost":
                break
            _log.warning("%s, at %s", answer[0], description)
        return status, *answer

    def _try(self, description: str, message: tuple[Any, ...]) -> tuple[Any, ...]:
        """As `request`, by one child; "lost" and an error where that is at fault."""
        with self._lock:
            if self._end is not None:
                return "failed", self._end
            self._answers = Future()
            child = self._child
            if child is None:
                child = self._child = self._start(0 if self._is_starved else NICENESS)
                threading.Thread(target=self._read, args=(child,), daemon=True).start()
            child.connection.send(*message)
        try:
            return self._wait_for_answer(description, child.process.pid)
        except TimeoutError:
            self.stop(CallFailed("too late"))
            raise

    def _wait_for_answer(self, description: str, pid: int) -> tuple[Any, ...]:
        """The answer of the child. Raises TimeoutError."""
        started, before = time.monotonic(), cpu_seconds(pid)
        monitor, last, is_logged = LivenessMonitor(pid, SECONDS_SILENT), started, False
        while True:
            try:
                answer: tuple[Any, ...] = self._answers.result(min(SECONDS, CHECK_INTERVAL))
                return answer
            except TimeoutError:
                now, cpu = time.monotonic(), cpu_seconds(pid)
                taken = now - started if before is None else (cpu or before) - before
                if taken >= SECONDS:
                    raise
                passed = min(now - last, 2 * CHECK_INTERVAL)  # while this process runs itself
                monitor.update(passed, None, has_reported=True)
                self._seconds += passed
                is_late, last = self._seconds >= SECONDS_IN_ALL, now
                is_lost = monitor.fault() is not None
                is_starved = taken < STARVED_SHARE * (now - started)
                if is_starved and not self._is_starved and now - started >= SECONDS_STARVED:
                    self._is_starved = True
                    is_lost = is_lost or not _set_niceness(pid, 0)
                if is_late or is_lost:
                    self._is_starved = True
                    self.stop(_lost("gets too little processor time"))
                    return "failed" if is_late else "lost", _lost("gets too little processor time")
                if now - started >= SECONDS_BEFORE_LOG and not is_logged:
                    _log.info("compiling %s", description)
                    is_logged = True

    def end(self, error: ForkrootError) -> None:
        """As `stop`, for good."""
        with self._lock:
            self._end = error
        self.stop(error)

    def stop(self, error: ForkrootError, status: str = "failed") -> None:
        """Stop the child; its pending request ends in this error, or by another child where the
        status is "lost"."""
        child, self._child = self._child, None
        if child is not None:
            child.process.kill()
            child.connection.close()
            child.process.wait()
        self._set_answer((status, error))

    def _read(self, child: Child) -> None:
        with contextlib.suppress(Exception):  # invalid messages: treated as a dead child
            for answer in child.connection.messages():
                if child is self._child:
                    self._set_answer(answer)
        if child is self._child:
            self.stop(_lost("died"), "lost")

    def _set_answer(self, answer: tuple[Any, ...]) -> None:
        with contextlib.suppress(InvalidStateError):  # it is set already
            self._answers.set_result(answer)


def _set_niceness(pid: int, niceness: int) -> bool:
    """Set the niceness of a process beside this one; whether that is allowed."""
    try:
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, pid, min(_NICEST, own + niceness))
    except (OSError, AttributeError):
        return False
    return True


def _description(kind: str, source: Any) -> str:
    """What is compiled, and its size, for the log."""
    if kind == "schema":
        return f"a JSON schema ({source[0].count('{'):,} objects)"
    size = sum(map(len, source)) if kind in ("choices", "grammar") else len(source)
    return f"a constraint ({kind}, {size:,} characters)"


def _limits() -> str:
    return f"what compiles in {SECONDS} s of processor time"


def _lost(fault: str) -> Overloaded:
    return Overloaded(f"the process that compiles constraints {fault}; try again later")


def _closed() -> BackendClosed:
    return BackendClosed("the backend was closed before the constraint was compiled")


def _read(made: tuple[Any, ...]) -> Compiled:
    """The automaton that `core.process.compile_worker` serialized."""
    table, table_type, shape, accepting, start, starts, kinds, num_tokens = made
    partition = Partition(np.frombuffer(starts, np.int32), np.frombuffer(kinds, np.intp))
    cells: Any = np.frombuffer(table, table_type).reshape(shape)
    dfa = Dfa(cells, np.frombuffer(accepting, bool), start, partition)
    return Compiled(dfa, np.frombuffer(num_tokens, np.int32))
