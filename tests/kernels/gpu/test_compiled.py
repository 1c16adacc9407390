"""Kernels compile for Hopper through their production launchers, and keep to its registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).parents[3] / "benchmarks/kernels/compiled.py"


def compiled(only: str) -> dict[str, dict[str, int]]:
    """What the compiler says of each kernel, made in a process that interprets none."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", only],
        capture_output=True,
        text=True,
        env=environment,
        cwd=SCRIPT.parent,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])["figures"][
        "kernels"
    ]
    return found


@pytest.mark.timeout(400)
def test_no_kernel_spills_in_half_precision() -> None:
    found = compiled("mixtral-8x7b bfloat16")
    names = {name.rpartition(": ")[2] for name in found}
    expected = {"_attend_decode", "_attend_extend", "_merge", "_grouped_gemm", "_norm"}
    assert expected | {"_apply_rotary"} <= names
    assert all(it["spilled"] == 0 and it["registers"] < 255 for it in found.values())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_kernel_spills_in_any_shape() -> None:
    assert all(it["spilled"] == 0 for it in compiled("").values())
