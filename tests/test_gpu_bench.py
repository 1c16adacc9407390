"""The script for GPUs, run without one: what a GPU's first hour depends on must not run there for
the first time."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[1]
STAGES = [
    *("correctness", "ceilings", "kernels", "steps", "models"),
    *("workloads", "throughput", "host", "peers", "tests"),
]
BARE = ("torch", "triton", "numpy", "transformers")  # what a bare machine has


class Ran(NamedTuple):
    """One run of the script: its exit status, its rows, and what it printed and logged."""

    status: int
    rows: dict[str, dict[str, Any]]
    output: str


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "gpu.json"
    found = json.loads(path.read_text()) if path.exists() else []
    return {row["stage"]: row for row in found}


def run(tree: Path, *options: str, out: Path, python: str = sys.executable, **env: str) -> Ran:
    """Run the script of a tree, which nothing on the path leads to."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, str(tree / "benchmarks" / "gpu" / "gpu.py"), *options],
        capture_output=True,
        text=True,
        env=clean | {"OMP_NUM_THREADS": "1", "OUT": str(out)} | env,
        cwd=out.parent,
    )
    return Ran(done.returncode, rows_of(out), done.stdout + done.stderr)


# --- everything, as on a bare machine -------------------------------------------------------------


@pytest.fixture
def copied_tree(tmp_path: Path, files: tuple[Path, ...]) -> Path:
    """The sources under another name, and loops as far as they are compiled here: a machine of the
    same kind would compile them for minutes."""
    tree = tmp_path / "a-copy of it"
    aside = [it.relative_to(ROOT) for name in ("benchmarks", "tests") for it in walked(name)]
    loops = [it.relative_to(ROOT) for it in (ROOT / "kernels").rglob("*.nb[ci]")]
    for path in (*files, *aside, *loops, Path("pyproject.toml"), Path("constraints-cpu.txt")):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, tree / path)
    return tree


def walked(name: str) -> Iterator[Path]:
    return (it for it in (ROOT / name).rglob("*.*") if it.is_file() and it.suffix != ".pyc")


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """The interpreter of an environment with torch, triton, numpy and transformers, what these
    need, and nothing else."""
    folder = tmp_path / "bare"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    found: dict[str, Distribution] = {}
    for name in BARE:
        with_needs(name, found)
    for it in found.values():
        for top in {path.parts[0] for path in it.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(it.locate_file(top)))
    return str(folder / "bin" / "python")


def with_needs(name: str, found: dict[str, Distribution]) -> None:
    from packaging.requirements import Requirement

    if name in found:
        return
    found[name] = distribution(name)
    for need in map(Requirement, found[name].requires or ()):
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            with_needs(re.sub(r"[-_.]+", "-", need.name).lower(), found)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The folder that --prepare fills, made of what is installed here."""
    from forkroot.benchmarks.gpu.gpu_wheels import NAMES

    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in NAMES:
        it = distribution(name)
        title = f"{name.replace('-', '_')}-{it.version}-py3-none-any.whl"
        with ZipFile(folder / title, "w") as archive:
            for path in it.files or ():
                if ".." not in path.parts and path.suffix != ".pyc":
                    archive.write(str(it.locate_file(path)), str(path))
    return folder


@pytest.mark.slow  # two minutes of a core: before a GPU is used, and after a change of its script
@pytest.mark.timeout(900)
def test_every_stage_runs_on_a_bare_machine_from_a_copied_tree_and_a_folder_of_wheels(
    copied_tree: Path, bare_python: str, wheels: Path, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("triton")
    no_network = dict.fromkeys(("http_proxy", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    out = tmp_path / "out"
    options = ("--tiny", "--wheels", str(wheels), "--commit", "abc")
    ran = run(copied_tree, *options, out=out, python=bare_python, **no_network)
    assert ran.status == 0, ran.output
    assert list(ran.rows) == STAGES and len(list(out.iterdir())) <= 8
    for row in ran.rows.values():
        assert row["tiny"] is True and row["commit"] == "abc" and row["device"]["name"]
        assert "error" not in row and row["figures"]["cases"] and not row["figures"]["skipped"]
    cases = {name: row["figures"]["cases"] for name, row in ran.rows.items()}
    assert cases["correctness"]["embedded model, GPU and CPU"]["graphs"]["is_right"]
    assert cases["correctness"]["pytest -m gpu"]["skipped"] > 50
    assert cases["tests"]["pytest, no GPU needed"]["passed"] >= 4
    assert re.match(r"[6-9]\d|\d{3}", cases["tests"]["collected"]["summary"])
    for sampling in ("greedy", "top-p"):
        for root in ("", ", root 16"):
            step = cases["steps"][f"llama-3.1-8b decode 3 {sampling}{root}"]
            assert min(step[key] for key in ("ms", "device_ms", "host_ms", "over_floor")) > 0
            assert step["layers"] == "1 of 2"
    kernels = cases["steps"]["llama-3.1-8b kernels of prefill 16"]["kernels"]
    times = [it["us"] for it in kernels]
    assert len(kernels) == 15 and times == sorted(times, reverse=True) and all(times)
    assert {name.split()[0] for name in cases["models"]} == {"mixtral-8x7b", "llama-2-70b"}
    assert cases["peers"]["forkroot"]["half shared"]["prompts_per_second"] > 0
    assert cases["peers"]["transformers, continuous batching"]["same_answers"] == 1.0
    assert cases["peers"]["vLLM"] == {"absent": "vllm is not installed"}
    tables_hold_every_stage(ran.rows)


def tables_hold_every_stage(rows: dict[str, dict[str, Any]]) -> None:
    from forkroot.benchmarks.tables.table import TABLES

    made = {
        name: make(rows[source.split()[1]])
        for name, (source, make) in TABLES.items()
        if source.startswith("gpu ")
    }
    assert len(made) == 9
    for name, (head, *lines) in made.items():
        assert lines and all(len(line) == len(head) for line in lines), name


# --- stages that fail, hang or are killed ---------------------------------------------------------

BENCH = """
import os
from typing import NamedTuple


