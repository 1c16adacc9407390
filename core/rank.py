"""A process that holds a part of a model: the child's side of `core.ranks`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from .frames import Line, answer
from .model.host import Host
from .model.load import describe, load_model
from .model.ranks import follow, join
from .model.runner import ModelRunner
from .protocol import CallFailed, ForkrootError


def main(fd: int) -> None:
    """Hold a part for the parent at the other end of this socket until it goes."""
    answer(fd, serve)


def serve(line: Line) -> None:
    """Load what the first message says, then compute along."""
    messages = line.messages()
    try:
        runner = _start(line, *next(messages))
    except ForkrootError as error:
        line.send("failed", error)
        line.close()
        return
    except Exception as error:
        line.send("failed", CallFailed(f"{type(error).__name__}: {error}"))
        line.close()
        return
    follow(_batches(messages), runner)


def _start(
    line: Line,
    source: str,
    dtype: str,
    device: str,
    context_len: int,
    num_slots: int,
    host_slots: int,
    host_file: str | None,
    kernels: dict[str, Any],
    rank: int,
    size: int,
    meeting_place: str,
) -> ModelRunner:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    place = torch.device("cuda", rank) if device.startswith("cuda") else torch.device(device)
    described = replace(describe(source), context_len=context_len)
    line.send("loading")
    ranks = join(rank, size, meeting_place, place)
    model = load_model(source, described, getattr(torch, dtype), place, ranks)
    file = None if host_file is None else Path(f"{host_file}.{rank}")
    runner = ModelRunner(model, num_slots, ranks, host=Host(host_slots, file), **kernels)
    line.send("ready")
    return runner


def _batches(messages: Iterator[Any]) -> Iterator[Any]:
    for kind, message in messages:
        if kind == "close":
            return
        yield message
