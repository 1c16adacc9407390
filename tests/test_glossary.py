"""No name of the package or of `benchmarks/` has a private word of `docs/glossary.md`.

Reads the sources with `ast` and imports none of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHECKED = (
    "adapters",
    "benchmarks",
    "core",
    "examples",
    "kernels",
    ".",
)  # ".": its own modules only
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
METRIC = re.compile(r"forkroot[:_][a-z][a-z0-9_]*\Z")


class Words(NamedTuple):
    """private: words that no name may have. allowed: parts of names in which they may occur, in
    lower case and with underscores."""

    private: frozenset[str]
    allowed: frozenset[str] = frozenset()

    def in_name(self, name: str) -> list[str]:
        """The private words of a name."""
        parts = "_".join(WORD.findall(name)).lower()
        for phrase in self.allowed:
            parts = re.sub(rf"(?<![a-z]){phrase}(?![a-z])", "", parts)
        return sorted(set(parts.split("_")) & self.private)


def words_of(page: str, path: str) -> Words:
    """Words in code type in the first columns of the sections that apply to a file, and those
    after "but"."""
    private: set[str] = set()
    allowed: set[str] = set()
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if not path.startswith(title.strip("`") if "`" in title else ""):
            continue
        for row in re.findall(r"^\| (.+?) \|", text, re.MULTILINE):
            words, _, exceptions = row.partition(" but ")
            private.update(word.lower() for word in re.findall(r"`(\w+)`", words))
            allowed.update(re.findall(r"`(\w+)`", exceptions))
    return Words(frozenset(private), frozenset(allowed))


def is_public(function: str) -> bool:
    return not function.startswith("_") or function == "__init__"


def names(path: str, tree: ast.Module) -> Iterator[str]:
    """The module, its classes and functions, parameters of the public ones, the settings of its
    configs, and metrics."""
    yield Path(path).parent.name if path.endswith("__init__.py") else Path(path).stem
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name):
            yield from (it.arg for it in ast.walk(node.args) if isinstance(it, ast.arg))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.target.id
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from METRIC.findall(node.value)


def faults(path: str, source: str, words: Words) -> list[str]:
    return [
        f"{path}: {name} has the private word {word!r}; see docs/glossary.md"
        for name in names(path, ast.parse(source))
        for word in words.in_name(name)
    ]


@pytest.mark.parametrize("folder", CHECKED)
def test_names_have_no_private_words(folder: str) -> None:
    page = (ROOT / "docs/glossary.md").read_text("utf-8")
    files = sorted((ROOT / folder).glob("*.py" if folder == "." else "**/*.py"))
    assert files
    found = [
        fault
        for path in files
        for name in (path.relative_to(ROOT).as_posix(),)
        for fault in faults(name, path.read_text("utf-8"), words_of(page, name))
    ]
    assert not found, "\n".join(found)


PAGE = """# Glossary

## All folders

| private word | standard word |
|---|---|
| `place` but `in_place` | position |

## `kernels/`

| private word | standard word |
|---|---|
| `bend`, parts | softcap |

## `core/`

| private word | standard word |
|---|---|
| `desk` | registry |
"""


def test_words_apply_to_the_folder_of_their_section_and_only_in_code_type() -> None:
    allowed = frozenset({"in_place"})
    assert words_of(PAGE, "kernels/cpu/a.py") == Words(frozenset({"place", "bend"}), allowed)
    assert words_of(PAGE, "core/engine/a.py") == Words(frozenset({"place", "desk"}), allowed)
    assert words_of(PAGE, "adapters/a.py") == Words(frozenset({"place"}), allowed)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernels/bend.py", ""),
        ("kernels/bend/__init__.py", ""),
        ("kernels/a.py", "class ScoreBend: pass"),
        ("kernels/a.py", "class A:\n    def _bend_scores(self): pass"),
        ("kernels/a.py", "async def bend2(): pass"),
        ("kernels/a.py", "def scores(*, bend): pass"),
        ("kernels/a.py", "class A:\n    def __init__(self, bend_scale=1): pass"),
        ("kernels/a.py", "class RunConfig:\n    bend_scale: float = 1.0"),
        ("kernels/a.py", "COUNTER = 'forkroot_bend_total'"),
    ],
)
def test_a_private_word_is_found_in_every_kind_of_name(path: str, source: str) -> None:
    (fault,) = faults(path, source, Words(frozenset({"bend"})))
    assert fault.startswith(f"{path}: ")
    assert "'bend'" in fault


def test_longer_words_and_other_names_are_left_alone() -> None:
    source = "def _bending(bend): bend = 1\nclass A:\n    bend: int = 0"
    assert not faults("kernels/a.py", source, Words(frozenset({"bend"})))


def test_a_word_may_occur_in_the_phrases_after_but() -> None:
    words = Words(frozenset({"place"}), frozenset({"in_place"}))
    assert words.in_name("PlanInPlace") == []
    assert words.in_name("is_read_in_place") == []
    assert words.in_name("in_placebo_place") == ["place"]