class Case(NamedTuple):
    name: str
    run: object
    seconds: float = 0.0


def has_gpu():
    return True


def missing_gpu():
    return os.environ.get("WHY_NO_GPU", "")


class Bench:
    @classmethod
    def here(cls, is_tiny, seed, until):
        return cls()

    def about(self):
        return {"name": "none"} | ({} if "LOST" in os.environ else {"memory_GiB": 1})

    def is_sound(self):
        return True
"""
KERNELS = """
import os, time
from pathlib import Path
from forkroot.benchmarks.gpu.gpu_bench import Case


def hang():
    Path(os.environ["OUT"], "pid").write_text(str(os.getpid()))
    time.sleep(600)


def ceilings(bench):
    yield Case("good", lambda: {"n": 1})
    yield Case("raises", lambda: {"n": 1 / 0})
    yield Case("wrong", lambda: {"deep": {"is_right": False}})
    yield Case("dies", lambda: os._exit(3))
    yield Case("after", lambda: {"n": 2})
    yield Case("hangs", hang)
    yield Case("late", lambda: {"n": 3}, seconds=100)


def cases(bench):
    yield Case("a copy", lambda: {"us": 2.0, "floor_us": 1.0, "over_floor": 2.0, "error": 1e-6})
    raise RuntimeError("no such thing")
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """This tree under another name, with stages of this test's, which need no torch."""
    tree = tmp_path / "other"
    (tree / "benchmarks").mkdir(parents=True)
    for home, aside in ((ROOT, ("benchmarks", "docs")), (ROOT / "benchmarks", ("gpu", "results"))):
        for path in home.iterdir():
            if path.name not in (*aside, "build") and not path.name.startswith("."):
                (tree / path.relative_to(ROOT)).symlink_to(path)
    shutil.copytree(ROOT / "benchmarks" / "gpu", tree / "benchmarks" / "gpu")
    (tree / "docs").mkdir()
    (tree / "docs" / "performance.md").write_text("<!-- table: gpu kernels -->\n<!-- end -->\n")
    (tree / "benchmarks" / "gpu" / "gpu_bench.py").write_text(BENCH)
    (tree / "benchmarks" / "gpu" / "gpu_kernels.py").write_text(KERNELS)
    return tree


TWO_STAGES = ("--stage", "ceilings", "--stage", "kernels")


def test_a_case_that_fails_or_kills_its_process_leaves_the_others_alone(
    tree: Path, tmp_path: Path
) -> None:
    ran = run(tree, *TWO_STAGES, "--only", "^[^h]", "--budget", "60", out=tmp_path / "out")
    ceilings, kernels = ran.rows["ceilings"], ran.rows["kernels"]
    assert ceilings["figures"]["cases"] == {
        "good": {"n": 1},
        "raises": {"error": "ZeroDivisionError: division by zero"},
        "wrong": {"deep": {"is_right": False}},
        "dies": {"error": "its process ended: 3"},
        "after": {"n": 2},
    }
    assert ceilings["figures"]["skipped"] == ["late"] and ceilings["tiny"] is False
    assert kernels["error"] == "RuntimeError: no such thing"
    assert kernels["figures"]["cases"]["a copy"]["us"] == 2.0
    assert ran.status == 1 and "late: no time was left" in ran.output
    marked = [line.split()[1] for line in ran.output.splitlines() if line.startswith("!")]
    assert marked == ["raises", "wrong", "dies", "RuntimeError:"]
    assert "ZeroDivisionError" in (tmp_path / "out" / "gpu.log").read_text()


