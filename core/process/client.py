"""A runtime in a child process: busy threads of this one do not slow it.

The child runs `core.child`. A dead child ends every open call in EngineDied, and so does one that
hangs with pending work (`core.process.liveness`): it is killed. The child ends when its parent
dies.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ..api.config import EngineConfig
from ..api.evictions import NUM_PREFIXES, EvictionReport, PrefixReport
from ..api.owner import Owner, ProcessLocal
from ..api.program_report import ProgramReport
from ..api.protocol import (
    BackendClosed,
    BackendInfo,
    Call,
    CallFailed,
    EngineDied,
    ForkrootError,
    JsonSchema,
    NodeView,
    Reply,
    check_call,
)
from ..api.reply import Mailbox
from ..common import compiling
from ..common.exits import close_at_exit
from ..fsm.json_schema.jsontext import check_size
from ..media.limits import MediaLimits
from ..media.load import load
from ..model import vision
from ..model.hub.folders import is_dummy, model_folder
from ..text.tokenizer import Tokenizer
from .ipc import Child
from .launch import start_engine
from .liveness import LivenessMonitor, checks, descendants

_SECONDS_TO_CLOSE = 10.0
_SECONDS_TO_END = 3.0  # where its engine has died, or is loading
_DEVICE_FACTOR = 10


def read_tokenizer(folder: Path, config: EngineConfig, vocabulary_size: int) -> Tokenizer:
    """The tokenizer of a checkpoint, as an engine with this config and so many tokens has it."""
    found = Tokenizer.from_folder(folder, config.plain_content)
    found.widen(vocabulary_size)
    if (processor := vision.load(folder)) is not None:
        found.take_pictures(processor, partial(load, limits=MediaLimits.of(config)))
    return found


class ProcessBackend(ProcessLocal):
    """As `Backend`, over an engine in a child process. `settings` as in EngineConfig.

    A child hangs after `hang_timeout` without a sign of life; after ten times as long where it
    answers and computes on a device, which cannot be observed. While it loads, which may take long,
    it hangs only if a signal has stopped it.

    child: a process of `launch.start_engine` for it; None: it is started here.
    is_replaced: another is started in its place if it dies; set on EngineDied. Raises
    InvalidModel for a checkpoint that cannot be run, InvalidCall for a bad setting.
    """

    def __init__(
        self, model: str | Path = "tiny", child: Child | None = None, /, **settings: Any
    ) -> None:
        self._config = EngineConfig.from_settings(settings)
        self._folder = model_folder(model)
        self._process, self._connection = child or start_engine(self._config)
        self._owner = Owner()
        self._lock = threading.Lock()
        self._open: dict[int, Mailbox] = {}
        self._ids: dict[Reply, int] = {}
        self._requests: dict[int, Future[Any]] = {}
        self._next_id = itertools.count()
        self._is_closed = self._has_died = False
        self.is_replaced = False
        self._fault: str | None = None  # for which the child was killed
        self._has_ended = threading.Event()
        self._reader = threading.Thread(target=self._read, name="forkroot-process", daemon=True)
        self._reader.start()
        self._is_loaded = False
        close_at_exit(self)
        timeout = self._config.hang_timeout
        if timeout is not None:
            threading.Thread(target=self._monitor, args=(timeout,), daemon=True).start()
        try:
            source = model if is_dummy(model) else self._folder
            self._request("start", str(source), json.dumps(settings))
        except BaseException:
            self.close()
            raise
        self._is_loaded = True

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """As the engine's own, read here at its first use."""
        return read_tokenizer(self._folder, self._config, self.info().vocabulary_size)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def submit(self, call: Call) -> Mailbox:
        """Take a call without waiting; it is checked here and prepared in the child."""
        mailbox = Mailbox(call, self.cancel)
        if not self._owner.is_here:
            mailbox.fail(self._owner.fork_error())
            return mailbox
        number = next(self._next_id)
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._open[number], self._ids[mailbox] = mailbox, number
        if is_closed:
            mailbox.fail(self._closed_error(BackendClosed.before()))
            return mailbox
        try:
            check_call(call)
            if isinstance(call.constraint, JsonSchema):
                check_size(call.constraint.schema)  # the engine's process would read it whole
            self._connection.send("submit", number, call)
        except Exception as error:
            self._forget(number)
            known = error if isinstance(error, ForkrootError) else CallFailed(repr(error))
            known.__cause__ = error if known is not error else None
            mailbox.fail(known)
        return mailbox

    def cancel(self, reply: Reply) -> None:
        """End a call early; its completion says "abort"."""
        number = self._ids.get(reply)
        if number is not None and self._owner.is_here:
            self._connection.send("cancel", number)

    def info(self) -> BackendInfo:
        """Model, counters and load of the child's engine."""
        found: BackendInfo = self._request("info")
        return replace(found, features=frozenset(found.features))

    def snapshot(
        self, max_nodes: int | None = 1000, max_tokens: int | None = 64
    ) -> tuple[NodeView, ...]:
        """The radix tree now, for pictures: its most active nodes, and the first tokens of each
        edge. None: all, which may be much to send."""
        return tuple(self._request("snapshot", max_nodes, max_tokens))

    def evictions(self, after: int = -1) -> EvictionReport:
        """What the cache has forgotten since a report that ended with this number."""
        found: EvictionReport = self._request("evictions", after)
        return found

    def prefixes(self, count: int = NUM_PREFIXES) -> PrefixReport:
        """The prefixes in the cache that were used last."""
        found: PrefixReport = self._request("prefixes", count)
        return found

    def program_report(self, tenant: str | None = None) -> ProgramReport:
        """What programs have used, by kind. tenant: of one only."""
        found: ProgramReport = self._request("program_report", tenant)
        return found

    def clear_cache(self) -> int:
        """Forget what no open call uses, pinned roots included; returns how many tokens."""
        return int(self._request("clear_cache"))

    def reset_counters(self) -> None:
        """Start the counters anew."""
        self._request("reset_counters")

    def check(self) -> None:
        """Assert that slots are conserved. For tests."""
        self._request("check")

    def close(self) -> None:
        """Stop the child; open calls end in BackendClosed. Nothing in a fork of this process."""
        if not self._owner.is_here:
            return
        with self._lock:
            self._is_closed = True
        self._connection.send("close")
        self._connection.close()
        is_at_work = self._is_loaded and not self._has_died
        try:  # one that is still loading has no call to end
            self._process.wait(_SECONDS_TO_CLOSE if is_at_work else _SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._kill_child("did not close, and was killed")
            self._process.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join()

    def _request(self, kind: str, *details: Any) -> Any:
        return self._send_request(kind, *details).result()

    def _send_request(self, kind: str, *details: Any) -> Future[Any]:
        self._owner.check()
        future: Future[Any] = Future()
        number = next(self._next_id)
        with self._lock:
            if self._is_closed:
                raise self._closed_error(BackendClosed.before())
            self._requests[number] = future
        self._connection.send(kind, number, *details)
        return future

    def _read(self) -> None:
        """Dispatch the messages of the child, until it is gone."""
        try:
            for kind, number, value in self._connection.messages():
                self._dispatch(kind, number, value)
        except Exception as error:
            self._kill_child(f"sent what cannot be read ({error!r}), and was killed")
        with self._lock:
            self._has_died = self._has_died or not self._is_closed
            self._is_closed = True
            mailboxes, requests = list(self._open.values()), list(self._requests.values())
            self._open.clear()
            self._ids.clear()
            self._requests.clear()
        self._has_ended.set()
        if self._has_died:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0 if self._fault else 1)  # for its exit code
        for mailbox in mailboxes:
            mailbox.fail(self._closed_error(BackendClosed.meanwhile()))
        for future in requests:
            future.set_exception(self._closed_error(BackendClosed.meanwhile()))

    def _dispatch(self, kind: str, number: int, value: Any) -> None:
        if isinstance(value, EngineDied):
            self._has_died = True
            self._fault = self._fault or f"ended: {value}"
            value.is_replaced = self.is_replaced
        if kind == "died":
            return
        if kind in ("result", "refused"):
            future = self._requests.pop(number)
            future.set_result(value) if kind == "result" else future.set_exception(value)
            return
        if kind == "compiling":
            compiling.show(*value)
            return
        if kind == "chunk":
            self._open[number].put(value)
            return
        mailbox = self._forget(number)
        mailbox.finish(value) if kind == "done" else mailbox.fail(value)

    def _forget(self, number: int) -> Mailbox:
        with self._lock:
            mailbox = self._open.pop(number)
            self._ids.pop(mailbox, None)
        return mailbox

    def _closed_error(self, closed: BackendClosed) -> BackendClosed:
        """The error of open calls: `closed`, or EngineDied where the child has died."""
        if not self._has_died:
            return closed
        code = self._process.poll() or 0
        ending = f"signal {-code}" if code < 0 else f"exit code {code}" if code else "it hung up"
        text = f"the engine's process {self._process.pid} {self._fault or f'died ({ending})'}"
        return EngineDied(text, self.is_replaced)

    # --- in a thread of its own ------------------------------------------------------------------

    def _monitor(self, timeout: float) -> None:
        """Kill the child and its descendants once it hangs. Its counters serve as heartbeats; an
        engine without work, whose calls are still being prepared, need not make steps."""
        monitor = LivenessMonitor(self.pid, timeout)
        heartbeat: Future[Any] | None = None
        steps, is_idle = 0.0, True
        for seconds in checks(self._has_ended, timeout):
            has_reported = (
                heartbeat is not None and heartbeat.done() and heartbeat.exception() is None
            )
            if heartbeat is not None and has_reported:
                info, heartbeat = heartbeat.result(), None
                steps = info.counters["steps"]
                is_idle = not info.load["running"] + info.load["waiting"]
            has_work = bool(self._open) or len(self._requests) > (heartbeat is not None)
            has_work &= self._is_loaded
            is_excused = not has_work or (has_reported and is_idle)
            monitor.update(seconds, steps, is_excused, has_reported)
            has_device = has_reported and self._config.device.startswith("cuda")
            if fault := monitor.fault(_DEVICE_FACTOR if has_device else 1):
                self._kill_child(f"hung ({fault})")
                return
            if heartbeat is None and has_work:
                with contextlib.suppress(BackendClosed):
                    heartbeat = self._send_request("info")

    def _kill_child(self, fault: str) -> None:
        self._fault = self._fault or fault
        children = list(descendants(self.pid))
        self._process.kill()
        for pid in children:  # a stopped one cannot notice that its parent is gone
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
