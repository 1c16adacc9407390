"""What the benchmarks share: the options, and the row that each prints and may keep."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Options that every benchmark has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", action="store_true", help="append the row to benchmarks/results/")
    options.add_argument(
        "--busy", action="store_true", help="count processor time: for a machine with other work"
    )
    return options


def report(benchmark: str, figures: dict[str, Any], is_kept: bool, **fields: Any) -> None:
    """Print the row of a run; append it to the benchmark's file of results if it is kept."""
    row = make_row(benchmark, figures, **fields)
    print(json.dumps(row))
    if is_kept:
        keep(benchmark, [row])


def make_row(benchmark: str, figures: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The figures of a run, and where and when they were measured."""
    return {"benchmark": benchmark, **_environment(), **fields, "figures": figures}


def keep(benchmark: str, new: list[dict[str, Any]]) -> None:
    """Append rows to the benchmark's file of results."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{benchmark}.json"
    path.write_text(lines([*rows(benchmark), *new]))


def rows(benchmark: str) -> list[dict[str, Any]]:
    """The kept rows of a benchmark, oldest first."""
    path = RESULTS / f"{benchmark}.json"
    return list(json.loads(path.read_text())) if path.exists() else []


def lines(kept: list[dict[str, Any]]) -> str:
    """Rows as JSON, each on a line of its own."""
    return "[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n"


def _environment() -> dict[str, Any]:
    """Where and when a row was measured."""
    return {
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "torch_threads": _torch_threads()},
        "python": platform.python_version(),
        "torch": _torch_version(),
    }


def _commit() -> str:
    """Of the checkout; nothing where it is none, or git is not installed."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip()


def _cpu() -> str:
    """The processor's own name, and its family and model where the name is vague."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    about = {key.strip(): value.strip() for key, _, value in (s.partition(":") for s in lines)}
    if "model name" not in about:
        return platform.processor()
    return f"{about['model name']} (family {about.get('cpu family')}, model {about.get('model')})"


def _torch_threads() -> int | None:
    """Threads of torch's operators; None where no torch is in use."""
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def _torch_version() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return None
