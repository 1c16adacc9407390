"""Kernels compile for several GPUs through their production launchers: no register spills, and
shared memory suffices on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).parents[3] / "benchmarks/kernels/compiled.py"
MEMORY = {80: 163, 86: 99, 89: 99, 90: 227}  # KiB that a program may use


def compiled(*only: str, targets: tuple[int, ...]) -> dict[str, dict[str, int]]:
    """What the compiler says of each kernel, made in a process that interprets none."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", *only, "--targets", *map(str, targets)],
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
@pytest.mark.parametrize("targets", [(86, 90), pytest.param((80, 89), marks=pytest.mark.slow)])
def test_attention_fits_into_every_target(targets: tuple[int, ...]) -> None:
    names = ("llama-3.1-8b bfloat16 attention", "gemma-2-9b bfloat16 windows")
    found = compiled(*names, targets=targets)
    for target in targets:
        of_target = {name: it for name, it in found.items() if f"sm_{target}" in name}
        kernels = {name.rpartition(" ")[2] for name in of_target}
        assert kernels == {"_attend_decode", "_attend_extend", "_merge"}
        assert all(it["spilled"] == 0 for it in of_target.values())
        assert max(it["shared"] for it in of_target.values()) <= MEMORY[target] * 1024


@pytest.mark.timeout(400)
def test_no_other_kernel_spills_in_half_precision() -> None:
    found = compiled(
        *("mixtral-8x7b bfloat16 rows", "mixtral-8x7b bfloat16 8 experts", "mixtral-8x7b logits"),
        targets=(90,),
    )
    names = {name.rpartition(" ")[2] for name in found}
    expected = {"_grouped_gemm", "_norm", "_apply_rotary", "_rotate_and_write", "_silu_mul"}
    assert expected | {"_write", "_mask"} <= names
    assert all(it["spilled"] == 0 and it["registers"] < 255 for it in found.values())


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_kernel_spills_in_any_shape() -> None:
    assert all(it["spilled"] == 0 for it in compiled("", targets=tuple(MEMORY)).values())
