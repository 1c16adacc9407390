"""What is known around a request while DSPy runs it: who wrote its prompt, and its siblings.

DSPy's engines see one request at a time and not the call that it belongs to. These context
variables carry the rest, in threads and tasks alike.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from dspy import Adapter, ReAct, Signature

from ....core.api.protocol import Call, Reply
from ..patterns.agents import Named


@dataclass(frozen=True, slots=True)
class Formatted:
    """A prompt and who wrote it. agent: which selects one of its tools by it; demos, inputs: what
    its prompt is made of. tools: whose calls an output is to name; is_demanded: one at least.
    messages: the very list that the adapter gave, None until then."""

    call_id: str
    adapter: Adapter
    signature: type[Signature]
    agent: ReAct | None = None
    demos: Sequence[Any] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Named, ...] = ()
    is_demanded: bool = False
    messages: Any = None


@dataclass(slots=True)
class Running:
    """One call of an LM. n: answers that DSPy will request, one after another; all come
    from one fork. formatted: who wrote its prompt."""

    n: int = 1
    formatted: Formatted | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _call: Call | None = None
    _reply: Reply | None = None
    _num_taken: int = 0

    def take(self, call: Call) -> tuple[Reply, int] | None:
        """The fork's reply and the next answer in it, if this call was forked and one is left."""
        with self._lock:
            if self._reply is None or self._call != call or self._num_taken >= self.n:
                return None
            self._num_taken += 1
            return self._reply, self._num_taken - 1

    def fork(self, call: Call, reply: Reply) -> None:
        """The reply to all answers of a call, of which the first is taken."""
        with self._lock:
            self._call, self._reply, self._num_taken = call, reply, 1

    def num_left(self) -> int:
        """Answers that are still to be requested."""
        return self.n - self._num_taken

    def forget(self) -> None:
        """The fork failed: the remaining answers are requested again."""
        with self._lock:
            self.n -= max(self._num_taken - 1, 0)
            self._call, self._reply, self._num_taken = None, None, 0


_running: ContextVar[Running | None] = ContextVar("forkroot_dspy_running", default=None)
_formatted: ContextVar[tuple[Formatted, ...]] = ContextVar("forkroot_dspy_formatted", default=())


def current() -> Running | None:
    """The LM call that runs here."""
    return _running.get()


@contextmanager
def running(n: int, messages: Any) -> Iterator[Running]:
    """An LM call runs inside."""
    last = _formatted.get()[-1:]
    is_its = bool(last) and messages is not None and last[0].messages is messages
    run = Running(n, last[0] if is_its else None)
    token = _running.set(run)
    try:
        yield run
    finally:
        _running.reset(token)


def format_begins(opened: Formatted) -> None:
    """An adapter begins to write a prompt; it may call another adapter for it."""
    open_ = tuple(entry for entry in _formatted.get() if entry.messages is None)
    _formatted.set((*open_, opened))


def last_formatted() -> Formatted | None:
    """The prompt that was written last here, whole or not."""
    return next(reversed(_formatted.get()), None)


def format_ends(call_id: str, messages: Any) -> None:
    """It has written these messages; None: it failed."""
    entries = _formatted.get()
    index = next((i for i, entry in enumerate(entries) if entry.call_id == call_id), None)
    if index is None:
        return
    mine = entries[index]
    done = replace(mine, messages=messages)
    _formatted.set((*entries[:index], done) if messages is not None else entries[:index])
