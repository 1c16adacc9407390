"""The composition root: a whole runtime in this process, and the thread that drives it.

Joins tokenizer, model, cache, scheduler and engine; what they do is in their own rooms.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch

from .advance import Advancer
from .config import EngineConfig
from .engine import Counters, Engine, Runner
from .forks import Roots
from .fsm.constraints import Constraints
from .intake import Intake
from .model.config import ModelConfig
from .model.llama import load_model
from .model.parallel import Ranks
from .model.runner import ModelRunner
from .protocol import (
    BackendClosed,
    BackendInfo,
    Call,
    CallFailed,
    ForkrootError,
    InvalidCall,
    InvalidModel,
    Reply,
)
from .radix.cache import RadixCache
from .radix.node import NodeView
from .reply import Mailbox
from .scheduler import Scheduler
from .sequence import Job
from .tokenizer import Tokenizer
from .waiting import WaitingQueue

T = TypeVar("T")
_log = logging.getLogger(__name__)
EMBEDDED = "tiny"
_FEATURES = frozenset({"tokens", "options", "hints", "constraints"})


class LocalBackend:
    """An engine in this process, behind the door. Every method may be called from any thread.

    name: of the model. config: resolved.
    """

    def __init__(
        self,
        name: str,
        config: EngineConfig,
        tokenizer: Tokenizer,
        runner: Runner,
        vocabulary_size: int,
        end_ids: frozenset[int],
    ) -> None:
        assert config.num_slots is not None and config.context_len is not None
        self.name = name
        self.config = config
        self.tokenizer = tokenizer
        constraints = Constraints(tokenizer.token_bytes, end_ids, tokenizer.encode_after)
        self._intake = Intake(
            tokenizer,
            config.context_len,
            config.num_slots,
            vocabulary_size,
            end_ids,
            config.seed,
            constraints,
        )
        self._engine, self._cache = build_engine(config, tokenizer, runner, constraints)
        self._jobs: dict[Reply, Job] = {}
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._is_closing = self._is_shut = False
        self._cause: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="forkroot-engine", daemon=True)
        self._thread.start()
        atexit.register(_close, weakref.ref(self))

    @classmethod
    def from_folder(cls, model: str | Path = EMBEDDED, **settings: Any) -> LocalBackend:
        """Load a checkpoint folder ("tiny": the embedded model); `settings` as in EngineConfig.

        Raises InvalidModel for a checkpoint that cannot be run, InvalidCall for a bad setting.
        """
        config = EngineConfig.from_settings(settings)
        folder = model_folder(model)
        described = ModelConfig.from_folder(folder)
        tokenizer = Tokenizer.from_folder(folder)
        dtype_name = "float32" if config.dtype == "auto" else config.dtype
        dtype = getattr(torch, dtype_name)
        config = config.resolve(
            described.context_len, described.kv_bytes_per_token(dtype_name), _spare_memory()
        )
        loaded = load_model(str(folder), described, dtype, _device(config.device), Ranks())
        assert config.num_slots is not None
        runner = ModelRunner(loaded, config.num_slots)
        end_ids = frozenset(described.eos_ids)
        return cls(folder.name, config, tokenizer, runner, described.vocabulary_size, end_ids)

    def submit(self, call: Call) -> Mailbox:
        """Take a call without waiting; it is checked and tokenized in this thread."""
        mailbox = Mailbox(call, self.cancel)
        try:
            job = self._intake.job(call, mailbox)
        except ForkrootError as error:
            mailbox.fail(error)
        except Exception as error:
            failure = CallFailed(f"the call could not be prepared: {error!r}")
            failure.__cause__ = error
            mailbox.fail(failure)
        else:
            self._jobs[mailbox] = job
            mailbox.when_done(self._forget)
            if not self._post(lambda: self._engine.admit(job)):
                mailbox.fail(self._closed())
        return mailbox

    def cancel(self, reply: Reply) -> None:
        """End a call early; its completion says "abort"."""
        job = self._jobs.get(reply)
        if job is not None:
            self._post(lambda: self._engine.abort(job))

    def info(self) -> BackendInfo:
        """What runs here, and the engine's counters."""
        return BackendInfo(
            model=self.name,
            context_len=self._intake.context_len,
            vocabulary_size=self._intake.vocabulary_size,
            features=_FEATURES,
            counters=asdict(self._engine.counters),
        )

    def snapshot(self) -> tuple[NodeView, ...]:
        """The radix tree now, for pictures."""
        return self._ask(self._cache.snapshot)

    def clear_cache(self) -> int:
        """Forget what no open call uses; returns how many tokens."""
        return self._ask(self._engine.clear_cache)

    def reset_counters(self) -> None:
        """Start the counters anew."""
        self._ask(lambda: setattr(self._engine, "counters", Counters()))

    def check(self) -> None:
        """Assert that slots are conserved. For tests."""
        self._ask(self._engine.check)

    def close(self) -> None:
        """Stop the engine; open calls end in BackendClosed."""
        self._is_closing = True
        self._post(_nothing)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> LocalBackend:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _post(self, action: Callable[[], None]) -> bool:
        """Let the engine's thread do this between two steps; False: it has shut."""
        with self._gate:
            if not self._is_shut:
                self._inbox.put(action)
            return not self._is_shut

    def _ask(self, question: Callable[[], T]) -> T:
        """What `question()` gives in the engine's thread."""
        if threading.current_thread() is self._thread:
            return question()
        future: Future[T] = Future()

        def answer() -> None:
            try:
                future.set_result(question())
            except Exception as error:
                future.set_exception(error)

        if not self._post(answer):
            raise self._closed()
        return future.result()

    def _loop(self) -> None:
        try:
            while not self._is_closing:
                self._drain()
                if self._engine.has_work and not self._is_closing:
                    self._engine.step()
        except BaseException as error:  # whatever it was: calls must end, and later ones learn why
            _log.exception("the engine died")
            self._cause = error
        self._shut()

    def _shut(self) -> None:
        """End every open call, in whatever state the engine is."""
        with self._gate:
            self._is_shut = True
        while not self._inbox.empty():
            with contextlib.suppress(Exception):  # a dead engine may refuse; questions get answers
                self._inbox.get()()
        for job in list(self._jobs.values()):
            job.mailbox.fail(self._closed())

    def _drain(self) -> None:
        """Do what was posted; wait for something to do while the engine is idle."""
        if not self._engine.has_work:
            due = self._engine.next_event()
            try:
                action = self._inbox.get(timeout=None if due is None else 0.1)
            except queue.Empty:
                action = _nothing
            action()
            self._engine.expire_roots()
        while not self._inbox.empty():
            self._inbox.get()()

    def _forget(self, reply: Reply) -> None:
        self._jobs.pop(reply, None)

    def _closed(self) -> BackendClosed:
        if self._cause is None:
            return BackendClosed("the backend was closed before the call ended")
        error = BackendClosed(f"the engine died: {self._cause!r}")
        error.__cause__ = self._cause
        return error


