"""Runs the stages of `gpu`, each in a process of its own, and prints what they found as text."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from forkroot.benchmarks.common.report import keep, make_row, rows
from forkroot.benchmarks.gpu import gpu_wheels
from forkroot.benchmarks.gpu.gpu_child import BROKEN, STAGES, Row, RowFile, others
from forkroot.benchmarks.gpu.gpu_wheels import Refused
from forkroot.benchmarks.tables import table

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "gpu-rows"
QUIET = ("is_right", "clock", "floor_us", "floor_ms", "kernels", "end")  # not in the text
GRACE = 15.0  # seconds that a case may go on when its stage's time is over
ENDING = 3.0  # seconds in which a process that is ended may remove its temporary folders
VLLM_SECONDS = 150  # that the peers may take more where it is installed: it compiles
TINY_SCALE = 20  # of the stages' seconds, on a CPU of any speed


def main(site: Path, description: str | None) -> int:
    """The exit status: 1 where a case failed, or what was asked for cannot be done. site: a folder
    on the path, where wheels are unpacked."""
    try:
        return _main(site, _options(description).parse_args())
    except Refused as error:
        return _refuse(str(error))


def _main(site: Path, args: argparse.Namespace) -> int:
    if args.prepare is not None:
        python, limit = args.python, args.limit_mb
        return gpu_wheels.prepare(args.prepare, python, args.without, args.also, limit)
    if args.keep_from is not None:
        return _keep_rows(RowFile(args.keep_from).rows())
    if args.keep and args.tiny:
        return _refuse("--keep is for figures, and --tiny gives none that mean anything")
    out = args.out or Path(os.environ.get("OUT") or OUT)
    names = args.stage or list(STAGES)
    _check_options(names, args, out)
    added = gpu_wheels.unpack(args.wheels, site)
    gpu_wheels.check(args.wheels, added)
    env = _environment(site, args.tiny)
    if not args.tiny:
        _check_gpu(env)
    print(f"rows go to {out}; unpacked: {', '.join(added) or 'nothing'}", flush=True)
    num_cases = _run_all(names, args, out, env)
    found = [RowFile(out).row(name) for name in names]
    status = int(any(_faults(row) for row in found))
    if args.keep:
        status |= _keep_rows(found)
    if not num_cases:
        return _refuse(_why_nothing(found, args.only))
    return status


def _check_options(names: list[str], args: argparse.Namespace, out: Path) -> None:
    """Raise Refused for a pattern that is none, a folder that cannot be written, and rows in it
    that cannot be read, or that --only would mix with others."""
    try:
        re.compile(args.only)
    except re.error as error:
        raise Refused(f"--only {args.only!r} is no regular expression: {error}") from error
    try:
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise Refused(f"--out {out}: {why}; expected a folder to write to") from error
    file = RowFile(out)
    wanted = (args.commit or make_row("gpu", {})["commit"], args.seed, args.tiny)
    for row in (file.row(name) for name in names):
        had = tuple(row.get(name) for name in ("commit", "seed", "tiny"))
        if others(row, args.only) and had != wanted:
            what = f"{file.path} has other cases of {row['stage']}, of (commit, seed, tiny) = {had}"
            raise Refused(f"{what}; these would be of {wanted}: give them another --out")


def _check_gpu(env: dict[str, str]) -> None:
    """Raise Refused where torch sees no GPU, or the benchmarks cannot be imported. A process of
    its own asks, so that this one holds nothing of a GPU."""
    code = "from forkroot.benchmarks.gpu import gpu_bench; print(gpu_bench.missing_gpu())"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise Refused(f"the benchmarks cannot be imported: {why}")
    if why := done.stdout.strip():
        raise Refused(f"{why}. To try all stages on small shapes on a CPU: --tiny")


def _why_nothing(found: list[Row], only: str) -> str:
    if any(row["figures"]["skipped"] for row in found):
        return "nothing was measured: no case had enough time (--budget)"
    if only and not any("error" in row for row in found):
        return f"nothing was measured: no case has a name that matches --only {only!r}"
    return "nothing was measured"


def _options(description: str | None) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    run = options.add_argument_group("running")
    run.add_argument("--stage", action="append", choices=STAGES, help="only this; repeatable")
    run.add_argument("--only", default="", help="cases whose name matches this")
    run.add_argument("--budget", type=float, help="seconds for all stages; default: their own")
    run.add_argument("--out", type=Path, help="folder of the rows, the text and the log")
    run.add_argument("--tiny", action="store_true", help="small shapes, on a CPU too")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--commit", help="of the sources, where they are no checkout")
    run.add_argument("--keep", action="store_true", help="keep the rows, and make tables of them")
    run.add_argument(
        "--keep-from", type=Path, metavar="FOLDER", help="run nothing; keep the rows found there"
    )
    wheels = options.add_argument_group("a machine without a network")
    wheels.add_argument("--wheels", type=Path, default=gpu_wheels.FOLDER, help="to be unpacked")
    wheels.add_argument(
        "--prepare",
        type=Path,
        nargs="?",
        const=gpu_wheels.FOLDER,
        help="fill this folder of wheels",
    )
    wheels.add_argument(
        "--python", default=gpu_wheels.HERE, help="the version there; default: %(default)s, as here"
    )
    wheels.add_argument("--without", action="append", default=[], help="a package that is there")
    wheels.add_argument(
        "--also", action="append", default=[], help="one more, without dependencies"
    )
    wheels.add_argument("--limit-mb", type=float, help="fail if the wheels take more")
    return options


def _environment(site: Path, is_tiny: bool) -> dict[str, str]:
    """Of all processes: this tree and what was unpacked come after nothing that is installed under
    another name. Loops for CPUs are not compiled, which would take a minute: torch's operators are
    the reference."""
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    fixed = {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1", "HF_HUB_OFFLINE": "1"}
    threads = {"OMP_NUM_THREADS": "1"} if is_tiny else {}
    return {**threads, **os.environ, **fixed}


def _run_all(names: list[str], args: argparse.Namespace, out: Path, env: dict[str, str]) -> int:
    """How many cases were run."""
    has_vllm = find_spec("vllm") is not None
    budgets = [STAGES[name].seconds * (TINY_SCALE if args.tiny else 1) for name in names]
    budgets = [
        budget + VLLM_SECONDS * (has_vllm and name == "peers")
        for name, budget in zip(names, budgets, strict=True)
    ]
    scale = args.budget / sum(budgets) if args.budget else 1.0
    due = time.time()
    num_cases = 0
    for name, budget in zip(names, budgets, strict=True):
        due += budget * scale
        num_cases += _run(name, args, RowFile(out), due, env)
        text = "\n".join(_lines(RowFile(out).row(name)))
        with (out / "gpu.txt").open("a") as file:
            print(text, file=file)
        print(text, flush=True)
    return num_cases


def _run(
    name: str, args: argparse.Namespace, file: RowFile, due: float, env: dict[str, str]
) -> int:
    """Run a stage, and return how many cases were run; its row says what became of its processes.
    due: when its time is over."""
    started = time.time()
    file.begin(name, args.only)
    num_before = len(file.row(name)["figures"]["cases"])
    command = [sys.executable, "-m", "forkroot.benchmarks.gpu.gpu_child", str(file.path.parent)]
    command += ["--stage", name, "--until", str(due), "--seed", str(args.seed)]
    command += ["--only", args.only, *(["--commit", args.commit] if args.commit else [])]
    command += ["--tiny"] * args.tiny
    while True:
        with (file.path.parent / "gpu.log").open("ab") as log:
            status = _wait(command, env, log, due + GRACE)
        row = file.row(name)
        running = row.pop("running", None)
        if running:
            why = "its time was over" if status is None else f"its process ended: {status}"
            row["figures"]["cases"][running] = {"error": why}
        elif status not in (0, None, BROKEN):
            row.setdefault("error", f"its process ended: {status}; see gpu.log")
        if "benchmark" not in row:  # it ended before it began
            row = make_row("gpu", row.pop("figures"), tiny=args.tiny, **row)
        row |= {"seconds": round(time.time() - started, 1), "budget": round(due - started, 1)}
        file.put(row)
        if status in (0, None) or (status != BROKEN and not running) or time.time() > due:
            return len(row["figures"]["cases"]) - num_before


def _wait(command: list[str], env: dict[str, str], log: Any, until: float) -> int | None:
    """The exit status of a process; None: it took longer. It is ended with all its children."""
    process = subprocess.Popen(command, env=env, stderr=log, process_group=0)
    try:
        return process.wait(timeout=max(until - time.time(), 1.0))
    except subprocess.TimeoutExpired:
        return None
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING)


def _keep_rows(found: list[Row]) -> int:
    """Append rows to the kept ones, each once, and make the tables anew; the exit status. Rows of a
    trial are refused, those without a GPU or without cases left out."""
    if not found:
        return _refuse("there are no rows to keep")
    if any(row["tiny"] for row in found):
        return _refuse("these are rows of --tiny, which mean nothing")
    good = [row for row in found if _can_keep(row)]
    for row in found:
        if row not in good:
            _refuse(f"{row['stage']} is not kept: its row has no GPU or no cases")
    if not good:
        return 1
    kept = rows("gpu")
    keep("gpu", [row for row in good if row not in kept])
    if table.PAGE.exists():
        table.PAGE.write_text(table.render(table.PAGE.read_text()))
    return int(len(good) < len(found))


def _can_keep(row: Row) -> bool:
    return bool(row["figures"]["cases"]) and "memory_GiB" in row.get("device", {})


def _refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return 1


# --- as text --------------------------------------------------------------------------------------


def _faults(row: Row) -> list[str]:
    """Cases that failed, or gave what is wrong; and the stage itself."""
    cases = row["figures"]["cases"]
    bad = [name for name, it in cases.items() if _is_bad(it)]
    is_empty = not cases and bool(row["figures"]["skipped"])
    return [*bad, *(["the stage"] if "error" in row or is_empty else [])]


def _is_bad(figures: Any) -> bool:
    if not isinstance(figures, dict):
        return False
    failed = isinstance(figures.get("error"), str) or figures.get("is_right") is False
    return failed or any(map(_is_bad, figures.values()))


def _lines(row: Row) -> list[str]:
    """A stage as a short table."""
    cases, skipped = row["figures"]["cases"], row["figures"]["skipped"]
    lines = [f"\n{row['stage']}: {row['seconds']} s of {row['budget']} s"]
    if "error" in row:
        lines.append(f"! {row['error']}")
    width = max(map(len, cases), default=0)
    for case, figures in cases.items():
        mark = "!" if _is_bad(figures) else " "
        lines.append(f"{mark} {case:<{width}}  {_flat(figures)}")
    return [*lines, *(f"  {case}: no time was left" for case in skipped)]


def _flat(figures: Any) -> str:
    if not isinstance(figures, dict):
        return str(figures)
    shown = {key: value for key, value in figures.items() if key not in QUIET}
    inner = (f"{k}=({_flat(v)})" if isinstance(v, dict) else f"{k}={v}" for k, v in shown.items())
    return " ".join(inner)[:300]
