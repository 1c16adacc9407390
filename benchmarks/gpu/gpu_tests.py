"""The tests that need a GPU, and those of the kernels, which run on one where there is one."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures

ROOT = Path(__file__).resolve().parents[2]
LAST = 40  # lines that are kept of a run that failed
COMPILED = "tests/kernels/gpu/test_compiled.py"  # needs no GPU


def cases(bench: Bench) -> Cases:
    """The promises first."""
    marked = ("-m", "gpu and not slow", "tests/gpu")
    yield Case("pytest -m gpu", _pytest(bench, *marked), 30)
    if not bench.is_tiny:
        yield Case("pytest -m gpu, models", _pytest(bench, *marked[:2], "tests/core/model"), 10)
        kernels = ("-m", "not slow", "tests/kernels/gpu", f"--ignore={COMPILED}")
        yield Case("kernels", _pytest(bench, *kernels), 30)


def _pytest(bench: Bench, *options: str) -> Callable[[], Figures]:
    """Its summary; collecting nothing is not an error, running out of time is."""

    def run() -> Figures:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += [
            "-W",
            "default",
            *options,
        ]  # other versions of packages may warn of other things
        left = max(bench.until - time.time(), 5.0)
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=left)
        except subprocess.TimeoutExpired as error:
            output = (error.stdout or b"").decode().splitlines()
            return {"summary": "its time was over", "is_right": False, "end": output[-LAST:]}
        lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-300:]]
        figures: Figures = {"summary": lines[-1].strip("= "), "is_right": done.returncode in (0, 5)}
        figures |= {name: int(count) for count, name in re.findall(r"(\d+) ([a-z]+)", lines[-1])}
        if not figures["is_right"]:
            figures["end"] = lines[-LAST:]
        return figures

    return run
