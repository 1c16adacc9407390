"""Hanging and slow processes are distinguished by processor time and by the heartbeats of ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forkroot.core.process import liveness
from forkroot.core.process.liveness import LivenessMonitor, cpu_seconds, descendants
from forkroot.core.process.ranks import Heartbeat, RankMonitor, RankStatus

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")

SLEEPS = "import time; print(flush=True); time.sleep(100)"
WORKS = "print(flush=True)\nwhile True: pass"
LETS_WORK = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKS!r}])"


@pytest.fixture
def run() -> Iterator:
    """Starts a program that says when it has begun; gives its process."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(program: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return process

    yield begin
    for process in started:
        for pid in (*descendants(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def take(pid: int, seconds: float) -> None:
    """Wait until a process has taken so much processor time from now on."""
    before = cpu_seconds(pid)
    while cpu_seconds(pid) < before + seconds:
        pass


def test_a_process_that_takes_no_processor_time_is_silent(run) -> None:
    monitor = LivenessMonitor(run(SLEEPS).pid, timeout=4.0)
    monitor.update(1.0, "as before")
    silent = []
    for _ in range(5):
        monitor.update(1.0, "as before")
        silent.append(monitor.silent_seconds)
    assert silent == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_process_that_makes_progress_or_is_excused_is_not(run) -> None:
    monitor = LivenessMonitor(run(SLEEPS).pid, timeout=4.0)
    for step in range(4):
        monitor.update(3.0, step)
        assert monitor.silent_seconds == 0.0
    monitor.update(3.0, 3)
    assert monitor.silent_seconds == 3.0
    monitor.update(3.0, 3, is_excused=True)
    assert monitor.silent_seconds == 0.0


def test_a_process_that_computes_is_not_silent_until_it_is_stopped(run) -> None:
    process = run(WORKS)
    monitor = LivenessMonitor(process.pid, timeout=4.0)
    monitor.update(1.0, "as before")
    for _ in range(3):
        take(process.pid, 0.05)
        monitor.update(1.0, "as before")
        assert monitor.silent_seconds == 0.0
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    monitor.update(1.0, "as before")  # what it took before it was stopped
    for _ in range(4):
        monitor.update(1.0, "as before")
    assert monitor.silent_seconds >= 4.0


def test_a_process_that_waits_for_one_that_it_has_started_is_not_silent(run) -> None:
    process = run(LETS_WORK)
    (child,) = descendants(process.pid)
    monitor = LivenessMonitor(process.pid, timeout=4.0)
    monitor.update(1.0, "as before")
    monitor.update(1.0, "as before")
    monitor.update(1.0, "as before")  # from now on its descendants count
    assert monitor.silent_seconds == 2.0
    take(child, 0.1)
    monitor.update(1.0, "as before")
    assert monitor.silent_seconds == 0.0


def test_a_process_that_a_debugger_holds_is_not_silent(run, monkeypatch) -> None:
    monkeypatch.setattr(liveness, "is_traced", lambda pid: True)
    monitor = LivenessMonitor(run(SLEEPS).pid, timeout=4.0)
    for _ in range(9):
        monitor.update(1.0, "as before")
        assert monitor.silent_seconds < 4.0


def stopped(process: subprocess.Popen[bytes]) -> None:
    """Stop it, and wait until it is."""
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def test_a_stopped_process_hangs_after_a_fifth_of_the_timeout_even_without_work(run) -> None:
    process = run(SLEEPS)
    monitor = LivenessMonitor(process.pid, timeout=15.0)
    monitor.update(1.5, 0, is_excused=True)
    stopped(process)
    faults = []
    for _ in range(4):
        monitor.update(1.5, 0, is_excused=True)
        faults.append(monitor.fault(factor=10))
    assert faults == [None, None, *(f"stopped by a signal for {n} s" for n in ("3.0", "4.5"))]
    assert monitor.silent_seconds == 0.0
    process.send_signal(signal.SIGCONT)
    os.waitpid(process.pid, os.WCONTINUED)
    monitor.update(1.5, 0, is_excused=True)
    assert monitor.fault() is None


def test_a_process_that_works_between_stops_does_not_hang(run) -> None:
    process = run(WORKS)
    monitor = LivenessMonitor(process.pid, timeout=15.0)
    for _ in range(5):
        process.send_signal(signal.SIGCONT)
        take(process.pid, 0.02)
        stopped(process)
        monitor.update(3.0, 0)
        assert monitor.fault() is None


def test_a_stopped_process_that_a_debugger_holds_does_not_hang(run, monkeypatch) -> None:
    monkeypatch.setattr(liveness, "is_traced", lambda pid: True)
    process = run(SLEEPS)
    stopped(process)
    monitor = LivenessMonitor(process.pid, timeout=15.0)
    for _ in range(9):
        monitor.update(3.0, 0)
        assert monitor.fault() is None


def test_where_the_kernel_gives_no_processor_time_a_heartbeat_is_a_sign_of_life(
    monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr(liveness, "_PROC", tmp_path)
    monitor = LivenessMonitor(1, timeout=4.0)
    for _ in range(9):
        monitor.update(1.0, "as before", has_reported=True)
        assert monitor.silent_seconds == 0.0
    monitor.update(1.0, "as before")
    monitor.update(1.0, "as before")
    assert monitor.silent_seconds == 2.0


# --- ranks ---------------------------------------------------------------------------------------


class Still:
    """Liveness of a process that takes no processor time. is_working: or it does."""

    def __init__(self) -> None:
        self.silent_seconds = 0.0
        self.is_working = False
        self._progress: object = None

    def update(
        self, seconds: float, progress: object, is_excused: bool = False, has_reported: bool = False
    ) -> None:
        is_alive = is_excused or self.is_working or progress != self._progress
        self.silent_seconds = 0.0 if is_alive else self.silent_seconds + seconds
        self._progress = progress

    def fault(self, factor: float = 1.0) -> str | None:
        is_silent = self.silent_seconds >= 5.0 * factor
        return f"no sign of life for {self.silent_seconds:.1f} s" if is_silent else None


IDLE, WAITS, WORKS_ON = (
    Heartbeat(3, 3, 40, False),
    Heartbeat(4, 3, 45, True),
    Heartbeat(4, 3, 44, False),
)


class Monitored:
    """Two other ranks under a monitor that checks every second with a timeout of 5."""

    def __init__(self, has_device: bool = False) -> None:
        self.ranks = [RankStatus(1, Still()), RankStatus(2, Still())]
        self.monitor = RankMonitor(self.ranks, 5.0, has_device)

    def ends_in(
        self, first: Heartbeat, heartbeats: tuple[Heartbeat, Heartbeat], silent: int | None = None
    ) -> str:
        """What the monitor reports within 100 seconds; the rank `silent` sends no heartbeat after
        the first."""
        for second in range(100):
            for rank, heartbeat in zip(self.ranks, heartbeats, strict=True):
                if rank.rank != silent or not second:
                    rank.receive(heartbeat)
            fault = self.monitor.check(1.0, first)
            if fault is not None:
                return f"{fault} at {second}"
        return ""


def test_idle_ranks_do_not_hang() -> None:
    assert Monitored().ends_in(Heartbeat(3, 3, 40, False), (IDLE, IDLE)) == ""


def test_ranks_that_wait_for_a_slow_one_do_not_hang() -> None:
    assert Monitored().ends_in(WORKS_ON, (WAITS, WAITS)) == ""
    two_slow = Monitored()
    two_slow.ranks[0].liveness.is_working = True
    assert two_slow.ends_in(WAITS, (WORKS_ON, WAITS)) == ""


def test_a_rank_that_neither_works_nor_waits_hangs_and_those_that_wait_for_it_do_not() -> None:
    assert "rank 2 of the model hangs" in Monitored().ends_in(WAITS, (WAITS, WORKS_ON))


def test_a_rank_that_is_stopped_while_it_waits_hangs() -> None:
    verdict = Monitored().ends_in(WORKS_ON, (WAITS, WAITS), silent=2)
    assert "rank 2 of the model hangs: no sign of life for 5.0 s" in verdict


def test_ranks_that_all_wait_hang() -> None:
    assert "rank 1 of the model hangs" in Monitored().ends_in(WAITS, (WAITS, WAITS))
    assert "rank 0 of the model has waited 5.0 s for what no rank does" in Monitored().ends_in(
        WAITS, (Heartbeat(4, 4, 60, False), Heartbeat(4, 4, 60, False))
    )


def test_a_rank_with_a_device_has_ten_times_the_timeout_while_its_heartbeats_come() -> None:
    assert Monitored(has_device=True).ends_in(WAITS, (WORKS_ON, IDLE), silent=1).endswith("at 5")
    assert Monitored(has_device=True).ends_in(WAITS, (WORKS_ON, WAITS)).endswith("at 50")