def build_engine(
    config: EngineConfig,
    tokenizer: Tokenizer,
    runner: Runner,
    constraints: Constraints | None = None,
) -> tuple[Engine, RadixCache]:
    """The engine of a resolved config around a runner, and its cache."""
    assert config.num_slots is not None and config.context_len is not None
    cache = RadixCache(config.num_slots, is_enabled=config.cache)
    roots = Roots(cache, config.root_timeout)
    waiting = WaitingQueue(
        config.order,
        ageing=config.ageing,
        context_len=config.context_len,
        hold_min=config.hold_min,
        seed=config.seed,
    )
    scheduler = Scheduler(
        cache,
        roots,
        waiting,
        max_running=config.max_running,
        context_len=config.context_len,
        chunk_tokens=config.chunk_tokens,
    )
    engine = Engine(
        scheduler,
        runner,
        cache,
        roots,
        Advancer(tokenizer, constraints, config.jumps),
        max_waiting=config.max_waiting,
        hints=config.hints and config.cache,
    )
    return engine, cache


def model_folder(model: str | Path) -> Path:
    """The folder of a checkpoint: a path, or "tiny" for the one in the box."""
    folder = Path(model)
    if str(model) == EMBEDDED and not folder.is_dir():
        return Path(__file__).parent.parent / "models" / EMBEDDED
    if not folder.is_dir():
        raise InvalidModel(
            f"model={str(model)!r} is not a folder; allowed: a checkpoint folder, or 'tiny'"
        )
    return folder


def _device(name: str) -> torch.device:
    """The device of a setting. Raises InvalidCall for one that is not here."""
    count = torch.cuda.device_count()
    here = ["cpu", *(["cuda"] if count else []), *(f"cuda:{index}" for index in range(count))]
    if name not in here:
        raise InvalidCall("device", name, ", ".join(here))
    return torch.device(name)


def _spare_memory() -> int:
    """Bytes that the pool may take: a quarter of what is free now."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


def _nothing() -> None:
    """Wakes the loop."""


def _close(backend: weakref.ref[LocalBackend]) -> None:
    alive = backend()
    if alive is not None:
        alive.close()
