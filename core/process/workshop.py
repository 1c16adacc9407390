"""Compiles large constraints in child processes, so that they slow no running call.

A compilation is plain Python, which would hold the interpreter against the engine's thread. A child
runs `core.process.compiler`; it is started by the first constraint that is too large for this
process, and stopped where one takes longer than it may. Where that one keeps others waiting, a
second child serves them, and goes when it has had nothing to do for a while: never are there more.
"""

from __future__ import annotations

import contextlib
import logging
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
    Regex,
)
from ..common.exits import close_at_exit
from ..fsm.distinct import Unrepeated
from ..fsm.grammar.explore import Known
from ..fsm.json_schema.jsontext import schema_text
from ..fsm.json_schema.shapes import Shape
from ..fsm.regex.dfa import Dfa
from ..fsm.regex.errors import NotRegular
from ..fsm.regex.partition import Partition
from ..fsm.tokens.regular import Compiled
from .frames import Child, spawn
from .watch import spent

SECONDS = 12.0  # of the child's processor time, for one constraint
SECONDS_IN_ALL = 60.0  # for one constraint where other programs keep the processor
SECONDS_UNSAID = 2.0  # before the log says what is being compiled
SECONDS_BETWEEN = 0.25  # two looks at the child's time
SECONDS_TO_WAIT = 1.0  # before another child is started
SECONDS_IDLE = 30.0  # before it is stopped
MOST = 2
_log = logging.getLogger("forkroot.constraints")


class Workshop:
    """One or two compilers in child processes. Any thread may ask.

    token_bytes, end_ids: of the vocabulary that they compile for.
    """

    def __init__(self, token_bytes: Sequence[bytes], end_ids: Collection[int]) -> None:
        self._token_bytes = token_bytes
        self._end_ids = [token for token in end_ids if token < len(token_bytes)]
        self._owner = Owner()
        self._gate = threading.Condition()
        self._benches: list[Bench] = []
        self._is_closed = False
        close_at_exit(self)

    @property
    def is_running(self) -> bool:
        """Whether a child was started."""
        return any(bench.is_running for bench in list(self._benches))

    @property
    def is_busy(self) -> bool:
        """Whether whoever asks now has to wait for another."""
        benches = list(self._benches)
        return bool(benches) and all(bench.is_taken for bench in benches)

    def compiled(self, constraint: Regex | Choices, field: str | None = None) -> Compiled:
        """The automaton of a pattern or a list of texts, called `field` (or what it is) in errors.
        Raises InvalidCall, or CallFailed where the child died."""
        match constraint:
            case Regex(pattern):
                return _read(self._ask("regex", pattern, field or "regex"))
            case Choices(options):
                return _read(self._ask("choices", options, field or "choices"))

    def plan(self, asked: JsonSchema | Grammar) -> Compiled | Known | Unrepeated:
        """The automaton of a JSON schema, or what is known of a grammar. Raises InvalidCall or
        CallFailed."""
        if isinstance(asked, Grammar):
            kind, made, rows = self._ask("grammar", (asked.source, asked.syntax), "grammar")
        else:
            source = schema_text(asked.schema)
            kind, made, rows = self._ask("schema", (source, *asked.separators), "json_schema")
        plan = Known(*made) if kind == "known" else _read(made)
        return Unrepeated(plan, tuple(Shape(*row) for row in rows)) if rows else plan

    def close(self) -> None:
        """Stop the children; what they compile ends in BackendClosed. Nothing in a fork of this
        process."""
        if not self._owner.is_here:
            return
        with self._gate:
            self._is_closed = True
            benches = list(self._benches)
            self._gate.notify_all()
        for bench in benches:
            bench.end(_closed())

    def _ask(self, kind: str, source: Any, field: str) -> Any:
        bench = self._acquire()
        try:
            status, *answer = bench.ask(_described(kind, source), kind, source, field)
        except TimeoutError:
            shown = str(source[0] if kind in ("schema", "grammar") else source)[:200]
            raise InvalidCall(field, shown, _allowed()) from None
        finally:
            self._release(bench)
        if status == "made":
            return answer[0]
        if status == "not regular":
            raise NotRegular(*answer)
        raise answer[0]

    def _acquire(self) -> Bench:
        """A bench that is free: a new one, where all that there are have not been for long."""
        begun = time.monotonic()
        with self._gate:
            while not self._is_closed:
                bench = next((it for it in self._benches if not it.is_taken), None)
                left = begun + SECONDS_TO_WAIT - time.monotonic() if self._benches else 0.0
                if bench is None and left <= 0 and len(self._benches) < MOST:
                    bench = Bench(self._started)
                    self._benches.append(bench)
                if bench is not None:
                    bench.is_taken = True
                    bench.num_taken += 1
                    return bench
                self._gate.wait(left if len(self._benches) < MOST else None)
        raise _closed()

    def _release(self, bench: Bench) -> None:
        with self._gate:
            bench.is_taken = False
            self._gate.notify()
            if len(self._benches) > 1:
                retire = threading.Timer(SECONDS_IDLE, self._retire, (bench, bench.num_taken))
                retire.daemon = True
                retire.start()

    def _retire(self, bench: Bench, num_taken: int) -> None:
        """Stop a bench that nobody has taken since, but for the last."""
        with self._gate:
            if bench.num_taken != num_taken or len(self._benches) == 1 or self._is_closed:
                return
            self._benches.remove(bench)
        bench.end(_closed())

    def _started(self) -> Child:
        child = spawn(f"{__name__.rpartition('.')[0]}.compiler")
        sizes = np.array([len(data) for data in self._token_bytes], np.int32)
        child.line.send(sizes.tobytes(), b"".join(self._token_bytes), self._end_ids)
        return child


