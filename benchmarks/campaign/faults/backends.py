"""Faults under programs that have an engine of their own: in this process, or in a child of it.

Many calls are open when a fault strikes. Each must end once and soon. A child's engine is replaced
by itself; a program whose own engine has died connects again.
"""

from __future__ import annotations

import ctypes
import os
import random
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from forkroot.adapters.connection import connect
from forkroot.benchmarks.campaign.faults.fault import (
    MODULES,
    SECONDS_TO_COME,
    SECONDS_TO_END,
    SECONDS_TO_RETURN,
    SIGNALS,
    Fault,
    Outcome,
    slow_enum,
)
from forkroot.benchmarks.common.processes import command_of, family, oldest_first
from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    Call,
    ForkrootError,
    JsonSchema,
    Regex,
    Reply,
    Sampling,
    Text,
)

_SLOTS = 51_200
_NEW_TOKENS = 10_000  # of all open calls together: more than are sampled before a fault strikes
_DEATHS = 2  # of a child's engine: later ones would wait longer before each start
_ENGINE_THREAD = "forkroot-engine"


class InjectedFault(BaseException):
    """What the engine's thread dies of."""


class Programs:
    """The backends at work, by composition and ranks, and their replacements. problems: what ended
    ones have left behind."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._backend: Backend | None = None
        self._kind, self._deaths = ("", 0), 0
        self._members: list[int] = []
        self._others = {*family(os.getpid())}  # what this process has for others, and their threads
        self._other_threads = {thread.ident for thread in threading.enumerate()}
        self._expected: dict[tuple[str, int], list[str]] = {}

    def backend(self, fault: Fault) -> Backend:
        """A backend that can bear this fault."""
        kind = fault.where, fault.ranks
        is_worn = self._deaths >= _DEATHS
        if self._backend is None or self._kind != kind or is_worn:
            self.replace(kind)
        assert self._backend is not None
        if fault.where == "child":
            self._deaths += _DEATHS if fault.process == "spare" else fault.is_deadly
        return self._backend

    def replace(self, kind: tuple[str, int] | None = None) -> Backend:
        """Another backend in the place of this one."""
        self.close()
        self._kind, self._deaths = kind or self._kind, 0
        self._folder = tempfile.TemporaryDirectory(prefix="forkroot-kills-")
        where, ranks = self._kind
        settings: dict[str, Any] = {"ranks": ranks, "num_slots": _SLOTS}
        if where == "child":
            settings |= {"process": True, "restart": True}
        before, tempfile.tempdir = tempfile.tempdir, self._folder.name  # this process's own files
        try:
            self._backend = connect("tiny", **settings)
        finally:
            tempfile.tempdir = before
        self._expected.setdefault(self._kind, reference(self._backend))
        return self._backend

    @property
    def expected(self) -> list[str]:
        """The reference answers of such a backend."""
        return self._expected[self._kind]

    def note_members(self) -> None:
        """Remember the processes that it has now."""
        self._members = [*{*self._members, *family(os.getpid())} - self._others]

    def processes(self, process: str) -> list[int]:
        """Those of a kind, the oldest first."""
        module = MODULES[process]
        members = {*family(os.getpid())} - self._others
        return oldest_first([pid for pid in members if module in command_of(pid)])

    def engine_thread(self) -> int:
        """The id of the thread of its engine, which runs in this process."""
        named = [it.ident for it in threading.enumerate() if it.name == _ENGINE_THREAD]
        (ident,) = {it for it in named if it is not None} - self._other_threads
        return ident

    def close(self) -> None:
        """Close the backend, and note what it leaves."""
        if self._backend is None:
            return
        self.note_members()
        self._backend.close()
        self._backend = None
        end = time.monotonic() + SECONDS_TO_RETURN
        while any(map(command_of, self._members)) and time.monotonic() < end:
            time.sleep(0.05)
        left = [f"process {command_of(pid)[-80:]}" for pid in self._members if command_of(pid)]
        self.problems += left + [f"file {path}" for path in Path(self._folder.name).iterdir()]
        self._members = []
        self._folder.cleanup()


def reference(backend: Backend) -> list[str]:
    """Greedy answers, one of them constrained. Raises ForkrootError."""
    greedy = Sampling(max_tokens=12, temperature=0)
    calls = [
        Call((Text("The capital of France is"),), greedy),
        Call((Text("Once upon a time"),), greedy),
        Call((Text("A word:"),), greedy, constraint=Regex("[a-z]{3,9}!")),
    ]
    replies = [backend.submit(call) for call in calls]
    return [reply.result(SECONDS_TO_END).outputs[0].text for reply in replies]


def struck(programs: Programs, fault: Fault, num: int, chance: random.Random) -> Outcome:
    """Open calls, strike at the moment, and watch."""
    backend = programs.backend(fault)
    ends = Counter[Reply]()
    last = [0.0]

    def note_end(reply: Reply) -> None:
        ends[reply] += 1
        last[0] = time.perf_counter()

    calls = [] if fault.moment == "idle" else _calls(fault.moment, num, chance)
    sampled = _count(backend, "sampled_tokens")
    replies = [backend.submit(call) for call in calls]
    for reply in replies:
        reply.when_done(note_end)
    if not _has_come(programs, backend, fault, sampled, chance):
        return Outcome(fault, num, num, 0.0, 0.0, f"no {fault.process} at {fault.moment}")
    programs.note_members()
    restarts = _restarts(backend)
    num_open, at = sum(not reply.done() for reply in replies), time.perf_counter()
    _strike(programs, fault)
    back, problem = _back(programs, backend, fault, at, restarts)
    while not all(reply.done() for reply in replies) and time.perf_counter() < at + SECONDS_TO_END:
        time.sleep(0.01)
    is_over = all(reply.done() for reply in replies)
    twice = sum(count != 1 for count in ends.values())
    problem = problem or (f"{twice} calls did not end once" if twice else "")
    if fault.moment == "compile" and not problem:
        problem = _compiles(programs, fault, calls[0])
    ended = round(max(0.0, last[0] - at), 2) if is_over else None
    return Outcome(fault, len(replies), num_open, ended, back, problem)


def _calls(moment: str, num: int, chance: random.Random) -> list[Call]:
    sampling = Sampling(max_tokens=max(100, _NEW_TOKENS // num), temperature=0, ignore_eos=True)
    num_words = 200 if moment == "prefill" else 4
    texts = [" ".join(str(chance.randrange(1000)) for _ in range(num_words)) for _ in range(num)]
    calls = [Call((Text(f"{at} {text}"),), sampling) for at, text in enumerate(texts)]
    if moment == "compile":
        schema = JsonSchema(slow_enum(chance))
        calls[0] = Call((Text("A:"),), Sampling(max_tokens=40, temperature=0), constraint=schema)
    return calls


def _has_come(
    programs: Programs, backend: Backend, fault: Fault, sampled: float, chance: random.Random
) -> bool:
    """Wait until calls are where the fault is to strike; whether they came there."""

    def is_here() -> bool:
        if fault.process in MODULES and len(programs.processes(fault.process)) <= (
            fault.process == "spare"
        ):
            return False
        if fault.moment == "decode":
            return _count(backend, "sampled_tokens") > sampled
        return fault.moment != "compile" or bool(programs.processes("compiler"))

    end = time.monotonic() + SECONDS_TO_COME
    while not is_here():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    time.sleep(chance.uniform(0.02, 1.0 if fault.moment == "compile" else 0.2))
    return True


def _count(backend: Backend, name: str) -> float:
    return backend.info().counters[name]


def _strike(programs: Programs, fault: Fault) -> None:
    if fault.process == "thread":
        ident, kind = ctypes.c_ulong(programs.engine_thread()), ctypes.py_object(InjectedFault)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, kind)
        return
    pids = programs.processes(fault.process)
    with suppress(ProcessLookupError):
        os.kill(pids[-1 if fault.process == "spare" else 0], SIGNALS[fault.signal])


def _back(
    programs: Programs, backend: Backend, fault: Fault, at: float, restarts: float
) -> tuple[float | None, str]:
    """Seconds from the fault until all reference answers came, and what was wrong with them.
    restarts: of its engine, before the fault."""
    is_noticed = not fault.is_deadly
    while time.perf_counter() - at < SECONDS_TO_RETURN + SECONDS_TO_END:
        try:
            found = reference(backend)
        except BackendClosed:
            is_noticed = True
            if fault.where == "program":
                backend = programs.replace()
        except (ForkrootError, TimeoutError) as error:
            return None, f"the reference ended in {error!r}"
        else:
            is_noticed = is_noticed or _restarts(backend) > restarts
            if is_noticed:
                seconds = round(time.perf_counter() - at, 2)
                return seconds, "" if found == programs.expected else f"other answers: {found}"
        time.sleep(0.02)
    return None, "" if is_noticed else "the fault was not noticed"


def _restarts(backend: Backend) -> float:
    with suppress(BackendClosed):
        return backend.info().counters.get("restarts", 0)
    return 0


def _compiles(programs: Programs, fault: Fault, call: Call) -> str:
    """Whether the constraint that was being compiled can be used afterwards."""
    try:
        programs.backend(fault._replace(process="compiler")).submit(call).result(60)
    except (ForkrootError, TimeoutError) as error:
        return f"the constraint is not answered: {error!r}"
    return ""
