"""The script for GPUs runs without one: every stage in its own process, on shapes that say nothing.

It is the only thing here that a GPU's first hour stands on, so nothing in it may run there for the
first time.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

pytest.importorskip("triton")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPT = BENCHMARKS / "gpu" / "gpu.py"


class Ran(NamedTuple):
    """One run of the script: its exit status, its rows, and what it printed after them."""

    status: int
    rows: list[dict[str, Any]]
    table: str
    output: str


def run(*options: str, script: Path = SCRIPT) -> Ran:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), "--tiny", *options],
        capture_output=True,
        text=True,
        env=environment,
        cwd=script.parent,
    )
    lines = done.stdout.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    table = "\n".join(line for line in lines if not line.startswith("{"))
    return Ran(done.returncode, rows, table, done.stderr[-2000:])


@pytest.fixture
def tables() -> ModuleType:
    from forkroot.benchmarks.tables import gpu_tables

    return gpu_tables


def test_stages_measure_and_check_on_any_machine(tables: ModuleType) -> None:
    only = "^copy|product b|experts in|draw temperature|8b decode"
    ran = run("--stage", "ceilings", "--stage", "kernels", "--only", only)
    assert ran.status == 0, ran.output
    ceilings, kernels = (row["figures"] for row in ran.rows)
    assert set(ceilings["cases"]) == {"copy", "product bfloat16"}
    assert ceilings["cases"]["copy"]["GB_s"][0] > 0
    found = kernels["cases"]["mixtral-8x7b experts in"]["1"]
    assert found["is_right"] and 0 < found["error"] < 1e-5 and found["floor_us"] > 0
    assert [row["stage"] for row in ran.rows] == ["ceilings", "kernels"]
    assert "draw temperature 1" in ran.table and not kernels["skipped"]
    head, *lines = tables.kernels(ran.rows[1])
    assert len(lines) > len(kernels["cases"]) and all(len(line) == len(head) for line in lines)


def test_a_stage_without_time_skips_its_cases_and_says_so() -> None:
    ran = run("--stage", "ceilings", "--budget", "0.001")
    (row,) = ran.rows
    assert ran.status == 0 and row["figures"]["cases"] == {}
    assert "copy" in row["figures"]["skipped"] and "copy: no time was left" in ran.table


STAGE = """
import os, time
from forkroot.benchmarks.gpu.gpu_bench import Case


def cases(bench):
    yield Case("good", lambda: {"n": 1})
    yield Case("raises", lambda: {"n": 1 / 0})
    yield Case("wrong", lambda: {"deep": {"is_right": False}})
    yield Case("dies", lambda: os._exit(3))
    yield Case("after", lambda: {"n": 2})
    yield Case("hangs", lambda: time.sleep(600))
    yield Case("never", lambda: {"n": 3})
"""


OTHER_STAGES = """
from pathlib import Path

import forkroot.benchmarks.gpu
from forkroot.benchmarks.gpu import gpu

forkroot.benchmarks.gpu.__path__.insert(0, str(Path(__file__).parent))
gpu.__file__ = __file__  # what its children run
gpu.main()
"""


def other_stage(folder: Path) -> Path:
    """The script with a first stage of this test's: its package finds modules here first."""
    (folder / "gpu_ceilings.py").write_text(STAGE)
    (folder / "gpu_kernels.py").write_text("raise RuntimeError('no such thing')")
    (folder / "other_stages.py").write_text(OTHER_STAGES)
    return folder / "other_stages.py"


def test_a_case_that_fails_or_kills_its_process_leaves_the_others_alone(tmp_path: Path) -> None:
    options = ("--stage", "ceilings", "--stage", "kernels", "--only", "^[^hn]")
    ran = run(*options, script=other_stage(tmp_path))
    ceilings, kernels = ran.rows
    cases = ceilings["figures"]["cases"]
    assert list(cases) == ["good", "raises", "wrong", "dies", "after"]
    assert cases["good"] == {"n": 1} and cases["after"] == {"n": 2}
    assert cases["raises"] == {"error": "ZeroDivisionError: division by zero"}
    assert cases["dies"] == {"error": "its process ended: 3"}
    assert kernels["error"] == "RuntimeError: no such thing" and not kernels["figures"]["cases"]
    assert ran.status == 1
    marked = [line.split()[1] for line in ran.table.splitlines() if line.startswith("!")]
    assert marked == ["raises", "wrong", "dies", "RuntimeError:"]


@pytest.mark.slow
def test_a_case_that_hangs_is_ended_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    options = ("--stage", "ceilings", "--only", "good|hangs|never", "--budget", "15")
    ran = run(*options, script=other_stage(tmp_path))
    (row,) = ran.rows
    found = {"good": {"n": 1}, "hangs": {"error": "its time was over"}}
    assert row["figures"]["cases"] == found and ran.status == 1


def test_rows_of_a_trial_are_not_kept() -> None:
    ran = run("--out")
    assert ran.status == 1 and not ran.rows and "--out" in ran.output


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_stage_runs_on_any_machine(tables: ModuleType) -> None:
    ran = run("--budget", "800")
    by_stage = {row["stage"]: row for row in ran.rows}
    assert list(by_stage) == [
        "ceilings",
        "kernels",
        "model",
        "workloads",
        "throughput",
        "peers",
        "host",
        "tests",
    ]
    for row in ran.rows:
        assert "error" not in row and row["figures"]["cases"] and not row["figures"]["skipped"]
    assert ran.status == 0, ran.table
    assert len(tables.model(by_stage["model"])) > 4
    assert len(tables.workloads(by_stage["workloads"])) > 2
    if importlib.util.find_spec("transformers"):
        assert len(tables.peers(by_stage["peers"])) > 3
        batching = by_stage["peers"]["figures"]["cases"]["transformers continuous batching"]
        assert torch.cuda.is_available() or batching["same_answers"] == 1.0
