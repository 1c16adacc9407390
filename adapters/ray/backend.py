"""A backend over one actor: calls go to it in batches, and what came of them is pulled.

An actor that dies, or is silent for too long, ends every open call in EngineDied. It knows an
actor's handle and nothing of clusters.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from ...core.api.codec import pack, unpack
from ...core.api.evictions import NUM_PREFIXES, EvictionReport, PrefixReport
from ...core.api.owner import Owner, ProcessLocal
from ...core.api.program_report import ProgramReport
from ...core.api.protocol import (
    BackendClosed,
    BackendInfo,
    Call,
    CallFailed,
    EngineDied,
    ForkrootError,
    NodeView,
    Reply,
    check_call,
)
from ...core.api.reply import Mailbox

_SECONDS_TO_CLOSE = 10.0
_MOST_MESSAGES = 256  # of one batch
_log = logging.getLogger(__name__)


class ActorBackend(ProcessLocal):
    """As `Backend`, over a running `actor.EngineActor`.

    actor: its handle. name: for messages. release: called once, when the actor is to be forgotten.
    silence: seconds without an answer after which the actor counts as dead.
    is_replaced: another is started in its place if it dies; set on EngineDied.
    """

    def __init__(
        self,
        actor: Any,
        name: str,
        release: Callable[[], object],
        *,
        silence: float = 30.0,
        tokenizer: Callable[[BackendInfo], Any] | None = None,
    ) -> None:
        self._actor, self.name = actor, name
        self._release, self._silence = release, silence
        self._owner = Owner()
        self._lock = threading.Lock()
        self._open: dict[int, Mailbox] = {}
        self._numbers: dict[Reply, int] = {}
        self._next_number = itertools.count()
        self._outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_closed = False
        self._fault: str | None = None
        self.is_replaced = False
        self._tokenizer_of, self._tokenizer = tokenizer, None
        self._sender = threading.Thread(target=self._send, name=f"forkroot-{name}", daemon=True)
        self._puller = threading.Thread(target=self._pull, name=f"forkroot-{name}", daemon=True)
        self._sender.start()
        self._puller.start()

    @property
    def tokenizer(self) -> Any:
        """The model's, read here. Raises AttributeError where its files are not here."""
        if self._tokenizer is None and self._tokenizer_of is not None:
            self._tokenizer = self._tokenizer_of(self.info())
        if self._tokenizer is None:
            raise AttributeError("the model's files are not on this machine")
        return self._tokenizer

    def submit(self, call: Call) -> Mailbox:
        """Take a call without waiting; it is checked here and prepared in the actor."""
        mailbox = Mailbox(call, self.cancel)
        if not self._owner.is_here:
            mailbox.fail(self._owner.fork_error())
            return mailbox
        try:
            check_call(call)
            packed = pack(call)
        except Exception as error:
            known = error if isinstance(error, ForkrootError) else CallFailed(repr(error))
            mailbox.fail(known)
            return mailbox
        number = next(self._next_number)
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._open[number], self._numbers[mailbox] = mailbox, number
                self._outbox.put(("submit", number, packed))
        if is_closed:
            mailbox.fail(self._closed_error(BackendClosed.before()))
        return mailbox

    def cancel(self, reply: Reply) -> None:
        """End a call early; its completion says "abort"."""
        number = self._numbers.get(reply)
        if number is not None and self._owner.is_here:
            self._outbox.put(("cancel", number))

    def info(self) -> BackendInfo:
        """As the actor's backend reports it. Raises EngineDied where there is none any more."""
        found: BackendInfo = self.ask("info")
        return replace(found, features=frozenset(found.features))

    def snapshot(
        self, max_nodes: int | None = 1000, max_tokens: int | None = 64
    ) -> tuple[NodeView, ...]:
        """The radix tree of the actor's engine."""
        return tuple(self.ask("snapshot", max_nodes, max_tokens))

    def evictions(self, after: int = -1) -> EvictionReport:
        """What the cache has forgotten since a report that ended with this number."""
        found: EvictionReport = self.ask("evictions", after)
        return found

    def prefixes(self, count: int = NUM_PREFIXES) -> PrefixReport:
        """The prefixes in the cache that were used last."""
        found: PrefixReport = self.ask("prefixes", count)
        return found

    def program_report(self, tenant: str | None = None) -> ProgramReport:
        """What programs have used, by kind. tenant: of one only."""
        found: ProgramReport = self.ask("program_report", tenant)
        return found

    def clear_cache(self) -> int:
        """Forget what no open call uses; returns how many tokens."""
        return int(self.ask("clear_cache"))

    def reset_counters(self) -> None:
        """Start the counters anew."""
        self.ask("reset_counters")

    def check(self) -> None:
        """Assert that slots are conserved. For tests."""
        self.ask("check")

    def ask(self, kind: str, *details: Any) -> Any:
        """What that method of the actor's backend gives. Raises its errors, and EngineDied."""
        self._owner.check()
        if self._is_closed:
            raise self._closed_error(BackendClosed.before())
        answer = self._actor.ask.remote(kind, pack(details))
        try:
            found = unpack(ray.get(answer, timeout=self._silence))
        except (RayError, ConnectionError) as error:
            self._end(f"does not answer ({_short(error)})")
            raise self._closed_error(BackendClosed.meanwhile()) from error
        if isinstance(found, EngineDied):
            found.is_replaced = self.is_replaced
        if isinstance(found, ForkrootError):
            raise found
        return found

    def close(self) -> None:
        """End the actor; open calls end in BackendClosed. Nothing in a fork of this process."""
        if not self._owner.is_here:
            return
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        if is_first and ray.is_initialized():
            try:
                ray.get(self._actor.close.remote(), timeout=_SECONDS_TO_CLOSE)
            except (RayError, ConnectionError) as error:
                _log.debug("%s did not close: %s", self.name, error)
        self._finish()

    # --- in threads of their own -----------------------------------------------------------------

    def _send(self) -> None:
        """Send what has been put into the outbox, all that is there together."""
        while (first := self._outbox.get()) is not None:
            batch = [first, *self._others()]
            is_last = batch[-1] is None
            try:
                self._actor.take.remote(pack(batch[:-1] if is_last else batch))
            except (RayError, ConnectionError) as error:
                self._end(f"takes no calls ({_short(error)})")
            if is_last:
                return

    def _others(self) -> Iterator[Any]:
        for _ in range(_MOST_MESSAGES):
            try:
                message = self._outbox.get_nowait()
            except queue.Empty:
                return
            yield message
            if message is None:
                return

    def _pull(self) -> None:
        """Pull what the actor has, until it is gone or closed."""
        while not self._is_closed:
            try:
                events = unpack(ray.get(self._actor.pull.remote(), timeout=self._silence))
            except GetTimeoutError:
                self._end(f"was silent for {self._silence:g} s")
            except (RayError, ConnectionError, ValueError) as error:
                self._end(f"has died ({_short(error)})")
            else:
                for number, kind, value in events:
                    self._dispatch(number, kind, value)

    def _dispatch(self, number: int, kind: str, value: Any) -> None:
        if kind == "chunks":
            if (mailbox := self._open.get(number)) is not None:
                for chunk in value:
                    mailbox.put(chunk)
            return
        with self._lock:
            ended = self._open.pop(number, None)
            if ended is not None:
                self._numbers.pop(ended, None)
        if ended is None:
            return
        if kind == "done":
            ended.finish(value)
            return
        if isinstance(value, EngineDied):
            value.is_replaced = self.is_replaced
        ended.fail(value)

    def _end(self, fault: str) -> None:
        """The actor is gone: end all that is open."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed, self._fault = True, fault
        self._finish()

    def _finish(self) -> None:
        with self._lock:
            mailboxes = list(self._open.values())
            self._open.clear()
            self._numbers.clear()
            release, self._release = self._release, _nothing
        self._outbox.put(None)
        for mailbox in mailboxes:
            mailbox.fail(self._closed_error(BackendClosed.meanwhile()))
        release()

    def _closed_error(self, error: BackendClosed) -> BackendClosed:
        if self._fault is None:
            return error
        return EngineDied(f"the actor {self.name} {self._fault}", self.is_replaced)


def _nothing() -> None:
    """Nothing is left to release."""


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]:.120}" if lines else type(error).__name__
