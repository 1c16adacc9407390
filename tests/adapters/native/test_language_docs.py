"""The reference leaves no name out. (Its examples run in `tests/test_docs.py`.)"""

import re
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

from forkroot.adapters import native
from forkroot.adapters.native.language.settings import Settings

pytestmark = pytest.mark.timeout(180)

PAGE = (Path(__file__).parents[3] / "docs" / "language.md").read_text()


def test_the_reference_names_every_name_and_every_setting() -> None:
    public = set(native.__all__) - {"ForkGroup", "Program", "ProgramState"}
    methods = {name for name in vars(native.ProgramState) if not name.startswith("_")}
    runs = {name for name in vars(native.Program) if not name.startswith("_")}
    names = public | methods | runs | set(signature(native.gen).parameters)
    names |= set(Settings.__dataclass_fields__) - {"sampling"}
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", PAGE)) == []


def test_the_language_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, forkroot.adapters.native\n"
        "print(sorted({'torch', 'numpy', 'tqdm', 'pydantic', 'pluggy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
