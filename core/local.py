"""The composition root: a whole runtime in this process, and the thread that drives it.

Joins tokenizer, model, cache, scheduler and engine; what they do is in their own packages.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from ..kernels.devices import why_no_gpu
from .api.config import EngineConfig
from .api.evictions import NUM_PREFIXES, EvictionReport, PrefixReport
from .api.media import Media, MediaProcessor
from .api.owner import Owner, ProcessLocal, first_owner
from .api.program_report import ProgramReport
from .api.protocol import (
    BackendClosed,
    BackendInfo,
    Call,
    EngineDied,
    InvalidCall,
    NodeView,
    Reply,
)
from .api.reply import Mailbox
from .assembly import build_engine
from .common.counters import Counters
from .common.exits import close_at_exit
from .common.fair_executor import FairExecutor
from .common.memory import available_memory
from .engine.inbox import Inbox
from .engine.input import InputProcessor
from .engine.overlap import Runner
from .engine.pending_calls import PendingCalls
from .engine.pictures.pool import PicturePool
from .engine.pictures.prompt import Source
from .fsm.constraints import Constraints
from .media.limits import MediaLimits
from .media.load import load as load_media
from .model import vision
from .model.checkpoint import load as checkpoints
from .model.checkpoint.load import Described, auto_dtype, check_shares, describe
from .model.checkpoint.loops import precompiled
from .model.checkpoint.memory import Load, largest_load, working_bytes
from .model.config import DTYPE_BYTES
from .model.hub.folders import EMBEDDED, is_dummy, model_folder, model_name
from .model.parallel import Ranks
from .model.runner.ranks import RankedRunner, join
from .process.compile_pool import CompilePool, compilers
from .process.ipc import Child
from .process.ranks import OtherRanks
from .rank import load_runner
from .text.tokenizer import Tokenizer

T = TypeVar("T")
_log = logging.getLogger(__name__)
_GPU_SHARE = 0.97
_GPU_RUNNING, _GPU_CHUNK = 256, 8192  # of a step, by default at most
_LEAST_RUNNING, _LEAST_CHUNK = 64, 1024  # of a step on a GPU
_FORKED = "True, as this process is a fork of one with an engine, and has none of torch's threads"
_FEATURES = frozenset({"tokens", "options", "hints", "constraints"})


class LocalBackend(ProcessLocal):
    """An engine in this process, as a `Backend`. Every method may be called from any thread.

    name: of the model. config: resolved. processor: of pictures, where the model takes them; load
      decodes these.
    """

    def __init__(
        self,
        name: str,
        config: EngineConfig,
        tokenizer: Tokenizer,
        runner: Runner,
        vocabulary_size: int,
        end_ids: frozenset[int],
        close_runner: Callable[[], None] | None = None,
        processor: MediaProcessor | None = None,
        load: Callable[[Source], Media] | None = None,
    ) -> None:
        assert config.num_slots is not None and config.context_len is not None
        self._owner = Owner()
        self._inbox = Inbox()
        self.name = name
        self.config = config
        self.tokenizer = tokenizer
        most = compilers()
        self._compile_pool = CompilePool(tokenizer.token_bytes, end_ids, most)
        self._compile_queue = FairExecutor(
            most, "forkroot-compile", most - 1, self._compile_pool.abandon
        )
        constraints = Constraints(
            *(tokenizer.token_bytes, end_ids, tokenizer.encode_after, self._compile_pool),
            *(config.constraint, self._compile_queue, config.constraint_bytes),
        )
        self._compiling = constraints.guides.seconds
        self._pictures = self._picture_pool(processor, load, vocabulary_size)
        self._features = _FEATURES
        if self._pictures is not None:
            self._features |= self._pictures.features
        self._input_processor = InputProcessor(
            tokenizer,
            config.context_len,
            config.num_slots,
            vocabulary_size,
            end_ids,
            config.seed,
            constraints,
            config.exact_nodes,
            self._pictures,
        )
        prepare = None if self._pictures is None else self._pictures.prepare
        self._engine, self._cache = build_engine(config, tokenizer, runner, constraints, prepare)
        self._close_runner = close_runner or _nothing
        self._is_closing = False
        self._cause: BaseException | None = None
        self._pending_calls = PendingCalls(
            *(self._input_processor, self._engine, self._inbox),
            lambda: self._end(BackendClosed.before()),
        )
        self._thread = threading.Thread(target=self._loop, name="forkroot-engine", daemon=True)
        self._thread.start()
        if isinstance(runner, RankedRunner):
            runner.when_gone(lambda: self._inbox.post(runner.check))  # it ends an idle engine, too
        close_at_exit(self)

    def _picture_pool(
        self,
        processor: MediaProcessor | None,
        load: Callable[[Source], Media] | None,
        vocabulary_size: int,
    ) -> PicturePool | None:
        """Where pictures are decoded, which prompts may hold from now on; None: no processor."""
        if processor is None or load is None:
            return None
        self.tokenizer.take_pictures(processor, load)
        most, wake = self.config.feature_slots, partial(self._inbox.post, _nothing)
        return PicturePool(processor, load, vocabulary_size, most, wake)

    @classmethod
    def from_folder(
        cls, model: str | Path = EMBEDDED, ranks_started: Sequence[Child] = (), /, **settings: Any
    ) -> LocalBackend:
        """Load a checkpoint folder, or a hub model by its name ("tiny": the embedded model;
        "dummy:llama-2-7b" and its like: weights that mean nothing); `settings` as in EngineConfig.
        ranks_started: processes for its other ranks; the backend closes them.

        Raises InvalidModel for a checkpoint that cannot be run, InvalidCall for a bad setting.
        """
        config = EngineConfig.from_settings(settings)
        if not first_owner().is_here and torch.get_num_threads() > 1:  # torch would wait for them
            raise InvalidCall("process", False, _FORKED)
        folder = model_folder(model)
        source = str(model) if is_dummy(model) else str(folder)
        described = describe(source)
        end_ids, size = frozenset(described.eos_ids), described.vocabulary_size
        tokenizer = Tokenizer.from_folder(folder, config.plain_content)
        tokenizer.widen(size)
        config = fitted(config, described)
        assert config.context_len is not None
        described = replace(described, context_len=config.context_len)
        options = config.dtype, config.device, config.attention_kind, config.ranks
        with precompiled(described, *options):
            runner, close = _load(source, described, config, ranks_started)
        load = partial(load_media, limits=MediaLimits.of(config))
        parts = tokenizer, runner, size, end_ids, close, vision.load(folder), load
        return cls(model_name(source), config, *parts)

    def submit(self, call: Call, mailbox: Mailbox | None = None) -> Mailbox:
        """Take a call without waiting; it is checked and tokenized in this thread, and held while
        its constraint is compiled. Its answer goes into a mailbox that is given, or into a new
        one."""
        mailbox = mailbox or Mailbox(call, self.cancel)
        if self._owner.is_here:
            self._pending_calls.take(call, mailbox)
        else:
            mailbox.fail(self._owner.fork_error())
        return mailbox

    def cancel(self, reply: Reply) -> None:
        """End a call early; its completion says "abort"."""
        if self._owner.is_here:
            self._pending_calls.cancel(reply)

    def info(self) -> BackendInfo:
        """What runs here, the engine's counters and its load, also after `close`. Raises EngineDied
        once the engine has died."""
        if self._cause is not None:
            raise self._end(BackendClosed.before())
        inputs, counters = self._input_processor, self._engine.counters.as_dict()
        counters |= self._compiling.as_dict("compile_seconds")
        if self._pictures is not None:
            counters |= self._pictures.counters
        sizes = inputs.context_len, inputs.vocabulary_size
        return BackendInfo(self.name, *sizes, self._features, counters, self._engine.load())

    def snapshot(
        self, max_nodes: int | None = None, max_tokens: int | None = None
    ) -> tuple[NodeView, ...]:
        """The radix tree now, for pictures: all of it, or its most active nodes and the first
        tokens of each edge."""
        return self._run_in_engine(lambda: self._cache.snapshot(max_nodes, max_tokens))

    def evictions(self, after: int = -1) -> EvictionReport:
        """What the cache has forgotten since a report that ended with this number."""
        return self._cache.evictions(after)

    def prefixes(self, count: int = NUM_PREFIXES) -> PrefixReport:
        """The prefixes in the cache that were used last."""
        return self._run_in_engine(lambda: self._cache.prefixes(count))

    def program_report(self, tenant: str | None = None) -> ProgramReport:
        """What programs have used, by kind, and how good their hints were. tenant: of one only."""
        return self._run_in_engine(lambda: self._engine.program_report(tenant))

    def clear_cache(self) -> int:
        """Forget what no open call uses, pinned roots included; returns how many tokens."""
        return self._run_in_engine(self._engine.clear_cache)

    def reset_counters(self) -> None:
        """Start the counters anew."""
        self._compiling.clear()
        self._run_in_engine(lambda: setattr(self._engine, "counters", Counters()))

    def check(self) -> None:
        """Assert that slots are conserved. For tests."""
        self._run_in_engine(self._engine.check)

    def close(self) -> None:
        """Stop the engine; open calls end in BackendClosed. Nothing in a fork of this process."""
        if not self._owner.is_here:
            return
        self._is_closing = True
        self._inbox.post(_nothing)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def wait(self) -> EngineDied | None:
        """Wait until the engine has ended and all that it started is stopped. Returns the error of
        an engine that has died; None where it was closed."""
        self._thread.join()
        error = self._end(BackendClosed.before())
        return error if isinstance(error, EngineDied) else None

    def _run_in_engine(self, action: Callable[[], T]) -> T:
        """Run the action in the engine's thread, and return its result."""
        if threading.current_thread() is self._thread:
            return action()
        self._owner.check()
        future: Future[T] = Future()

        def answer() -> None:
            try:
                future.set_result(action())
            except Exception as error:
                future.set_exception(error)

        if not self._inbox.post(answer):
            raise self._end(BackendClosed.before())
        return future.result()

    def _loop(self) -> None:
        try:
            while not self._is_closing:
                if not self._engine.has_work:
                    self._idle()
                self._inbox.drain()
                self._pending_calls.expire()
                if self._engine.has_work and not self._is_closing:
                    self._step()
        except BackendClosed as error:
            _log.error("the engine ended: %s", error)
            self._cause = error
        except BaseException as error:  # of any kind: calls must end, and later ones get the cause
            _log.exception("the engine died")
            self._cause = error
        self._end_all()

    def _end_all(self) -> None:
        """End every open call, in whatever state the engine is."""
        self._inbox.close()
        while self._inbox.has_actions:
            with contextlib.suppress(Exception):  # a dead engine may raise
                self._inbox.wait(0)
        for mailbox in self._pending_calls.open:
            mailbox.fail(self._end(BackendClosed.meanwhile()))
        pictures = () if self._pictures is None else (self._pictures.close,)
        closes = self._close_runner, self._compile_pool.close, self._compile_queue.close
        for close in (*closes, *pictures):
            try:
                close()
            except Exception:
                _log.exception("a part of the engine could not be stopped")

    def _idle(self) -> None:
        """Wait for something to do."""
        is_due = self._engine.next_event() is not None or self._pending_calls.has_deadline
        self._inbox.wait(0.1 if is_due else None)
        self._engine.expire_roots()

    def _step(self) -> None:
        """One step; if calls ended in it, their callers may call again before the next one."""
        num_ended, started = self._pending_calls.num_ended, time.monotonic()
        self._engine.step()
        if self._engine.is_waiting:  # for pixels or calls, whose coming posts an action
            self._inbox.wait(0.01)
        num_ended = self._pending_calls.num_ended - num_ended
        if num_ended and not self.config.has_overlap:  # else a device waits as well
            num_open = self._pending_calls.num_open + num_ended
            self._inbox.wait_for_calls(num_ended, num_open, time.monotonic() - started)

    def _end(self, closed: BackendClosed) -> BackendClosed:
        """The error of open calls: `closed`, or EngineDied where the engine has died."""
        if self._cause is None:
            return closed
        error = EngineDied(f"the engine died: {self._cause!r}")
        error.__cause__ = self._cause
        return error


