"""Whoever waits for loops to be compiled is told so, once, and before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forkroot.core.compiling import TOLD

pytest.importorskip("numba")

PARTS = """
import sys

import numba
from forkroot.kernels.plain import PlainAttention

sys.modules["forkroot.kernels.made"] = sys.modules[__name__]  # where what is kept looks for them

def double(x):
    return 2 * x

def half(x):
    return x / 2

class Made(PlainAttention):
    def __init__(self, pool):
        super().__init__(pool.device)
        for function in (double, half):
            function.__module__ = "forkroot.kernels.made"
            numba.njit("f8(f8)", cache=True)(function)
"""


def connected(folder: Path, process: bool) -> tuple[str, str]:
    """What a process says on both streams whose engine has two loops more than others."""
    (folder / "loops_of_a_test.py").write_text(PARTS)
    settings = f"attention='loops_of_a_test:Made', process={process}, num_slots=512"
    program = f"from forkroot import connect; connect('tiny', {settings}).close()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout, done.stderr


def test_a_start_says_once_that_it_compiles_and_says_nothing_where_all_is_kept(
    tmp_path: Path,
) -> None:
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
    assert connected(tmp_path / "one", process=True) == ("", f"{TOLD}\n")
    assert connected(tmp_path / "one", process=False) == ("", "")
    assert connected(tmp_path / "other", process=False) == ("", f"{TOLD}\n")


def test_what_others_compile_is_not_told_of() -> None:
    program = """
import numba
from forkroot.core import compiling

compiling.watch()
numba.njit("f8(f8)")(lambda x: x)
print("between", flush=True)
loop = lambda x: x
loop.__module__ = "forkroot.kernels.made"
for kind in ("f8(f8)", "i8(i8)"):
    numba.njit(kind)(loop)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout == f"between\n{TOLD}\n"
