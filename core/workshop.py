"""Compiles large constraints in a child process, so that they slow no running call.

A compilation is plain Python, which would hold the interpreter against the engine's thread. The
child runs `core.compiler`; it is started by the first constraint that is too large for this
process, and stopped where one takes longer than it may.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future, TimeoutError
from typing import Any

import numpy as np

from .exits import close_at_exit
from .frames import Child, spawn
from .fsm.dfa import Dfa
from .fsm.explore import Known
from .fsm.jsontext import schema_text
from .fsm.partition import Partition
from .fsm.refusals import NotRegular
from .fsm.regular import Compiled
from .protocol import BackendClosed, CallFailed, Choices, Grammar, InvalidCall, JsonSchema, Regex

SECONDS = 10.0


class Workshop:
    """One compiler in a child process; whoever asks waits for those before. Any thread may ask.

    token_bytes, end_ids: of the vocabulary that it compiles for.
    """

    def __init__(self, token_bytes: Sequence[bytes], end_ids: Collection[int]) -> None:
        self._token_bytes = token_bytes
        self._end_ids = [token for token in end_ids if token < len(token_bytes)]
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._answers: Future[Any] = Future()
        self._is_closed = False
        close_at_exit(self)

    @property
    def is_running(self) -> bool:
        """Whether the child was started."""
        return self._child is not None

    @property
    def is_busy(self) -> bool:
        """Whether something is being compiled now."""
        return self._lock.locked()

    def compiled(self, constraint: Regex | Choices, field: str | None = None) -> Compiled:
        """The automaton of a pattern or a list of texts, called `field` (or what it is) in errors.
        Raises InvalidCall, or CallFailed where the child died."""
        match constraint:
            case Regex(pattern):
                return _read(self._ask("regex", pattern, field or "regex"))
            case Choices(options):
                return _read(self._ask("choices", options, field or "choices"))

    def plan(self, asked: JsonSchema | Grammar) -> Compiled | Known:
        """The automaton of a JSON schema, or what is known of a grammar. Raises InvalidCall or
        CallFailed."""
        if isinstance(asked, Grammar):
            kind, made = self._ask("grammar", (asked.source, asked.syntax), "grammar")
        else:
            source = schema_text(asked.schema)
            kind, made = self._ask("schema", (source, *asked.separators), "json_schema")
        return Known(*made) if kind == "known" else _read(made)

    def close(self) -> None:
        """Stop the child. Nothing in a fork of this process."""
        if os.getpid() == self._owner:
            self._is_closed = True
            self._stop()

    def _ask(self, kind: str, source: Any, field: str) -> Any:
        with self._lock:
            if self._is_closed:
                raise BackendClosed("the backend was closed before the constraint was compiled")
            child, self._answers = self._started(), Future()
            child.line.send(kind, source, field)
            try:
                status, *answer = self._answers.result(SECONDS)
            except TimeoutError:
                self._stop()
                shown = str(source[0] if kind in ("schema", "grammar") else source)[:200]
                raise InvalidCall(field, shown, f"what compiles in {SECONDS} s") from None
        if status == "made":
            return answer[0]
        if status == "not regular":
            raise NotRegular(*answer)
        raise answer[0]

    def _started(self) -> Child:
        if self._child is None:
            self._child = spawn(f"{__name__.rpartition('.')[0]}.compiler")
            threading.Thread(
                target=self._read, args=(self._child,), name="forkroot-workshop", daemon=True
            ).start()
            sizes = np.array([len(data) for data in self._token_bytes], np.int32)
            self._child.line.send(sizes.tobytes(), b"".join(self._token_bytes), self._end_ids)
        return self._child

    def _read(self, child: Child) -> None:
        for answer in child.line.messages():
            if child is self._child:
                self._answers.set_result(answer)
        if child is self._child:
            self._stop()
            if not self._answers.done():
                died = CallFailed("the process that compiles constraints died")
                self._answers.set_result(("failed", died))

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.process.kill()
            child.line.close()
            child.process.wait()


def _read(made: tuple[Any, ...]) -> Compiled:
    """What `core.compiler` wrote down."""
    table, table_type, shape, accepting, start, starts, kinds, num_tokens = made
    partition = Partition(np.frombuffer(starts, np.int32), np.frombuffer(kinds, np.intp))
    cells: Any = np.frombuffer(table, table_type).reshape(shape)
    dfa = Dfa(cells, np.frombuffer(accepting, bool), start, partition)
    return Compiled(dfa, np.frombuffer(num_tokens, np.int32))