def fitted(config: EngineConfig, described: Described) -> EngineConfig:
    """The config with all that it leaves open set for this model on this machine as it is now:
    dtype, context length, slots, sizes of steps. Raises InvalidCall; InvalidModel where ranks
    cannot share it."""
    check_shares(described, config.ranks)
    dtype = auto_dtype(described, config.device) if config.dtype == "auto" else config.dtype
    if config.deterministic:
        checkpoints.check_deterministic(described, dtype)
    device = _device(config.device)
    shares = config.ranks if device.type == "cuda" else 1  # ranks on a CPU share its memory
    weights = described.num_parameters() * DTYPE_BYTES[dtype] // shares
    # each rank holds all features
    weights += config.feature_slots * described.feature_size * DTYPE_BYTES[dtype]
    kv_bytes = described.kv_bytes_per_token(dtype) // shares
    if device.type == "cuda":
        free = int(_GPU_SHARE * (torch.cuda.mem_get_info(device)[0] - weights))
        pool_bytes = None if config.num_slots is None else config.num_slots * kv_bytes
        load = largest_load(described, dtype, _loads(config), free, pool_bytes, shares)
        config = replace(config, max_running=load.max_running, chunk_tokens=load.chunk_tokens)
        memory = max(0, free - working_bytes(described, dtype, load, shares))
    else:
        memory = max(0, available_memory() - weights) // (3 + config.engines)
    return replace(config, dtype=dtype).resolve(described.context_len, kv_bytes, memory)


