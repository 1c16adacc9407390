"""A fault: which part of which composition is struck, how and when; and what came of it."""

from __future__ import annotations

import random
import signal
from typing import Any, NamedTuple

SECONDS_TO_END, SECONDS_TO_RETURN = 15.0, 10.0
SECONDS_TO_COME = 20.0  # to the moment of a fault
MODULES = {
    "engine": "core.child",
    "spare": "core.child",
    "rank": "core.rank",
    "compiler": "core.process.compile_worker",
}
SIGNALS = {"KILL": signal.SIGKILL, "STOP": signal.SIGSTOP, "TERM": signal.SIGTERM}
RAISE = "RAISE"  # an exception in a thread
_MOMENTS = ("idle", "prefill", "decode", "compile")


class Fault(NamedTuple):
    """process: "server", a key of MODULES, or "thread" (the engine's). signal: a key of SIGNALS, or
    RAISE. moment: when it strikes. where: "server", or a program with its engine in a "child" or
    in its own process ("program")."""

    process: str
    signal: str
    moment: str
    where: str = "server"

    def __str__(self) -> str:
        return f"{self.where}: {self.process} {self.signal} {self.moment}"

    @property
    def ranks(self) -> int:
        """Of the engine that it needs."""
        return 2 if self.process == "rank" else 1

    @property
    def is_deadly(self) -> bool:
        """Whether the engine dies of it."""
        return self.process in ("engine", "rank", "thread")


class Outcome(NamedTuple):
    """What one fault did. problem: "" or what was not as it must be. Times in seconds from the
    fault; None for never. open: calls that had not ended when it struck."""

    fault: Fault
    calls: int
    open: int
    ended: float | None
    back: float | None
    problem: str


def _faults(where: str, processes: tuple[str, ...], *moments: str) -> tuple[Fault, ...]:
    return tuple(
        Fault(process, name, moment, where)
        for process in processes
        for name in SIGNALS
        for moment in moments
    )


MATRIX = (
    *_faults("server", ("server", "engine", "rank"), *_MOMENTS),
    *_faults("server", ("compiler",), "compile"),
    *_faults("server", ("spare",), "idle"),
    *_faults("child", ("engine",), *_MOMENTS),
    *_faults("child", ("compiler",), "compile"),
    *_faults("child", ("spare",), "idle"),
    *(Fault("thread", RAISE, moment, "program") for moment in _MOMENTS),
    *_faults("program", ("rank",), "idle", "decode"),
    *_faults("program", ("compiler",), "compile"),
)


def slow_enum(chance: random.Random) -> dict[str, Any]:
    """A schema that takes a compiler about a second, and that nobody has used."""
    return {"enum": ["".join(chance.choices("abcdefghijklmnop", k=12)) for _ in range(3000)]}
