"""A process that holds a part of a model: the child's side of `core.process.ranks`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .api.protocol import CallFailed, ForkrootError
from .model.checkpoint.load import describe, load_model
from .model.parallel import Progress, Ranks
from .model.runner.host import Host
from .model.runner.ranks import follow, join
from .model.runner.runner import ModelRunner
from .process.ipc import Connection, serve_parent

_PR_SET_PDEATHSIG = 1


def main(fd: int) -> None:
    """Serve the parent at the other end of this socket until it closes. The kernel kills this
    process when the thread that started it ends, even while it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    serve_parent(fd, serve)


def serve(connection: Connection) -> None:
    """Load the part that the first message describes, then compute its share of every batch."""
    messages = connection.messages()
    try:
        runner, ranks = _start(connection, *next(messages))
    except ForkrootError as error:
        connection.send("failed", error)
        connection.close()
        return
    except Exception as error:
        connection.send("failed", CallFailed(f"{type(error).__name__}: {error}"))
        connection.close()
        return
    inbox = MessageQueue(connection, messages)
    follow(inbox.batches(), runner, ranks, inbox.report_out_of_memory)


class MessageQueue:
    """The messages of rank 0, in order."""

    def __init__(self, connection: Connection, messages: Iterator[Any]) -> None:
        self._connection = connection
        self._messages = messages
        self._early: deque[Any] = deque()  # came before an acknowledgement

    def batches(self) -> Iterator[Any]:
        """The batches, until rank 0 closes."""
        while True:
            kind, message = self._early.popleft() if self._early else self._next()
            if kind == "close":
                return
            yield message

    def report_out_of_memory(self, number: int) -> None:
        """Tell rank 0 that memory is too small for the batch of this number, and wait until it
        acknowledges."""
        self._connection.send("out of memory", number)
        while (message := self._next())[0] not in ("acknowledged", "close"):
            self._early.append(message)
        if message[0] == "close":
            self._early.appendleft(message)

    def _next(self) -> Any:
        return next(self._messages, ("close", None))


def _send_heartbeats(connection: Connection, progress: Progress, seconds: float) -> None:
    """Send the progress of this rank every `seconds`."""
    while True:
        time.sleep(seconds)
        connection.send("heartbeat", *progress.snapshot())


def _start(
    connection: Connection,
    rank: int,
    size: int,
    source: str,
    dtype: str,
    device: str,
    context_len: int,
    num_slots: int,
    host_slots: int,
    host_file: str | None,
    kernels: dict[str, Any],
    store_path: str,
    heartbeat_seconds: float | None,
) -> tuple[ModelRunner, Ranks]:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    target = torch.device("cuda", rank) if device.startswith("cuda") else torch.device(device)
    described = replace(describe(source), context_len=context_len)
    connection.send("loading")
    ranks = join(rank, size, store_path, target)
    model = load_model(source, described, getattr(torch, dtype), target, ranks)
    file = None if host_file is None else Path(f"{host_file}.{rank}")
    runner = ModelRunner(model, num_slots, ranks, host=Host(host_slots, file), **kernels)
    if heartbeat_seconds is not None:
        arguments = connection, ranks.progress, heartbeat_seconds
        threading.Thread(target=_send_heartbeats, args=arguments, daemon=True).start()
    connection.send("ready")
    return runner, ranks
