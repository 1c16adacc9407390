"""Compiles loops in worker processes, several at a time, into numba's cache, from which other
processes load them: in one process numba compiles one function at a time. A first start with AMX
takes about 29 s of compiling on two cores, and 51 s on one.

Workers import numba and the loops' modules, and neither torch nor the program that runs here. What
they do not compile is compiled where it is first used.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import selectors
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from .code_cache import compiling_lock, has_cache, is_cached
from .features import fingerprint
from .loops import Loop, notify

_WORTH_A_START = 5.0  # seconds of loops; a worker starts in half of one
_PATIENCE = 600.0  # seconds without a word from any worker
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_PACKAGES = {"rows": "", "masks": "..sampling", "sampler": "..sampling"}
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from importlib import import_module; import_module(sys.argv[2]).main()"
)


class Plan(NamedTuple):
    """loops: those that have to be compiled, in this order. num_workers: in so many processes; 0:
    each where it is first used."""

    loops: tuple[Loop, ...]
    num_workers: int

    def seconds(self) -> Mapping[str, float]:
        """About how long each takes, one after another."""
        families: set[str] = set()
        return {loop.name: _seconds(loop, families) for loop in self.loops}


def compiler_of(loop: Loop) -> tuple[Any, Any]:
    """Numba's compiler of a loop, which has compiled nothing yet, and the signature to compile."""
    fingerprint()  # numba is restricted to this process's features before it makes anything
    if not loop.signature:
        from .addresses import ENTERED, entry_compiler

        return entry_compiler(_find(loop.name)), ENTERED
    from .jit import dispatcher

    return dispatcher(_find(loop.name), loop.is_reordered), _find(loop.signature)


def plan(loops: Sequence[Loop], num_cores: int | None = None) -> Plan:
    """What is to be done so that these loops are in the cache. num_cores: for compiling; all that
    this process may use, if None."""
    try:
        compilers = [(loop, *compiler_of(loop)) for loop in loops]
    except Exception:  # whatever numba's version leads to: `jit.can_compile` logs it
        return Plan(tuple(loops), 0)
    remaining = tuple(
        loop for loop, compiler, signature in compilers if not is_cached(compiler, signature)
    )
    if not all(has_cache(compiler) for _, compiler, _ in compilers) or not _can_start():
        return Plan(remaining, 0)
    return Plan(remaining, num_workers(remaining, num_cores or available_cores()))


def num_workers(loops: Sequence[Loop], num_cores: int) -> int:
    """How many workers compile these loops, each with enough to do to be worth its start; 0 where
    one would be alone."""
    num = min(num_cores, int(sum(Plan(tuple(loops), 0).seconds().values()) / _WORTH_A_START))
    return num if num > 1 else 0


def run(plan: Plan) -> None:
    """Compile as planned and notify listeners of each loop. The workers are always ended. One
    process does so at a time; what it has left in the cache the next one only looks up."""
    remaining = list(plan.loops)
    with contextlib.ExitStack() as stack:
        if plan.num_workers:
            compiler, _ = compiler_of(remaining[0])
            if stack.enter_context(compiling_lock(compiler, _PATIENCE)):
                remaining = _not_cached(remaining)
        waiting = stack.enter_context(selectors.DefaultSelector())
        for _ in range(min(plan.num_workers, len(remaining))):
            with contextlib.suppress(OSError):  # no more processes
                worker = _Worker()
                stack.callback(worker.close)
                waiting.register(worker, selectors.EVENT_READ)
        while waiting.get_map():
            answers = waiting.select(_PATIENCE)
            if not answers:
                return
            for key, _ in answers:
                assert isinstance(key.fileobj, _Worker)
                if not key.fileobj.advance(remaining):
                    waiting.unregister(key.fileobj)
                    key.fileobj.close()


def _not_cached(loops: Sequence[Loop]) -> list[Loop]:
    """Those that no process has compiled meanwhile; listeners are notified of the others."""
    found = []
    for loop in loops:
        if is_cached(*compiler_of(loop)):
            notify(loop.name, "cached")
        else:
            found.append(loop)
    return found


def next_loop(remaining: Sequence[Loop], families: set[str]) -> Loop:
    """The longest loop, for a process that has compiled others of these families: one of these
    before any other."""
    return max(remaining, key=lambda loop: (loop.family in families, loop.seconds))


def available_cores() -> int:
    """How many cores this process may use at a time."""
    has_affinity = hasattr(os, "sched_getaffinity")
    num = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # "max 100000": no quota
        quota, period = map(int, _QUOTA.read_text().split())
        num = min(num, max(quota // period, 1))
    return num


class _Worker:
    """A process that compiles one loop at a time."""

    def __init__(self) -> None:
        paths = json.dumps([os.path.abspath(path) for path in sys.path])
        module = f"{__package__}.precompile_worker"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, paths, module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which ends its workers
            env=_environment(),
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._rest_of_output = b""
        self._loop: Loop | None = None
        self._families: set[str] = set()

    def fileno(self) -> int:
        """The file descriptor of its answers."""
        return self._out

    def advance(self, remaining: list[Loop]) -> bool:
        """Read its answer and send it the next loop; False: no loop is left for it, or it cannot
        compile any."""
        data = os.read(self._out, 1 << 16)
        *answers, self._rest_of_output = (self._rest_of_output + data).split(b"\n")
        for answer in answers:
            self._take(answer.decode(), remaining)
        if not data or not remaining:
            return bool(data) and self._loop is not None
        if answers:
            self._loop = next_loop(remaining, self._families)
            remaining.remove(self._loop)
            self._families.add(self._loop.family)
            notify(self._loop.name, "started")
            with contextlib.suppress(OSError):  # it has ended, which is noticed elsewhere
                os.write(self._in, json.dumps(self._loop).encode() + b"\n")
        return True

    def close(self) -> None:
        """Kill it: files of the cache are written whole or not at all."""
        with self._process as process:
            process.kill()

    def _take(self, answer: str, remaining: list[Loop]) -> None:
        """done: the loop is in the cache. failed: it is not. ready: it has just started."""
        if self._loop is not None and answer == "done":
            notify(self._loop.name, "done")
        elif answer != f"ready {fingerprint()}":  # a full disk, or other settings than here
            remaining.clear()
        self._loop = None


def _find(path: str) -> Any:
    """What "module.name" is, or an item of it, "module.name.item": in `loops/`, unless _PACKAGES
    has another."""
    module, name, *items = path.split(".")
    package = _PACKAGES.get(module, "..loops")
    found = getattr(import_module(f"{package}.{module}", __package__), name)
    return found[items[0]] if items else found


def _can_start() -> bool:
    """Whether this process may have children, and its interpreter is known."""
    return bool(sys.executable) and not multiprocessing.current_process().daemon


def _environment() -> dict[str, str]:
    """With the cache folder that numba has here, wherever it was set."""
    import numba

    config: Any = numba.config  # its settings are made when it is imported
    folder = config.CACHE_DIR
    return {**os.environ, **({"NUMBA_CACHE_DIR": str(folder)} if folder else {})}


def _seconds(loop: Loop, families: set[str]) -> float:
    """For a process that has compiled loops of these families; this one's is added."""
    seconds = loop.after if loop.family in families else loop.seconds
    families.add(loop.family)
    return seconds
