"""Benchmarks whose optional packages are missing: they say what to install."""

from __future__ import annotations

import runpy
import sys

import pytest

from forkroot.benchmarks.common.packages import needs


@pytest.mark.parametrize(
    ("script", "module", "package"),
    [
        ("peers.gguf_model", "gguf", "gguf"),
        ("constraints.schemas", "jsonschema", "jsonschema"),
        ("kernels.compiled", "triton", "triton"),
    ],
)
def test_a_benchmark_without_its_package_names_it_in_one_line(
    monkeypatch: pytest.MonkeyPatch, script: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module(f"forkroot.benchmarks.{script}", run_name="__main__", alter_sys=True)
    text = str(caught.value.code)
    assert text.endswith(f"; install it with `pip install {package}`")
    assert "\n" not in text


def test_an_importer_of_a_benchmark_gets_the_import_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"), needs("no-such-package"):
        __import__("no_such_package")


def test_other_errors_of_an_import_pass() -> None:
    with pytest.raises(ValueError, match="broken"), needs("a-package"):
        raise ValueError("broken")
