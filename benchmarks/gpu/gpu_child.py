"""The stages, the file of their rows, and one stage in a process of its own: cases are run one
after another, and the row is written after each. Imports no torch before a stage is run."""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from forkroot.benchmarks.common.report import lines, make_row
from forkroot.benchmarks.gpu.gpu_wheels import Refused

Row = dict[str, Any]
BROKEN = 86  # exit status of a stage whose device takes no more work
_PR_SET_PDEATHSIG = 1


class Stage(NamedTuple):
    """Where its cases are, "module:function", and the seconds that it may take on an H200."""

    cases: str
    seconds: float


HOME = "forkroot.benchmarks.gpu"
STAGES: Mapping[str, Stage] = {
    "correctness": Stage("gpu_correct:cases", 60),
    "ceilings": Stage("gpu_kernels:ceilings", 12),
    "kernels": Stage("gpu_kernels:cases", 70),
    "steps": Stage("gpu_steps:cases", 130),
    "models": Stage("gpu_steps:large", 50),
    "workloads": Stage("gpu_workloads:cases", 70),
    "throughput": Stage("gpu_engine:throughput", 35),
    "host": Stage("gpu_host:cases", 30),
    "peers": Stage("gpu_peers:cases", 80),
    "tests": Stage("gpu_correct:tests", 40),
}


class RowFile:
    """Rows in a file, one for each stage; whoever reads it may come at any time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gpu.json"

    def rows(self) -> list[Row]:
        """All rows, in the order in which their stages began. Raises Refused for a file that holds
        something else."""
        if not self.path.exists():
            return []
        try:
            found = json.loads(self.path.read_text())
        except (ValueError, OSError) as error:
            raise Refused(f"{self.path} cannot be read ({error}); move it away") from error
        if not isinstance(found, list) or not all(map(_is_row, found)):
            raise Refused(f"{self.path} does not hold rows of stages; move it away")
        return found

    def row(self, stage: str) -> Row:
        """The row of a stage; a new one without cases where there is none."""
        found = (row for row in self.rows() if row["stage"] == stage)
        return next(found, {"stage": stage, "figures": {"cases": {}, "skipped": []}})

    def put(self, row: Row) -> None:
        """Write the row in place of its stage's old one, or behind the others."""
        rows = {it["stage"]: it for it in self.rows()} | {row["stage"]: row}
        self._write(list(rows.values()))

    def begin(self, stage: str, only: str) -> None:
        """Forget the row of a stage; with a pattern, only its cases of that name."""
        old = self.row(stage)
        self._write([row for row in self.rows() if row["stage"] != stage])
        if cases := others(old, only):
            old.pop("error", None)
            self.put(old | {"figures": {"cases": cases, "skipped": []}})

    def _write(self, rows: list[Row]) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(lines(rows))
        new.replace(self.path)


def others(row: Row, only: str) -> dict[str, Any]:
    """The cases of a row that a run of the cases named so (all, if empty) leaves alone."""
    cases: dict[str, Any] = row["figures"]["cases"]
    return {name: it for name, it in cases.items() if only and not re.search(only, name)}


def _is_row(found: Any) -> bool:
    figures = found.get("figures") if isinstance(found, dict) and "stage" in found else None
    return isinstance(figures, dict) and {"cases", "skipped"} <= set(figures)


def main() -> None:
    """Run the cases of a stage that its row has not; ends with the process that started this."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--stage", choices=STAGES, required=True)
    options.add_argument("--until", type=float, required=True, help="when its time is over (Unix)")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="")
    options.add_argument("--commit")
    options.add_argument("--tiny", action="store_true")
    args = options.parse_args()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # temporary folders are removed
    file = RowFile(args.folder)
    row = file.row(args.stage)
    try:
        _run(file, row, args)
    except Exception as error:
        traceback.print_exc()
        row["error"] = _error_text(error)
        file.put(row)
        sys.exit(1)


def _run(file: RowFile, row: Row, args: argparse.Namespace) -> None:
    from forkroot.benchmarks.gpu.gpu_bench import Bench, has_gpu

    if not has_gpu():
        os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
    bench = Bench.here(args.tiny, args.seed, args.until)
    figures = row["figures"]
    figures["skipped"] = []
    row |= make_row("gpu", figures, stage=args.stage, seed=args.seed, tiny=args.tiny)
    row |= {"device": bench.about(), "running": None}
    if args.commit:
        row["commit"] = args.commit
    module, _, name = STAGES[args.stage].cases.partition(":")
    for case in getattr(import_module(f"{HOME}.{module}"), name)(bench):
        if case.name in figures["cases"] or not re.search(args.only, case.name):
            continue
        if time.time() + (0.0 if args.tiny else case.seconds) > args.until:
            figures["skipped"].append(case.name)
            continue
        row["running"] = case.name
        file.put(row)
        started = time.time()
        try:
            figures["cases"][case.name] = case.run()
        except Exception as error:
            traceback.print_exc()
            figures["cases"][case.name] = {"error": _error_text(error)}
        row["running"] = None
        file.put(row)
        print(f"{args.stage}: {case.name}: {time.time() - started:.1f} s", flush=True)
        gc.collect()
        if not bench.is_sound():
            sys.stdout.flush()
            os._exit(BROKEN)  # what holds memory of the device could hang at the end
    file.put(row)


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


if __name__ == "__main__":
    main()
