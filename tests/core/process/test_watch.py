"""Which process hangs and which is slow: by processor time, and by what ranks say of themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forkroot.core.process import watch
from forkroot.core.process.beats import Beat, Pulse, Vigil
from forkroot.core.process.watch import Watched, heirs, spent

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
        for pid in (*heirs(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def take(pid: int, seconds: float) -> None:
    """Wait until a process has taken so much processor time from now on."""
    before = spent(pid)
    while spent(pid) < before + seconds:
        pass


def test_a_process_that_takes_no_processor_time_is_quiet(run) -> None:
    watched = Watched(run(SLEEPS).pid, patience=4.0)
    watched.look(1.0, "as before")
    quiet = []
    for _ in range(5):
        watched.look(1.0, "as before")
        quiet.append(watched.quiet)
    assert quiet == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_process_that_makes_progress_or_is_excused_is_not(run) -> None:
    watched = Watched(run(SLEEPS).pid, patience=4.0)
    for step in range(4):
        watched.look(3.0, step)
        assert watched.quiet == 0.0
    watched.look(3.0, 3)
    assert watched.quiet == 3.0
    watched.look(3.0, 3, is_excused=True)
    assert watched.quiet == 0.0


def test_a_process_that_computes_is_not_quiet_until_it_is_stopped(run) -> None:
    process = run(WORKS)
    watched = Watched(process.pid, patience=4.0)
    watched.look(1.0, "as before")
    for _ in range(3):
        take(process.pid, 0.05)
        watched.look(1.0, "as before")
        assert watched.quiet == 0.0
    process.send_signal(signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)
    watched.look(1.0, "as before")  # what it took before it was stopped
    for _ in range(4):
        watched.look(1.0, "as before")
    assert watched.quiet >= 4.0


def test_a_process_that_waits_for_one_that_it_has_started_is_not_quiet(run) -> None:
    process = run(LETS_WORK)
    (heir,) = heirs(process.pid)
    watched = Watched(process.pid, patience=4.0)
    watched.look(1.0, "as before")
    watched.look(1.0, "as before")
    watched.look(1.0, "as before")  # from now on its heirs are looked at
    assert watched.quiet == 2.0
    take(heir, 0.1)
    watched.look(1.0, "as before")
    assert watched.quiet == 0.0


def test_a_process_that_a_debugger_holds_is_not_quiet(run, monkeypatch) -> None:
    monkeypatch.setattr(watch, "is_traced", lambda pid: True)
    watched = Watched(run(SLEEPS).pid, patience=4.0)
    for _ in range(9):
        watched.look(1.0, "as before")
        assert watched.quiet < 4.0


def test_where_the_kernel_tells_nothing_a_word_is_a_sign(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(watch, "_PROC", tmp_path)
    watched = Watched(1, patience=4.0)
    for _ in range(9):
        watched.look(1.0, "as before", is_heard=True)
        assert watched.quiet == 0.0
    watched.look(1.0, "as before")
    watched.look(1.0, "as before")
    assert watched.quiet == 2.0


# --- ranks ---------------------------------------------------------------------------------------


class Still:
    """Signs of a process that takes no processor time. is_working: or it does."""

    def __init__(self) -> None:
        self.quiet = 0.0
        self.is_working = False
        self._progress: object = None

    def look(
        self, seconds: float, progress: object, is_excused: bool = False, is_heard: bool = False
    ) -> None:
        is_alive = is_excused or self.is_working or progress != self._progress
        self.quiet = 0.0 if is_alive else self.quiet + seconds
        self._progress = progress


IDLE, WAITS, WORKS_ON = Beat(3, 3, 40, False), Beat(4, 3, 45, True), Beat(4, 3, 44, False)


class Watching:
    """Two other ranks under a vigil that looks every second for a patience of 5."""

    def __init__(self, is_far: bool = False) -> None:
        self.ranks = [Pulse(1, Still()), Pulse(2, Still())]
        self.vigil = Vigil(self.ranks, 5.0, is_far)

    def ends_in(self, first: Beat, beats: tuple[Beat, Beat], silent: int | None = None) -> str:
        """What it says within 100 seconds; `silent` says nothing any more after the first."""
        for second in range(100):
            for pulse, beat in zip(self.ranks, beats, strict=True):
                if pulse.rank != silent or not second:
                    pulse.hear(beat)
            fault = self.vigil.look(1.0, first)
            if fault is not None:
                return f"{fault} at {second}"
        return ""


def test_idle_ranks_do_not_hang() -> None:
    assert Watching().ends_in(Beat(3, 3, 40, False), (IDLE, IDLE)) == ""


def test_ranks_that_wait_for_a_slow_one_do_not_hang() -> None:
    assert Watching().ends_in(WORKS_ON, (WAITS, WAITS)) == ""
    two_slow = Watching()
    two_slow.ranks[0].signs.is_working = True
    assert two_slow.ends_in(WAITS, (WORKS_ON, WAITS)) == ""


def test_a_rank_that_neither_works_nor_waits_hangs_and_those_that_wait_for_it_do_not() -> None:
    assert "rank 2 of the model hangs" in Watching().ends_in(WAITS, (WAITS, WORKS_ON))


def test_a_rank_that_is_stopped_while_it_waits_hangs() -> None:
    said = Watching().ends_in(WORKS_ON, (WAITS, WAITS), silent=2)
    assert "rank 2 of the model hangs: no sign of life for 5.0 s" in said


def test_ranks_that_all_wait_hang() -> None:
    assert "rank 1 of the model hangs" in Watching().ends_in(WAITS, (WAITS, WAITS))
    assert "rank 0 of the model has waited 5.0 s for what no rank does" in Watching().ends_in(
        WAITS, (Beat(4, 4, 60, False), Beat(4, 4, 60, False))
    )


def test_a_rank_at_a_device_is_given_ten_times_as_long_while_it_says_something() -> None:
    assert Watching(is_far=True).ends_in(WAITS, (WORKS_ON, IDLE), silent=1).endswith("at 5")
    assert Watching(is_far=True).ends_in(WAITS, (WORKS_ON, WAITS)).endswith("at 50")
