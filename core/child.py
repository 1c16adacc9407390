"""The child's side of `core.process.client`: a `LocalBackend` behind a connection."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from .api.protocol import Call, CallFailed, Chat, Chunk, Completion, ForkrootError, Text
from .api.reply import Mailbox
from .common import compiling
from .common.fair_executor import FairExecutor
from .common.memory import give_back_freed, keep_freed, trim_regularly
from .engine.pending_calls import aborted
from .local import LocalBackend
from .model.checkpoint.loops import load_compiler
from .process.ipc import Child, Connection, sendable, serve_parent

_PREPARERS, _ENCODERS = 4, 2
_SLOW = "snapshot", "prefixes", "program_report"  # may take a while
_SHORT = 1 << 14  # characters of a prompt that is encoded between other messages
_KEPT_BYTES = 1 << 28  # of one array that a step frees, for the next step
_NEW_OBJECTS = 10_000  # before they are searched for garbage
_SECONDS_OF_THREAD = 0.0002  # after which another thread has its turn: the engine's waits least


def main(fd: int, device: str, *ranks: Child) -> None:
    """Serve the parent at the other end of this socket until it goes. ranks: the processes of the
    model's other ranks."""
    keep_freed(_KEPT_BYTES)
    trim_regularly()
    sys.setswitchinterval(_SECONDS_OF_THREAD)
    load_compiler(device)
    serve_parent(fd, partial(_serve, ranks))


def _serve(ranks: Sequence[Child], connection: Connection) -> None:
    # the parent shows it
    compiling.show = lambda *progress: connection.send("compiling", 0, progress)
    RequestHandler(connection, ranks).serve()


class RequestHandler:
    """Handles the requests of the parent. Short calls are prepared between other messages, in
    their order. Those with constraints are prepared by threads of their own, one at a time of each
    tenant, since each competes with the engine for the interpreter lock; long prompts by others."""

    def __init__(self, connection: Connection, ranks: Sequence[Child]) -> None:
        self._connection = connection
        self._ranks = ranks
        self._backend: LocalBackend | None = None
        self._actions: dict[str, Callable[..., Any]] = {
            "start": self._start,
            "clear_cache": self._clear_cache,
        }
        self._open: dict[int, Outbox] = {}
        self._preparers = FairExecutor(_PREPARERS, "forkroot-prepare", 1)
        self._encoders = FairExecutor(_ENCODERS, "forkroot-encode", _ENCODERS)

    def serve(self) -> None:
        """Handle requests until the parent closes or is gone."""
        for kind, *details in self._connection.messages():
            if kind == "close":
                break
            self._dispatch(kind, *details)
        if self._backend is not None:
            self._backend.close()
        self._connection.close()

    def _dispatch(self, kind: str, number: int, *details: Any) -> None:
        if kind == "submit":
            self._submit(number, *details)
        elif kind == "cancel":
            outbox = self._open.get(number)
            if outbox is not None:
                outbox.is_cancelled = True
                outbox.cancel()
        elif kind in _SLOW:  # other requests are still handled
            self._preparers.submit("", 1.0, partial(self._answer, kind, number, *details))
        else:
            self._answer(kind, number, *details)

    def _start(self, model: str, settings: str) -> None:
        given = json.loads(settings)
        if (engines := given.get("engines", 1)) > 1:
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // engines))
        self._backend = LocalBackend.from_folder(model, self._ranks, **given)
        gc.collect()
        gc.freeze()  # what stays for good is not looked at during a step
        gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
        threading.Thread(target=self._report_death, args=(self._backend,), daemon=True).start()

    def _clear_cache(self) -> int:
        assert self._backend is not None
        num_tokens = self._backend.clear_cache()
        give_back_freed()
        return num_tokens

    def _report_death(self, backend: LocalBackend) -> None:
        """Once the engine has died: tell the parent why, and hang up, which ends this process."""
        if (error := backend.wait()) is not None:
            self._connection.send("died", 0, error)
            self._connection.close()

    def _answer(self, kind: str, number: int, *details: Any) -> None:
        try:
            action = self._actions.get(kind) or getattr(self._backend, kind)
            self._connection.send("result", number, action(*details))
        except Exception as error:
            self._connection.send("refused", number, sendable(error))

    def _submit(self, number: int, call: Call) -> None:
        assert self._backend is not None
        backend = self._backend
        outbox = Outbox(call, backend.cancel, self._connection, number)
        self._open[number] = outbox
        outbox.when_done(lambda _: self._open.pop(number, None))
        prepare = partial(self._prepare, backend, call, outbox)
        if call.constraint is not None or call.scoring != "tokens":
            self._preparers.submit(call.owner, call.weight, prepare)
        elif _is_short(call):
            backend.submit(call, outbox)
        else:
            self._encoders.submit(call.owner, call.weight, prepare)

    def _prepare(self, backend: LocalBackend, call: Call, outbox: Outbox) -> None:
        if outbox.is_cancelled:
            outbox.finish(aborted(call))
            return
        backend.submit(call, outbox)
        if outbox.is_cancelled:  # before the backend knew it
            backend.cancel(outbox)


def _is_short(call: Call) -> bool:
    """Whether its texts are encoded in a moment; pictures are decoded later, by others."""
    prompt = call.prompt
    contents = [it.content for it in prompt.messages] if isinstance(prompt, Chat) else [prompt]
    texts = [it.text for segments in contents for it in segments if isinstance(it, Text)]
    num_chars = sum(map(len, texts))
    return num_chars * (1 + len(call.options)) + sum(map(len, call.options)) <= _SHORT


class Outbox(Mailbox):
    """A mailbox whose reader is in the parent."""

    def __init__(
        self, call: Call, cancel: Callable[[Mailbox], object], connection: Connection, number: int
    ) -> None:
        super().__init__(call, cancel)
        self._connection = connection
        self._number = number
        self.is_cancelled = False

    def put(self, chunk: Chunk) -> None:
        """Send a chunk; it is not kept here."""
        if not self.done():
            self._connection.send("chunk", self._number, chunk)

    def finish(self, completion: Completion) -> None:
        """As `Mailbox.finish`, and send it to the parent."""
        if not self.done():
            self._connection.send("done", self._number, completion)
        super().finish(completion)

    def fail(self, error: BaseException) -> None:
        """As `Mailbox.fail`, and send it to the parent."""
        if not self.done():
            known = error if isinstance(error, ForkrootError) else CallFailed(repr(error))
            self._connection.send("failed", self._number, known)
        super().fail(error)
