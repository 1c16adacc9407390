"""A process that holds a part of a model: the child's side of `core.process.ranks`."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .api.config import EngineConfig
from .model.checkpoint.load import Described, describe, load_model
from .model.checkpoint.loops import load_compiler
from .model.parallel import Progress, Ranks
from .model.runner.host import Host
from .model.runner.ranks import follow, join
from .model.runner.runner import ModelRunner
from .process.ipc import Connection, sendable, serve_parent
from .process.liveness import CHECKS_PER_TIMEOUT


def main(fd: int, device: str) -> None:
    """Serve the parent at the other end of this socket until it closes."""
    load_compiler(device)
    serve_parent(fd, serve)


def serve(connection: Connection) -> None:
    """Load the part that the first message describes, then compute its share of every batch."""
    messages = connection.messages()
    try:
        runner, ranks = _start(connection, *next(messages))
    except Exception as error:
        connection.send("failed", sendable(error))
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
    connection: Connection, rank: int, source: str, settings: dict[str, Any], store_path: str
) -> tuple[ModelRunner, Ranks]:
    config = EngineConfig(**settings)
    assert config.context_len is not None
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // config.ranks))
    is_cuda = config.device.startswith("cuda")
    device = torch.device("cuda", rank) if is_cuda else torch.device(config.device)
    described = replace(describe(source), context_len=config.context_len)
    connection.send("loading")
    ranks = join(rank, config.ranks, store_path, device)
    if config.host_file is not None:
        config = replace(config, host_file=f"{config.host_file}.{rank}")
    runner = load_runner(source, described, config, device, ranks)
    if config.hang_timeout is not None:
        arguments = connection, ranks.progress, config.hang_timeout / CHECKS_PER_TIMEOUT
        threading.Thread(target=_send_heartbeats, args=arguments, daemon=True).start()
    gc.collect()
    gc.freeze()  # what stays for good is not looked at during a step
    connection.send("ready")
    return runner, ranks


def load_runner(
    source: str, described: Described, config: EngineConfig, device: torch.device, ranks: Ranks
) -> ModelRunner:
    """The runner of one rank's part of a checkpoint. config: with every size set."""
    assert config.num_slots is not None and config.max_running is not None
    model = load_model(source, described, getattr(torch, config.dtype), device, ranks)
    host = Host(config.host_slots, None if config.host_file is None else Path(config.host_file))
    options = config.attention_kind, host, config.max_running, config.graphs, config.sampling
    return ModelRunner(model, config.num_slots, ranks, *options)