def test_a_run_that_is_killed_keeps_every_case_that_ended(tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, str(tree / "benchmarks" / "gpu" / "gpu.py"), "--out", str(out)]
    env = os.environ | {"OUT": str(out), "TMPDIR": str(tmp_path)}
    env.pop("PYTHONPATH", None)
    options = (*TWO_STAGES, "--only", "^[agh]")
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, env=env)
    pid = int(content_when_written(out / "pid"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    row = rows_of(out)["ceilings"]
    assert row["figures"]["cases"] == {"good": {"n": 1}, "after": {"n": 2}}
    assert row["running"] == "hangs" and row["benchmark"] == "gpu" and row["tiny"] is False
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline, "the stage outlived the run"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_end_ends_its_stage_and_leaves_no_temporary_folder(
    tree: Path, tmp_path: Path, number: int
) -> None:
    out, scratch = tmp_path / "out", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, str(tree / "benchmarks" / "gpu" / "gpu.py"), "--out", str(out)]
    env = os.environ | {"OUT": str(out), "TMPDIR": str(scratch)}
    process = subprocess.Popen(
        [*command, "--stage", "ceilings", "--only", "hangs"], stderr=subprocess.PIPE, env=env
    )
    pid = int(content_when_written(out / "pid"))
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == 128 + number and b"Traceback" not in errors
    assert not is_running(pid) and not list(scratch.iterdir())


REFUSED = {
    "a pattern that is none": (("--only", "("), "--only '(' is no regular expression"),
    "a name that no case has": (("--only", "zzz"), "no case has a name that matches --only 'zzz'"),
    "no time for any case": (("--only", "late"), "no case had enough time (--budget)"),
    "a file for a folder": (("--out", __file__), "File exists; expected a folder to write to"),
    "a file for wheels": (("--prepare", __file__), "File exists; expected a folder to write to"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_done_or_measured_nothing_fails_with_the_reason(
    tree: Path, tmp_path: Path, what: str
) -> None:
    options, why = REFUSED[what]
    ran = run(tree, "--stage", "ceilings", *options, "--budget", "20", out=tmp_path / "out")
    assert ran.status == 1 and why in ran.output and "Traceback" not in ran.output


def test_without_a_gpu_nothing_is_run_but_trials_and_no_row_is_kept(
    tree: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "out", ("--stage", "ceilings", "--only", "good")
    ran = run(tree, *options, out=out, WHY_NO_GPU="torch sees none")
    assert ran.status == 1 and "torch sees none. To try" in ran.output and "--tiny" in ran.output
    assert not ran.rows and run(tree, *options, "--tiny", out=out, WHY_NO_GPU="none").status == 0
    lost = run(tree, *options, "--keep", out=out, LOST="")
    assert lost.status == 1 and "ceilings is not kept: its row has no GPU" in lost.output
    assert not (tree / "benchmarks" / "results" / "gpu.json").exists()


def test_cases_are_added_to_a_stages_row_unless_they_are_of_other_sources(
    tree: Path, tmp_path: Path
) -> None:
    out, stage = tmp_path / "out", ("--stage", "ceilings", "--commit", "abc")
    assert run(tree, *stage, "--only", "good", out=out).status == 0
    both = run(tree, *stage, "--only", "after", out=out)
    assert both.rows["ceilings"]["figures"]["cases"] == {"good": {"n": 1}, "after": {"n": 2}}
    other = run(tree, *stage[:3], "def", "--only", "after", out=out)
    assert other.status == 1 and "give them another --out" in other.output
    assert other.rows == both.rows
    (out / "gpu.json").write_text("[{")
    corrupt = run(tree, *stage, out=out.parent / "2", OUT=str(out))
    assert corrupt.status == 1 and "gpu.json cannot be read" in corrupt.output
    assert "Traceback" not in corrupt.output


def content_when_written(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"{path.name} was not written"
        time.sleep(0.02)
    return path.read_text()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_a_case_that_hangs_is_ended_and_what_was_measured_is_kept(
    tree: Path, tmp_path: Path
) -> None:
    options = ("--stage", "ceilings", "--only", "good|hangs|late", "--budget", "1")
    ran = run(tree, *options, out=tmp_path / "out")
    found = {"good": {"n": 1}, "hangs": {"error": "its time was over"}}
    assert ran.rows["ceilings"]["figures"]["cases"] == found and ran.status == 1


def test_rows_are_kept_when_that_is_asked_for_and_rows_of_a_trial_never(
    tree: Path, tmp_path: Path
) -> None:
    kept, out, trial = tree / "benchmarks" / "results" / "gpu.json", tmp_path / "1", tmp_path / "2"
    page = tree / "docs" / "performance.md"
    options = (*TWO_STAGES, "--only", "good|copy")
    assert run(tree, *options, "--keep", "--tiny", out=trial).status == 1
    assert run(tree, *options, "--tiny", out=trial).rows["ceilings"]["tiny"] is True
    assert run(tree, *options, out=out).status == 1 and not kept.exists()
    for folder, status in ((tmp_path / "none", 1), (trial, 1), (out, 0), (out, 0)):
        assert run(tree, "--keep-from", str(folder), out=out).status == status
    (row, _), rows = json.loads(kept.read_text()), rows_of(kept.parent)
    assert row["stage"] == "ceilings" and rows["ceilings"]["figures"]["cases"] == {"good": {"n": 1}}
    assert "| a copy | 1.0e-06 | 2.0 µs | 1.0 µs | 2.00× |" in page.read_text()
