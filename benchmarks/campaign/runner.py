"""Runs one scenario in a process group of its own, under its bound, and ends all that it started.

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
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeAlias

from forkroot.benchmarks.campaign.verdict import Plan, Skipped, Verdict
from forkroot.benchmarks.common.processes import command_of

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
        with log.open("wb") as out:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _WORKER, scenario.__module__, scenario.__name__),
                    *(name, json.dumps(asdict(plan)), str(result)),
                ],
                env=_environment({MARK: mark, "TMPDIR": folder}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            process.wait(plan.bound)
            left = _left(mark, min(plan.slack, _SECONDS_TO_END))
        except subprocess.TimeoutExpired:
            left = None
        finally:
            kill_marked(mark)
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
