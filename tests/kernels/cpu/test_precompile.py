"""Loops are compiled by several processes before their first use, or by this one where that cannot
be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("numba")

import numba

from forkroot.kernels.cpu.jit import code_cache, precompile, precompile_worker
from forkroot.kernels.cpu.jit.loops import LOOPS, Event
from forkroot.kernels.cpu.jit.precompile import Plan, num_workers, plan, run

SMALL = tuple(loop for loop in LOOPS if loop.name in ("unshared_rows.plan", "masks._argmax"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Event]]:
    """What listeners are notified of."""
    events: list[tuple[str, Event]] = []
    monkeypatch.setattr(precompile, "notify", lambda *event: events.append(event))
    return events


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The processes that are started."""
    found: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*given: Any, **settings: Any) -> subprocess.Popen[bytes]:
        found.append(popen(*given, **settings))
        return found[-1]

    monkeypatch.setattr(precompile.subprocess, "Popen", start)
    return found


def subprocess_of(program: str, *arguments: str, **environment: str) -> str:
    """What a Python process says that finds modules where this one does."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *arguments, program],
        env={**os.environ, **paths, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_workers_compile_loops_into_the_cache_of_this_process(
    cache: Path, notified: list[tuple[str, Event]], started: list[subprocess.Popen[bytes]]
) -> None:
    run(Plan(SMALL, 2))
    assert plan(SMALL).loops == ()
    assert sorted(notified) == sorted(
        (loop.name, event) for loop in SMALL for event in ("started", "done")
    )
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_of_processes_that_start_together_one_compiles(
    cache: Path, notified: list[tuple[str, Event]], started: list[subprocess.Popen[bytes]]
) -> None:
    compiler, _ = precompile.compiler_of(SMALL[0])
    with code_cache.compiling_lock(compiler, 60) as has_waited:
        assert not has_waited
        other = threading.Thread(target=run, args=(Plan(SMALL, 2),))
        other.start()
        assert all(precompile_worker._compile(loop) for loop in SMALL)
        assert (started, notified) == ([], [])
    other.join()
    assert started == []
    assert notified == [(loop.name, "cached") for loop in SMALL]


def test_a_process_that_compiles_for_ever_keeps_no_other_waiting(cache: Path) -> None:
    compiler, _ = precompile.compiler_of(SMALL[0])
    with (
        code_cache.compiling_lock(compiler, 60),
        code_cache.compiling_lock(compiler, 0.2) as has_waited,
    ):
        assert has_waited


def test_only_loops_that_are_not_in_the_cache_are_planned(cache: Path) -> None:
    assert plan(SMALL).loops == SMALL
    run(Plan(SMALL[:1], 1))
    assert plan(SMALL).loops == SMALL[1:]


def test_a_worker_compiles_for_the_features_that_this_process_is_restricted_to(
    tmp_path: Path,
) -> None:
    program = (
        "from forkroot.kernels.cpu.jit import precompile, loops\n"
        "small = [loop for loop in loops.LOOPS if loop.name == 'unshared_rows.plan']\n"
        "precompile.run(precompile.Plan(tuple(small), 1))\n"
        "print(precompile.plan(small).loops)"
    )
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "FORKROOT_CPU_FEATURES": "sse4.2"}
    assert subprocess_of(program, "-c", **settings) == "()\n"


def test_workers_do_not_run_the_program_again(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "print('run')\n"
        "from forkroot.kernels.cpu.jit import loops, precompile\n"
        "small = [loop for loop in loops.LOOPS if loop.name == 'unshared_rows.plan']\n"
        "precompile.run(precompile.Plan(tuple(small), 1))\n"
        "print(precompile.plan(small).loops)"
    )
    (tmp_path / "json.py").write_text("raise RuntimeError('shadows the standard library')")
    output = subprocess_of(str(file), "-P", NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert output == "run\n()\n"


def test_every_loop_of_the_list_is_found_without_torch() -> None:
    program = (
        "import sys\n"
        "from forkroot.kernels.cpu.jit import loops, precompile, precompile_worker\n"
        "for loop in loops.LOOPS:\n"
        "    precompile.compiler_of(loop)\n"
        "print('torch' in sys.modules)"
    )
    assert subprocess_of(program, "-c") == "False\n"


def test_what_workers_cannot_compile_is_left_to_this_process(
    cache: Path, notified: list[tuple[str, Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompile.sys, "executable", "/bin/false")
    run(Plan(SMALL, 2))
    monkeypatch.setattr(precompile.sys, "executable", "/nowhere")
    run(Plan(SMALL, 2))
    assert plan(SMALL).loops == SMALL
    assert notified == []


def test_a_worker_with_other_settings_compiles_nothing(
    cache: Path, notified: list[tuple[str, Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompile, "fingerprint", lambda: "other")
    run(Plan(SMALL, 1))
    assert plan(SMALL).loops == SMALL
    assert notified == []


def test_an_interrupt_ends_the_workers(
    cache: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*event: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(precompile, "notify", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(Plan(SMALL, 2))
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_a_worker_ends_amid_a_loop_when_its_parent_is_gone(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from forkroot.kernels.cpu.jit.precompile_worker import main; main()",
        ],
        env={
            **os.environ,
            "NUMBA_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stdout.readline().startswith(b"ready ")
    longest = max(LOOPS, key=lambda loop: loop.seconds)
    out, _ = worker.communicate(json.dumps(longest).encode() + b"\n", timeout=60)
    assert worker.returncode == 0
    assert out == b""
    assert not list(tmp_path.rglob("*.nbc"))


def test_this_process_compiles_where_workers_cannot_help(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plan(LOOPS, 2) == Plan(LOOPS, 2)
    assert plan(LOOPS, 1).num_workers == 0
    assert plan(SMALL[:1], 8).num_workers == 0
    with monkeypatch.context() as patch:
        daemon = SimpleNamespace(daemon=True)
        patch.setattr(precompile.multiprocessing, "current_process", lambda: daemon)
        assert plan(LOOPS, 2) == Plan(LOOPS, 0)
    with monkeypatch.context() as patch:
        patch.setattr(precompile.sys, "executable", "")
        assert plan(LOOPS, 2) == Plan(LOOPS, 0)


def test_this_process_compiles_where_nothing_can_be_cached(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise RuntimeError("there are no files to go by")

    monkeypatch.setattr(code_cache, "_stamp", missing)
    assert plan(LOOPS, 2) == Plan(LOOPS, 0)


def test_no_more_workers_are_started_than_end_sooner_for_it() -> None:
    numbers = [num_workers(LOOPS, num_cores) for num_cores in (2, 4, 64, 128)]
    assert numbers == sorted(numbers)
    assert numbers[0] == 2
    assert numbers[2] == numbers[3] < len(LOOPS)


def test_the_longest_loop_is_first_and_then_those_with_functions_in_common() -> None:
    first = precompile.next_loop(LOOPS, set())
    assert first.seconds == max(loop.seconds for loop in LOOPS)
    rest = [loop for loop in LOOPS if loop != first]
    second = precompile.next_loop(rest, {first.family})
    assert second.family == first.family