def _loads(config: EngineConfig) -> Iterator[Load]:
    """Steps on a GPU, the largest first, as far as the config leaves their sizes open."""
    is_other = config.attention == "flashinfer"
    for halvings in range(4):
        running = config.max_running or max(_GPU_RUNNING >> halvings, _LEAST_RUNNING)
        tokens = config.chunk_tokens or max(_GPU_CHUNK >> halvings, _LEAST_CHUNK)
        others = config.host_slots > 0, config.context_len or 0, config.tower_tokens or tokens
        yield Load(tokens, running, config.graphs, is_other, *others)


def _load(
    source: str, described: Described, config: EngineConfig, ranks_started: Sequence[Child]
) -> tuple[Runner, Callable[[], None]]:
    """The runner of a checkpoint, with all its ranks, and what stops it."""
    device = _device(config.device)
    if config.ranks == 1:
        return load_runner(source, described, config, device, Ranks()), _nothing
    others = OtherRanks(source, config, ranks_started)
    try:
        others.wait("loading")
        ranks = others.unless_gone(lambda: join(0, config.ranks, others.store_path, device))
        runner = load_runner(source, described, config, device, ranks)
        others.wait("ready")
        if device.type == "cpu":  # NCCL may need it later
            others.forget_store()
        return RankedRunner(runner, ranks, others), others.close
    except BaseException:
        others.close()
        raise


def _device(name: str) -> torch.device:
    """The device of a setting. Raises InvalidCall for one that is not here."""
    count = torch.cuda.device_count()
    known = ["cpu", *(["cuda"] if count else []), *(f"cuda:{index}" for index in range(count))]
    if name not in known:
        raise InvalidCall("device", name, ", ".join(known) + ("" if count else f"; {why_no_gpu()}"))
    return torch.device(name)


def _nothing() -> None:
    """Wakes the loop."""
