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
from .process.frames import Line, answer

_PR_SET_PDEATHSIG = 1


def main(fd: int) -> None:
    """Hold a part for the parent at the other end of this socket until it goes. With the thread
    that started this process the kernel ends it, even where it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answer(fd, serve)


def serve(line: Line) -> None:
    """Load what the first message says, then compute along."""
    messages = line.messages()
    try:
        runner, ranks = _start(line, *next(messages))
    except ForkrootError as error:
        line.send("failed", error)
        line.close()
        return
    except Exception as error:
        line.send("failed", CallFailed(f"{type(error).__name__}: {error}"))
        line.close()
        return
    orders = Orders(line, messages)
    follow(orders.batches(), runner, ranks, orders.say_short)


class Orders:
    """What rank 0 says, in order."""

    def __init__(self, line: Line, messages: Iterator[Any]) -> None:
        self._line = line
        self._messages = messages
        self._early: deque[Any] = deque()  # came while something else was waited for

    def batches(self) -> Iterator[Any]:
        """The batches, until all is closed."""
        while True:
            kind, message = self._early.popleft() if self._early else self._next()
            if kind == "close":
                return
            yield message

    def say_short(self, number: int) -> None:
        """Tell rank 0 that memory does not do for the batch of this number, and wait until it
        knows."""
        self._line.send("short", number)
        while (order := self._next())[0] not in ("known", "close"):
            self._early.append(order)
        if order[0] == "close":
            self._early.appendleft(order)

    def _next(self) -> Any:
        return next(self._messages, ("close", None))


def _beat(line: Line, progress: Progress, seconds: float) -> None:
    """Say again and again how far this rank is."""
    while True:
        time.sleep(seconds)
        line.send("beat", *progress.told())


def _start(
    line: Line,
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
    meeting_place: str,
    seconds_between_beats: float | None,
) -> tuple[ModelRunner, Ranks]:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    place = torch.device("cuda", rank) if device.startswith("cuda") else torch.device(device)
    described = replace(describe(source), context_len=context_len)
    line.send("loading")
    ranks = join(rank, size, meeting_place, place)
    model = load_model(source, described, getattr(torch, dtype), place, ranks)
    file = None if host_file is None else Path(f"{host_file}.{rank}")
    runner = ModelRunner(model, num_slots, ranks, host=Host(host_slots, file), **kernels)
    if seconds_between_beats is not None:
        given = line, ranks.progress, seconds_between_beats
        threading.Thread(target=_beat, args=given, daemon=True).start()
    line.send("ready")
    return runner, ranks
