"""What a scenario gets and gives: a plan, and a verdict made of bars.

A scenario runs in a process group of its own, under its bound, and all that it started is ended.

Every process that descends from it bears a mark in its environment, whatever session it is in: one
that is left after the scenario is a fault, and is killed. Reads /proc: Linux only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from forkroot.benchmarks.common.processes import command_of, family


@dataclass(frozen=True, slots=True)
class Plan:
    """seed: of all choices. seconds: that the scenario should take. is_full: with all repetitions.
    slack: seconds for starts, and for the ends of processes; see `bound`. faults: which of the
    kill matrix, from one to before another; None: all."""

    seed: int = 0
    seconds: float = 20.0
    is_full: bool = False
    slack: float = 60.0
    faults: tuple[int, int] | None = None

    @property
    def bound(self) -> float:
        """Seconds after which the scenario is ended, and has failed; enough for a busy machine."""
        return 3 * self.seconds + self.slack


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a scenario ended. passed: None where it was skipped. reason: why it was skipped or has
    failed. seconds: of the whole scenario."""

    name: str
    passed: bool | None
    figures: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0

    @property
    def word(self) -> str:
        """The verdict in a word."""
        return {True: "passed", False: "FAILED", None: "skipped"}[self.passed]

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


class Skipped(Exception):
    """The scenario cannot run here; its text says what is missing."""


class Bars:
    """The figures of a scenario, and which of them miss their bar."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.missed: list[str] = []

    def note(self, **figures: Any) -> None:
        """Figures without a bar."""
        self.figures.update(figures)

    def equal(self, name: str, value: Any, expected: Any) -> None:
        """A figure that must have this value."""
        self._add(name, value, value == expected, f"expected {expected}")

    def at_most(self, name: str, value: float | None, limit: float) -> None:
        """A figure with an upper bar; None, for what never came, misses it."""
        self._add(name, value, value is not None and value <= limit, f"expected at most {limit:g}")

    def at_least(self, name: str, value: float, limit: float) -> None:
        """A figure with a lower bar."""
        self._add(name, value, value >= limit, f"expected at least {limit:g}")

    def verdict(self, name: str) -> Verdict:
        """Passed if no bar was missed."""
        return Verdict(name, not self.missed, self.figures, "; ".join(self.missed))

    def _add(self, name: str, value: Any, is_good: bool, expected: str) -> None:
        self.figures[name] = value
        if not is_good:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            self.missed.append(f"{name} is {shown[:200]}, {expected}")


Scenario: TypeAlias = Callable[[Plan], Verdict]
MARK = "FORKROOT_CAMPAIGN_RUN"
_LOG_END = 1500  # characters of its output that the reason of a failure shows
_SECONDS_TO_END = 10.0  # that processes have to go after their scenario
_WORKER = (
    "import sys; from importlib import import_module as load; "
    "from forkroot.benchmarks.campaign import runner; "
    "runner.work(getattr(load(sys.argv[1]), sys.argv[2]), *sys.argv[3:])"
)


def run(name: str, scenario: Scenario, plan: Plan) -> Verdict:
    """The verdict of a scenario, whatever it does. scenario: a function of a module."""
    mark = uuid.uuid4().hex
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="forkroot-campaign-") as folder:
        result, log = Path(folder) / "verdict.json", Path(folder) / "log"
        command = [
            *(sys.executable, "-c", _WORKER, scenario.__module__, scenario.__name__),
            *(name, json.dumps(asdict(plan)), str(result)),
        ]
        process: subprocess.Popen[bytes] | None = None
        try:
            process = _start(command, _environment({MARK: mark, "TMPDIR": folder}), log)
            process.wait(plan.bound)
            left = _left(mark, min(plan.slack, _SECONDS_TO_END))
        except subprocess.TimeoutExpired:
            left = None
        finally:
            kill_marked(mark)
            if process is not None:
                process.wait()
        verdict = _verdict(name, result, log)
    seconds = round(time.monotonic() - start, 1)
    if left is None:
        reason = f"not over after {plan.bound:g} s"
        verdict = Verdict(name, False, verdict.figures, reason)
    elif left:
        reason = "; ".join(filter(None, [verdict.reason, f"processes left: {left}"]))
        verdict = replace(verdict, passed=False, reason=reason)
    return replace(verdict, seconds=seconds)


def _start(
    command: list[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, or leave none where a signal ends this meanwhile."""
    before = set(family(os.getpid()))
    try:
        with log.open("wb") as out:
            return subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except BaseException:  # it bears no mark until its program runs
        for pid in set(family(os.getpid())) - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise


def work(scenario: Scenario, name: str, plan: str, result: str) -> None:
    """Run a scenario in this process, and write its verdict to a file."""
    try:
        verdict = scenario(Plan(**json.loads(plan)))
    except Skipped as reason:
        verdict = Verdict(name, None, reason=str(reason))
    Path(result).write_text(json.dumps(replace(verdict, name=name).as_json()))


def marked(mark: str) -> list[int]:
    """Processes that bear this mark; ended ones that nobody has waited for do not count."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def kill_marked(mark: str) -> None:
    """End all processes that bear this mark."""
    while pids := marked(mark):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _left(mark: str, seconds: float) -> list[str]:
    """Command lines of what has not ended so long after its scenario."""
    end = time.monotonic() + seconds
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return [command_of(pid)[-100:] for pid in marked(mark)]


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """This one's; packages are found where this process finds them."""
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **more}


def _verdict(name: str, result: Path, log: Path) -> Verdict:
    try:
        return Verdict(**json.loads(result.read_text()))
    except (OSError, ValueError):
        text = log.read_text("utf-8", "replace")[-_LOG_END:].strip()
        return Verdict(name, False, reason=f"it gave no verdict: {text}")
