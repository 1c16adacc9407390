"""The top-level package suggests names for unknown ones, and extras how they are installed."""

from __future__ import annotations

import pickle
import re
import tomllib
from pathlib import Path

import pytest

import forkroot
from forkroot.core.common.extras import how_to_install

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("slect", "; did you mean select?"),
        ("Functoin", "; did you mean function?"),
        ("forkHint", "; did you mean ForkHint?"),
        ("rooot", "; dir(forkroot) lists its names"),
        ("__wrapped__", ""),
    ],
)
def test_a_misspelled_name_gets_a_suggestion(name: str, printed: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(forkroot, name)
    assert str(caught.value) == f"module 'forkroot' has no attribute {name!r}{printed}"


def test_the_docstring_of_the_package_names_what_it_exports() -> None:
    assert forkroot.__doc__ is not None
    names = re.findall(r"`(\w+)`", forkroot.__doc__)
    assert "connect" in names
    assert sorted(set(names) - set(forkroot.__all__)) == []


def test_a_checkout_is_installed_as_the_readme_says(tmp_path: Path) -> None:
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    (checkout / "pyproject.toml").touch()
    printed = how_to_install("dspy", checkout)
    assert printed == f"cd '{checkout}' && pip install -c constraints-cpu.txt -e '.[dspy]'"
    assert printed.partition("&& ")[2] in (ROOT / "README.md").read_text("utf-8")


def test_without_a_checkout_what_an_extra_requires_is_named(tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = extras["optional-dependencies"]["langgraph"]
    printed = how_to_install("langgraph", tmp_path)
    assert printed == "pip install " + " ".join(f"'{it}'" for it in wanted)
    assert how_to_install("nothing", tmp_path) == "pip install 'forkroot[nothing]'"


def test_every_hint_names_an_extra_that_there_is() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    known = extras["optional-dependencies"]
    named = [
        found
        for folder in ("adapters", "core", "examples")
        for path in (ROOT / folder).rglob("*.py")
        for found in re.findall(r"""\b(?:how_to_install|needed)\(["'](\w+)""", path.read_text())
    ]
    assert "langchain" in named
    assert sorted(set(named) - set(known)) == []


def test_tracebacks_name_exported_errors_as_they_are_imported() -> None:
    found = [getattr(forkroot, name) for name in forkroot.__all__]
    errors = [it for it in found if isinstance(it, type) and issubclass(it, BaseException)]
    assert len(errors) > 15
    for kind in errors:
        assert kind.__module__ == "forkroot"
        assert pickle.loads(pickle.dumps(kind)) is kind