class Bench:
    """A child, asked one thing at a time by whoever has taken it. start: starts one.

    is_taken, num_taken: whether it is, and how often it was; of the workshop.
    """

    def __init__(self, start: Callable[[], Child]) -> None:
        self.is_taken, self.num_taken = False, 0
        self._start = start
        self._lock = threading.Lock()
        self._end: ForkrootError | None = None  # which it came to
        self._child: Child | None = None
        self._answers: Future[Any] = Future()

    @property
    def is_running(self) -> bool:
        """Whether the child was started."""
        return self._child is not None

    def ask(self, what: str, *question: Any) -> tuple[Any, ...]:
        """What the child answers, or what it ended in. Raises TimeoutError for what takes too long:
        the child is stopped. what: is being compiled, as the log says where it takes long."""
        with self._lock:
            if self._end is not None:
                return "failed", self._end
            self._answers = Future()
            if self._child is None:
                self._child = self._start()
                reader = threading.Thread(target=self._read, args=(self._child,), daemon=True)
                reader.start()
            self._child.line.send(*question)
        try:
            return self._answer(what, self._child.process.pid)
        except TimeoutError:
            self.stop(CallFailed("too late"))
            raise

    def _answer(self, what: str, pid: int) -> tuple[Any, ...]:
        """What the child answers. Raises TimeoutError."""
        begun, before = time.monotonic(), spent(pid)
        is_said = False
        while True:
            try:
                answer: tuple[Any, ...] = self._answers.result(min(SECONDS, SECONDS_BETWEEN))
                return answer
            except TimeoutError:
                waited, now = time.monotonic() - begun, spent(pid)
                taken = waited if before is None or now is None else now - before
                if min(taken, waited) >= SECONDS or waited >= SECONDS_IN_ALL:
                    raise
                if waited >= SECONDS_UNSAID and not is_said:
                    _log.info("compiling %s", what)
                    is_said = True

    def end(self, error: ForkrootError) -> None:
        """As `stop`, for good."""
        with self._lock:
            self._end = error
        self.stop(error)

    def stop(self, error: ForkrootError) -> None:
        """Stop the child; what it was asked ends in this error."""
        child, self._child = self._child, None
        if child is not None:
            child.process.kill()
            child.line.close()
            child.process.wait()
        self._tell(("failed", error))

    def _read(self, child: Child) -> None:
        for answer in child.line.messages():
            if child is self._child:
                self._tell(answer)
        if child is self._child:
            self.stop(CallFailed("the process that compiles constraints died"))

    def _tell(self, answer: tuple[Any, ...]) -> None:
        with contextlib.suppress(InvalidStateError):  # it was told already
            self._answers.set_result(answer)


def _described(kind: str, source: Any) -> str:
    """What is compiled, and how large it is."""
    if kind == "schema":
        return f"a JSON schema ({source[0].count('{'):,} objects)"
    size = sum(map(len, source)) if kind in ("choices", "grammar") else len(source)
    return f"a constraint ({kind}, {size:,} characters)"


def _allowed() -> str:
    return f"what compiles in {SECONDS} s of processor time and in {SECONDS_IN_ALL} s in all"


def _closed() -> BackendClosed:
    return BackendClosed("the backend was closed before the constraint was compiled")


def _read(made: tuple[Any, ...]) -> Compiled:
    """What `core.process.compiler` wrote down."""
    table, table_type, shape, accepting, start, starts, kinds, num_tokens = made
    partition = Partition(np.frombuffer(starts, np.int32), np.frombuffer(kinds, np.intp))
    cells: Any = np.frombuffer(table, table_type).reshape(shape)
    dfa = Dfa(cells, np.frombuffer(accepting, bool), start, partition)
    return Compiled(dfa, np.frombuffer(num_tokens, np.int32))
