"""All measurements that need a GPU, in stages: one command, one row for each stage.

The stages: ceilings (copy, matrix products, launches), kernels (each beside its oracle and its
floor), model (decode and prefill beside their floors), workloads (the paper's, with cache, hints,
order and jumps on and off), throughput (1k in, 1k out), peers (what else is installed), host (the
second tier of the cache) and tests (`pytest -m gpu`).

Each stage runs in a process of its own, so that one that breaks the device ends alone; its row is
written when it ends, and holds what it had measured until then. A case that fails is reported with
its error, and the next goes on. Time that a stage leaves over is the next ones'. With --tiny all of
it is tried on small shapes, on a CPU with Triton's kernels interpreted: such rows are not kept.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from forkroot.benchmarks.common.report import parser, report

State = dict[str, Any]


class Stage(NamedTuple):
    """A module with `cases`, and the seconds that it may take on an H200."""

    module: str
    seconds: float


STAGES_HOME = "forkroot.benchmarks.gpu"
STAGES: Mapping[str, Stage] = {
    "ceilings": Stage("gpu_ceilings", 20),
    "kernels": Stage("gpu_kernels", 95),
    "model": Stage("gpu_model", 100),
    "workloads": Stage("gpu_workloads", 85),
    "throughput": Stage("gpu_throughput", 40),
    "peers": Stage("gpu_peers", 80),
    "host": Stage("gpu_host", 45),
    "tests": Stage("gpu_tests", 75),
}
QUIET = ("is_right", "clock", "floor_us", "floor_ms")  # a table does without; rows do not
GRACE = 15.0  # seconds that a case may go on when its stage's time is over
BROKEN = 86  # exit status of a stage whose device takes no more work


def main() -> None:
    """Run the stages, print and keep their rows, and print what they found as text."""
    args = _options().parse_args()
    if args.child:
        _measure(Path(args.child), args)
        return
    if args.tiny and args.out:
        sys.exit("--out keeps figures, and --tiny gives none that mean anything")
    names = args.stage or list(STAGES)
    budgets = [STAGES[name].seconds for name in names]
    scale = args.budget / sum(budgets) if args.budget else 1.0
    due, found = time.time(), {}
    for name, budget in zip(names, budgets, strict=True):
        due += budget * scale
        found[name] = _run(name, args, due)
        _keep(name, args, found[name])
    for name, state in found.items():
        print("\n".join(_lines(name, state)), flush=True)
    sys.exit(any(_faults(state) for state in found.values()))


def _options() -> argparse.ArgumentParser:
    options = parser(__doc__)
    options.add_argument("--stage", action="append", choices=STAGES, help="only this; repeatable")
    options.add_argument("--budget", type=float, help="seconds for all stages; default: their own")
    options.add_argument("--tiny", action="store_true", help="small shapes, on a CPU too")
    options.add_argument("--only", default="", help="cases whose name matches this")
    options.add_argument("--commit", help="of the sources, where they are no checkout")
    options.add_argument("--child", help=argparse.SUPPRESS)
    options.add_argument("--until", type=float, help=argparse.SUPPRESS)
    return options


# --- the parent: processes and rows ---------------------------------------------------------------


def _run(name: str, args: argparse.Namespace, due: float) -> State:
    """What a stage found, whatever became of its processes. due: when its time is over (Unix)."""
    started = time.time()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.json"
        command = [sys.executable, __file__, "--child", str(path), "--stage", name]
        command += ["--until", str(due), "--seed", str(args.seed), "--only", args.only]
        command += ["--tiny"] * args.tiny
        while True:
            status = _wait(subprocess.Popen(command, start_new_session=True), due + GRACE)
            state = _read(path)
            running = state.pop("running", None)
            if running:
                why = "its time was over" if status is None else f"its process ended: {status}"
                state["cases"][running] = {"error": why}
            elif status not in (0, None, BROKEN):
                state.setdefault("error", f"its process ended: {status}")
            path.write_text(json.dumps(state))
            if status in (0, None) or (status != BROKEN and not running) or time.time() > due:
                break
    return state | {"seconds": round(time.time() - started, 1), "budget": round(due - started, 1)}


def _wait(process: subprocess.Popen[bytes], until: float) -> int | None:
    """The exit status of a process; None: it took longer, and was ended with all its children."""
    try:
        return process.wait(timeout=max(until - time.time(), 1.0))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def _keep(name: str, args: argparse.Namespace, state: State) -> None:
    """Print a stage's row, and keep it if that is requested."""
    fields = {key: state[key] for key in ("seconds", "budget", "device", "error") if key in state}
    if args.commit:
        fields["commit"] = args.commit
    figures = {"cases": state["cases"], "skipped": state["skipped"]}
    report("gpu", figures, args.out, stage=name, seed=args.seed, tiny=args.tiny, **fields)
    sys.stdout.flush()


