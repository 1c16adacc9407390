"""Which instructions a process may use, and that every number type runs with few of them."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys

import pytest
import torch

from forkroot.kernels.cpu.jit import jit
from forkroot.kernels.cpu.linear import half_precision, linear
from forkroot.kernels.cpu.linear.half_precision import ConvertedLinear, OneDnnLinear
from forkroot.kernels.cpu.linear.linear import TorchLinear, linear_kernel

# Tests may be run with features taken away; what a test starts has all but those it takes away.
SURROUNDINGS = {name: it for name, it in os.environ.items() if name != "FORKROOT_CPU_FEATURES"}
NEEDED = "bf16 path needs the cpu support avx_ne_convert or avx512bw, avx512vl and avx512dq"


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**SURROUNDINGS, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without AVX-512 and AMX, on which oneDNN refuses half precision."""

    def refuse(weight: torch.Tensor) -> None:
        if weight.dtype is not torch.float32:
            raise RuntimeError(f"mkldnn_reorder_linear_weight: {NEEDED}")

    monkeypatch.setattr(linear, "_has_amx", lambda: False)
    monkeypatch.setattr(half_precision, "has", lambda *names: False)
    pack = OneDnnLinear.__init__

    def packed(self: OneDnnLinear, weight: torch.Tensor) -> None:
        refuse(weight)
        pack(self, weight)

    monkeypatch.setattr(OneDnnLinear, "__init__", packed)
    half_precision.can_pack.cache_clear()
    yield
    half_precision.can_pack.cache_clear()


@pytest.mark.parametrize(
    ("dtype", "can_compile"),
    [(torch.float16, True), (torch.float16, False), (torch.bfloat16, False)],
)
def test_half_precision_is_multiplied_in_float32_without_instructions_for_it(
    dtype: torch.dtype,
    can_compile: bool,
    without_instructions: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not can_compile:
        monkeypatch.setattr(linear, "can_compile", lambda: False)
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(70, 40, generator=random).to(dtype)
    x, total = (torch.randn(9, size, generator=random).to(dtype) for size in (40, 70))
    product = linear_kernel(weight)
    assert isinstance(product, ConvertedLinear)
    wanted = (x.double() @ weight.double().T).to(dtype)
    assert torch.allclose(product(x), wanted, rtol=torch.finfo(dtype).eps, atol=1e-5)
    wanted = (total.double() + x.double() @ weight.double().T).to(dtype)
    product.add_to(total, x)
    assert torch.allclose(total, wanted, rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_a_matrix_of_float32_is_multiplied_by_torch_where_loops_cannot_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear, "can_compile", lambda: False)
    assert isinstance(linear_kernel(torch.ones(5, 3)), TorchLinear)


def test_onednn_is_not_used_where_what_it_multiplies_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OneDnnLinear, "__call__", lambda self, x: torch.zeros_like(x))
    half_precision.can_pack.cache_clear()
    assert not half_precision.can_pack(torch.float32)
    half_precision.can_pack.cache_clear()


@pytest.mark.parametrize("failure", [ImportError("no LLVM"), RuntimeError("unknown target")])
def test_loops_are_left_to_torch_where_numba_fails_and_the_reason_is_logged(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*given: object, **settings: object) -> None:
        raise failure

    monkeypatch.setattr(jit, "compiled", fail)
    with caplog.at_level(logging.WARNING):
        assert not jit.can_compile.__wrapped__()
    assert str(failure) in caplog.text


def test_loops_that_give_wrong_numbers_are_left_to_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(
        jit, "compiled", lambda *given, **settings: lambda *arrays: arrays[3].fill(0)
    )
    assert not jit.can_compile.__wrapped__()
    assert "is wrong here" in caplog.text


ASK = """
import os
import platform
from numba import config
from forkroot.kernels.cpu.jit.features import VARIABLE, features

def ask(level, name=None, more=None):
    os.environ[VARIABLE], config.CPU_NAME, config.CPU_FEATURES = level, name, more
    features.cache_clear()
    try:
        print(*sorted(features()))
    except ValueError as error:
        print(error)

ask("sse4.2"), ask("avx2"), ask("avx512"), ask(""), ask("avx3")
ask("", "x86-64-v2", "+sse4.2,-avx2,-avx512f")
"""


def test_a_level_takes_away_what_is_above_it_and_so_do_settings_of_numba() -> None:
    pytest.importorskip("numba")
    sse, avx2, avx512, whole, unknown, numba = run(ASK).stdout.splitlines()
    assert set(sse.split()) <= set(avx2.split()) <= set(avx512.split()) <= set(whole.split())
    assert not [name for name in sse.split() if name.startswith(("avx", "amx", "fma"))]
    assert not [name for name in avx2.split() if name.startswith(("avx512", "amx"))]
    assert not {"avx512bf16", "amxtile"} & set(avx512.split())
    assert set(numba.split()) <= {"sse42"}
    assert unknown.startswith("invalid FORKROOT_CPU_FEATURES='avx3': expected one of sse4.2, avx2")


def test_loops_are_scheduled_for_a_generic_processor_unless_the_user_names_one() -> None:
    program = (
        "from forkroot.kernels.cpu.jit.features import features\n"
        "features()\n"
        "import numba\n"
        "print(numba.config.CPU_NAME)"
    )
    if platform.machine().lower() in ("x86_64", "amd64"):
        assert run(program).stdout.strip() in ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    assert run(program, NUMBA_CPU_NAME="generic").stdout.strip() == "generic"
