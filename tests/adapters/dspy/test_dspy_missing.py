"""Where DSPy is not installed, the adapter can be imported and says so when it is used."""

from __future__ import annotations

import subprocess
import sys

from forkroot.core.common.extras import how_to_install


def run(source: str) -> subprocess.CompletedProcess[str]:
    blocked = "import sys\nsys.modules['dspy'] = None\nimport forkroot.adapters.dspy as adapter\n"
    return subprocess.run([sys.executable, "-c", blocked + source], capture_output=True, text=True)


def test_importing_the_adapter_needs_no_dspy() -> None:
    done = run("print(sorted(adapter.__all__))")
    assert done.returncode == 0, done.stderr
    assert "'LM'" in done.stdout


def test_using_it_names_what_to_install() -> None:
    done = run("adapter.LM")
    assert "ImportError" in done.stderr
    assert how_to_install("dspy") in done.stderr


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    done = run("adapter.Nothing")
    assert "has no attribute 'Nothing'" in done.stderr