def _faults(state: State) -> list[str]:
    """Cases that failed, or gave what is wrong; and the stage itself."""
    bad = [name for name, it in state["cases"].items() if _is_bad(it)]
    return [*bad, *(["the stage"] if "error" in state else [])]


def _is_bad(figures: Any) -> bool:
    if not isinstance(figures, dict):
        return False
    failed = isinstance(figures.get("error"), str) or figures.get("is_right") is False
    return failed or any(map(_is_bad, figures.values()))


def _lines(name: str, state: State) -> list[str]:
    """A stage as a short table."""
    lines = [f"\n{name}: {state['seconds']} s of {state['budget']} s"]
    if "error" in state:
        lines.append(f"! {state['error']}")
    width = max(map(len, state["cases"]), default=0)
    for case, figures in state["cases"].items():
        mark = "!" if _is_bad(figures) else " "
        lines.append(f"{mark} {case:<{width}}  {_flat(figures)}")
    return [*lines, *(f"  {case}: no time was left" for case in state["skipped"])]


def _flat(figures: Any) -> str:
    if not isinstance(figures, dict):
        return str(figures)
    shown = {key: value for key, value in figures.items() if key not in QUIET}
    inner = (f"{k}=({_flat(v)})" if isinstance(v, dict) else f"{k}={v}" for k, v in shown.items())
    return " ".join(inner)[:300]


# --- the child: one stage -------------------------------------------------------------------------


def _measure(path: Path, args: argparse.Namespace) -> None:
    """Run the cases of a stage that are not in the state's file yet; write it after each."""
    state = _read(path)
    try:
        _cases(path, state, args)
    except Exception as error:
        traceback.print_exc()
        state["error"] = _error_text(error)
        _write(path, state)
        sys.exit(1)


def _cases(path: Path, state: State, args: argparse.Namespace) -> None:
    from forkroot.benchmarks.gpu.gpu_bench import Bench

    bench = Bench.here(args.tiny, args.seed, args.until)
    state["device"], state["skipped"] = bench.about(), []
    for case in import_module(f"{STAGES_HOME}.{STAGES[args.stage[0]].module}").cases(bench):
        if case.name in state["cases"] or not re.search(args.only, case.name):
            continue
        if time.time() + (0.0 if args.tiny else case.seconds) > args.until:
            state["skipped"].append(case.name)
            continue
        state["running"] = case.name
        _write(path, state)
        started = time.time()
        try:
            state["cases"][case.name] = case.run()
        except Exception as error:
            traceback.print_exc()
            state["cases"][case.name] = {"error": _error_text(error)}
        state["running"] = None
        _write(path, state)
        print(f"{case.name}: {time.time() - started:.1f} s", file=sys.stderr, flush=True)
        gc.collect()
        if not bench.is_sound():
            sys.exit(BROKEN)
    _write(path, state)


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def _read(path: Path) -> State:
    return dict(json.loads(path.read_text())) if path.exists() else {"cases": {}, "skipped": []}


def _write(path: Path, state: State) -> None:
    """All or nothing: whoever reads it may come at any time."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(state))
    new.replace(path)


if __name__ == "__main__":
    main()
