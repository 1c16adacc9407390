"""Engines, ranks and Python programs as forks of a process that has imported their code: each start
takes tenths of a second in place of seconds. They are children of this process, as others are.
Some tests of each kind start them as users do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forkroot.core.process import ipc

from .preloader import ENV, Forks, start_by

PROGRAM = Path(__file__).with_name("preloader.py")


@contextmanager
def preloader() -> Iterator[Forks | None]:
    """What starts such forks; None where no process can adopt forks."""
    if sys.platform != "linux":
        yield None
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    paths = json.dumps([os.path.abspath(path) for path in sys.path])
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), paths, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**ENV, **os.environ},
        )
    forks = Forks(ours, dict(os.environ))
    yield forks
    forks.close()
    process.wait(60)


@contextmanager
def forking(forks: Forks | None) -> Iterator[None]:
    """Engines and ranks that this process starts meanwhile are forks."""
    if forks is None:
        yield
        return
    before = start_by(forks.start)
    try:
        yield
    finally:
        spawning: Any = ipc
        spawning.subprocess = before


def start(forks: Forks | None, command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """As `subprocess.Popen` of [sys.executable, "-c" or "-m", ...], by a fork where that works."""
    if forks is None:
        return subprocess.Popen(command, **options)
    return forks.start(command, is_program=True, **options)


def run(
    forks: Forks | None, command: list[str], stdin: str = "", timeout: float = 280, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of such a command, whose output is captured."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with start(forks, command, text=True, **pipes, **options) as process:
        out, errors = process.communicate(stdin, timeout)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)
