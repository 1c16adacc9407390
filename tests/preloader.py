"""A process that has imported what engines and ranks import, and is forked to be one, or to be a
Python that runs a program: the program behind `preloaded`. Forks are children of the process that
asked for them (it adopts them while it waits); those that run a program have a process of this kind
for their own engines."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

MODULES = ("forkroot.core.child", "forkroot.core.rank")
PROGRAMS = ("forkroot.__main__", "forkroot.adapters.http.app", "forkroot.adapters.http.serve")
SPAWNED = (*MODULES, "following", "scarce")  # modules that `ipc.spawn` starts and that import torch
# Variables that are read once, when something is imported.
READ_ONCE = (
    *("ATEN_", "CUDA_", "FORKROOT_CPU_", "HF_", "KMP_", "LD_", "MALLOC_", "MKL_", "NUMBA_"),
    *("OMP_", "ONEDNN_", "PYTHONWARN", "PYTORCH_", "TORCH_", "TRITON_", "XDG_"),
)
ENV = {"THP_MEM_ALLOC_ENABLE": "1"}  # as `ipc.spawn` sets it
ADOPT = 36  # PR_SET_CHILD_SUBREAPER: whether orphans below a process become its children
MOST_BYTES, MOST_FILES = 1 << 18, 4

Fork = Callable[[dict[str, Any], list[int]], int]  # a request and its files; gives a process id


class Forked(subprocess.Popen[Any]):
    """A child process that `fork` makes of a request: as if its command had been started."""

    def __init__(self, fork: Fork, command: Sequence[str], **options: Any) -> None:
        self._fork = fork
        super().__init__(command, **options)

    def _execute_child(self, command: Any, *given: Any) -> None:
        _, _, _, passed, cwd, env, _, _, _, *pipes = given[:15]
        theirs = [end if end >= 0 else n for n, end in enumerate(pipes[i] for i in (0, 3, 5))]
        variables = dict(os.environ if env is None else env)
        request = {"command": [*command], "env": variables, "cwd": str(cwd or os.getcwd())}
        self.pid = self._fork(request, [*theirs, *passed])
        self._child_created = True
        self._close_pipe_fds(*pipes)


class Forks:
    """Starts commands as forks of the process at the other end of a line."""

    def __init__(self, line: socket.socket, env: dict[str, str]) -> None:
        self._line, self._env = line, read_once(env)
        self._lock = threading.Lock()

    def start(
        self, command: Sequence[str], is_program: bool = False, **options: Any
    ) -> subprocess.Popen[Any]:
        """As `subprocess.Popen`; a fork if `ipc.spawn` or a program is run with this process's
        variables."""
        is_known = is_program or any(kind in command for kind in SPAWNED)
        if not is_known or read_once(options.get("env") or os.environ) != self._env:
            return subprocess.Popen(command, **options)
        return Forked(self._fork, command, **options)

    def _fork(self, request: dict[str, Any], files: list[int]) -> int:
        with self._lock, adopting_orphans():
            socket.send_fds(self._line, [json.dumps(request).encode()], files)
            return int(self._line.recv(100))

    def close(self) -> None:
        """Let the process end; its forks go on."""
        self._line.close()


def read_once(env: Any) -> dict[str, str]:
    """The variables whose values a fork cannot change any more."""
    return {name: env[name] for name in env if name.startswith(READ_ONCE)}


def main(paths: str, number: str) -> None:
    """Serve the process at the other end of a socket until it is gone, or be a fork."""
    own_paths, sys.path[:] = sys.path[1:], json.loads(paths)
    for name in (*MODULES, *PROGRAMS):
        import_module(name)
    import_module("forkroot.core.model.checkpoint.loops").load_compiler("cpu")
    del sys.modules[PROGRAMS[0]]  # it is run, not imported
    gc.collect()
    gc.freeze()  # what forks share is not looked at
    found = wait_for_request(socket.socket(fileno=int(number)), fork_for_parent)
    if found is not None:
        become(found, own_paths)


def wait_for_request(
    line: socket.socket, fork: Callable[[], int]
) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request until the other end is gone (None); in a fork, what is requested."""
    with line:
        while True:
            data, files, *_ = socket.recv_fds(line, MOST_BYTES, MOST_FILES)
            if not data:
                return None
            pid = fork()
            if not pid:
                return json.loads(data), files
            for file in files:
                os.close(file)
            line.send(str(pid).encode())


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Meanwhile, what a process below this one leaves behind becomes a child of this one."""
    system = ctypes.CDLL(None)
    system.prctl(ADOPT, 1, 0, 0, 0)
    try:
        yield
    finally:
        system.prctl(ADOPT, 0, 0, 0, 0)


def fork_for_parent() -> int:
    """As `os.fork`, but the new process is a child of this one's parent, which adopts orphans: the
    process between them has ended when this returns, in both."""
    ours, theirs = os.pipe()
    if between := os.fork():
        os.close(theirs)
        os.waitpid(between, 0)
        with open(ours) as number:
            return int(number.read())
    between = os.getpid()
    if pid := os.fork():
        os.write(theirs, str(pid).encode())
        os._exit(0)
    os.close(ours)
    os.close(theirs)
    while os.getppid() == between:
        time.sleep(0.001)
    return 0


def become(found: tuple[dict[str, Any], list[int]], own_paths: list[str]) -> None:
    """In a fork: run the command that is requested. own_paths: of modules, but for PYTHONPATH."""
    (request, files), own = found, found[1][3:]
    command, env = request["command"], request["env"]
    for target, file in enumerate(files[:3]):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request["cwd"])
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(env)
    show_as(command)
    if any(kind in command for kind in SPAWNED):
        _, _, _, paths, module, _, *options = command  # python -c PROGRAM ...
        sys.path[:] = json.loads(paths)
        be_spawned(own[0], module, options)
    added = [it for it in env.get("PYTHONPATH", "").split(os.pathsep) if it]
    sys.path[:] = ["", *added, *(it for it in own_paths if it not in before)]
    be_program(command[1:])


def be_spawned(fd: int, module: str, options: Sequence[str]) -> None:
    """In a fork: what `ipc.spawn` runs, in a session of its own. A rank that it starts before it
    has threads is a fork of it."""
    os.setsid()

    def fork(request: dict[str, Any], files: list[int]) -> int:
        if pid := os.fork():
            return pid
        show_as(request["command"])
        _, _, _, _, rank, _, *rest = request["command"]
        be_spawned(files[-1], rank, rest)
        raise AssertionError("it has ended")

    def start(command: Sequence[str], **given: Any) -> subprocess.Popen[Any]:
        is_rank = MODULES[1] in command
        return Forked(fork, command, **given) if is_rank else subprocess.Popen(command, **given)

    start_by(start)
    try:
        import_module(module).main(fd, *options)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def be_program(words: list[str]) -> None:
    """In a fork: run a program as Python does, whose engines are forks of a fork of this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ours.close()
        os.setsid()
        for number in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        found = wait_for_request(theirs, fork_for_parent)
        if found is None:
            os._exit(0)
        become(found, [])
    theirs.close()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        buffering = 1 if number == 2 else -1
        setattr(sys, name, os.fdopen(number, "w" if number else "r", buffering, closefd=False))
    start_by(Forks(ours, dict(os.environ)).start)
    kind, what, *rest = words
    sys.argv[:] = [kind, *rest]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


def start_by(start: Callable[..., Any]) -> Any:
    """Let `ipc.spawn` start processes by this function. Gives what it had before."""
    ipc: Any = import_module("forkroot.core.process.ipc")
    before = ipc.subprocess
    ipc.subprocess = SimpleNamespace(DEVNULL=subprocess.DEVNULL, Popen=start)
    return before


def show_as(command: Sequence[str]) -> None:
    """Let the system show this command, cut off, as this process's own."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    text = b"\0".join(word.encode() for word in command if len(word) < 100)
    text = text[: end - begin - 1].ljust(end - begin, b"\0")
    ctypes.memmove(begin, text, len(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
