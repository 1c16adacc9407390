"""Whoever waits for loops to be compiled sees how many of how many, and for how long."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forkroot.core.common import compiling
from forkroot.core.common.compiling import Progress, Shown

from ...preloaded import run
from ...preloader import Forks

pytest.importorskip("numba")

PARTS = """
import sys

from forkroot.kernels.cpu.jit.jit import compiled
from forkroot.kernels.plain import PlainAttention

def double(x):
    x[0] *= 2

def half(x):
    x[0] /= 2

class Made(PlainAttention):
    def __init__(self, pool):
        super().__init__(pool.device)
        for function in (double, half):
            compiled(function, "void(float64[::1])")
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def connected(forks: Forks | None, folder: Path, process: bool) -> tuple[str, str]:
    """What a process says on both streams whose engine has two loops more than others."""
    (folder / "loops_of_a_test.py").write_text(PARTS)
    settings = f"attention='loops_of_a_test:Made', process={process}, num_slots=512"
    program = f"from forkroot import connect; connect('tiny', {settings}).close()"
    paths = os.pathsep.join([str(folder), *sys.path])
    env = {**os.environ, "PYTHONPATH": paths}
    done = run(forks, [sys.executable, "-c", program], timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.timeout(900)  # a loaded machine that has compiled nothing yet
def test_a_start_reports_compiling_once_and_nothing_where_all_is_cached(
    tmp_path: Path, forks: Forks | None
) -> None:
    message = re.compile(r"forkroot: compiling \d+ loops? for this processor, once: about \d+ s\n")
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
    out, err = connected(forks, tmp_path / "one", process=True)
    assert not out
    assert message.fullmatch(err)
    assert connected(forks, tmp_path / "one", process=False) == ("", "")
    out, err = connected(forks, tmp_path / "other", process=False)
    assert not out
    assert message.fullmatch(err)


USED = """
import json, sys

from forkroot import connect
from forkroot.core.model.checkpoint import loops as ahead
from forkroot.kernels.cpu.jit import loops

planned, reported = [], []
required = ahead.required_loops
ahead.required_loops = lambda model: planned.extend(required(model)) or required(model)
loops.listen(lambda name, event: reported.append((name, event)))
with connect("tiny", process=False, num_slots=512, dtype=sys.argv[1]) as backend:
    pass
print(json.dumps([sorted(loop.name for loop in planned), reported]))
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_start_compiles_ahead_what_its_model_uses_and_nothing_else(dtype: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USED, dtype],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    planned, reported = json.loads(done.stdout)
    loaded = {name for name, event in reported if event == "cached"}
    of_steps = {"rows.apply_rotary", "rows.silu_mul"}  # where several threads share a step
    assert loaded | of_steps & set(planned) == set(planned)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, float]]:
    """What was shown."""
    found: list[tuple[int, int, float]] = []
    monkeypatch.setattr(compiling, "show", lambda *progress: found.append(progress))
    return found


@pytest.fixture
def progress() -> Progress:
    """At a clock that goes on by two seconds each time."""
    return Progress(itertools.count(100.0, 2.0).__next__)


def test_loops_are_counted_and_the_rest_is_estimated_by_the_pace_so_far(
    shown: list[tuple[int, int, float]], progress: Progress
) -> None:
    progress.expect({"a": 1.0, "b": 3.0, "c": 8.0})
    progress("c", "cached")
    for name in ("a", "b"):
        progress(name, "started")
        progress(name, "done")
    assert [(done, total) for done, total, _ in shown] == [(0, 2), (1, 2), (2, 2)]
    assert shown[0][2] == 4.0  # no pace is known yet
    assert shown[1][2] == 6.0  # two seconds for what was to take one
    assert shown[2][2] == 0


def test_loops_that_are_compiled_at_a_time_share_the_time(
    shown: list[tuple[int, int, float]], progress: Progress
) -> None:
    progress.expect({"a": 4.0, "b": 4.0, "c": 4.0}, num_workers=2)
    progress("a", "started")
    progress("b", "started")
    progress("a", "done")
    progress("b", "done")
    assert [(done, total) for done, total, _ in shown] == [(0, 3), (1, 3), (2, 3)]
    assert shown[0][2] == 6.0
    assert shown[1][2] == 4.0  # two of `b`, which has begun, and all of `c`
    assert shown[2][2] == 4.0


def test_loops_that_nobody_planned_are_counted_with_those_that_were(
    shown: list[tuple[int, int, float]], progress: Progress
) -> None:
    progress.expect({"a": 1.0})
    for name in ("a", "new"):
        progress(name, "started")
        progress(name, "done")
    progress.end()
    assert [(done, total) for done, total, _ in shown] == [(0, 1), (1, 1), (1, 2), (2, 2), (2, 2)]


def test_loops_that_nobody_expected_are_counted_too_and_one_alone_is_shown(
    shown: list[tuple[int, int, float]], progress: Progress
) -> None:
    progress("new", "started")
    progress("new", "done")
    progress("newer", "started")
    assert [(done, total) for done, total, _ in shown] == [(0, 1), (1, 1), (0, 1)]


def test_what_was_expected_and_never_wanted_does_not_keep_a_bar(
    shown: list[tuple[int, int, float]], progress: Progress
) -> None:
    progress.expect({"a": 1.0, "b": 3.0})
    progress("a", "started")
    progress("a", "done")
    progress.end()
    assert [(done, total) for done, total, _ in shown] == [(0, 2), (1, 2), (1, 1)]


def test_all_that_is_kept_is_not_shown(
    shown: list[tuple[int, int, float]], progress: Progress
) -> None:
    progress.expect({"a": 1.0, "b": 3.0})
    progress("a", "cached")
    progress.end()
    assert shown == []


def test_a_terminal_shows_a_bar_that_goes_when_all_is_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    show = Shown()
    for done in range(3):
        show(done, 2, 20.0 - 10 * done)
    text = terminal.getvalue()
    assert "0/2 loops, about 20 s left" in text
    assert "1/2 loops, about 10 s left" in text
    assert text.endswith("\r")
    assert not caplog.records


def test_a_bar_comes_back_for_loops_that_nobody_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    show = Shown()
    for done, total in ((0, 1), (1, 1), (1, 2), (2, 2), (2, 2)):
        show(done, total, 5.0)
    assert "1/2 loops, about 5 s left" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")


def test_elsewhere_one_line_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    show = Shown()
    for done in range(3):
        show(done, 2, 42.0)
    (record,) = caplog.records
    expected = "forkroot: compiling 2 loops for this processor, once: about 40 s"
    assert record.getMessage() == expected
