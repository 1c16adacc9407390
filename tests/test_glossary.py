"""No name of a listed package has a private word of `docs/glossary.md`, which has a standard one.

Reads the sources with `ast` and imports none of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHECKED = ("kernels/cpu",)  # packages, with all that lies in them
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
METRIC = re.compile(r"forkroot[:_][a-z][a-z0-9_]*\Z")


def private_words(page: str, folder: str) -> frozenset[str]:
    """Words in code type in the first columns of the sections that apply to a folder."""
    found: set[str] = set()
    for section in page.split("\n## `")[1:]:
        where, _, text = section.partition("`\n")
        if not (folder + "/").startswith(where):
            continue
        for row in re.findall(r"^\| (.+?) \|", text, re.MULTILINE):
            found.update(word.lower() for word in re.findall(r"`(\w+)`", row))
    return frozenset(found)


def names(path: str, tree: ast.Module) -> Iterator[str]:
    """The module, its classes and functions, the settings of its configs, and metrics."""
    yield Path(path).parent.name if path.endswith("__init__.py") else Path(path).stem
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.target.id
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from METRIC.findall(node.value)


def faults(path: str, source: str, words: frozenset[str]) -> list[str]:
    return [
        f"{path}: {name} has the private word {word!r}; see docs/glossary.md"
        for name in names(path, ast.parse(source))
        for word in sorted({part.lower() for part in WORD.findall(name)} & words)
    ]


@pytest.mark.parametrize("folder", CHECKED)
def test_names_have_no_private_words(folder: str) -> None:
    words = private_words((ROOT / "docs/glossary.md").read_text("utf-8"), folder)
    assert words, f"docs/glossary.md has no section for {folder}"
    found = [
        fault
        for path in sorted((ROOT / folder).rglob("*.py"))
        for fault in faults(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"), words)
    ]
    assert not found, "\n".join(found)


PAGE = """# Glossary

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
    assert private_words(PAGE, "kernels/cpu") == {"bend"}
    assert private_words(PAGE, "core/engine") == {"desk"}
    assert not private_words(PAGE, "adapters")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernels/bend.py", ""),
        ("kernels/bend/__init__.py", ""),
        ("kernels/a.py", "class ScoreBend: pass"),
        ("kernels/a.py", "class A:\n    def _bend_scores(self): pass"),
        ("kernels/a.py", "async def bend2(): pass"),
        ("kernels/a.py", "class RunConfig:\n    bend_scale: float = 1.0"),
        ("kernels/a.py", "COUNTER = 'forkroot_bend_total'"),
    ],
)
def test_a_private_word_is_found_in_every_kind_of_name(path: str, source: str) -> None:
    (fault,) = faults(path, source, frozenset({"bend"}))
    assert fault.startswith(f"{path}: ")
    assert "'bend'" in fault


def test_longer_words_and_other_names_are_left_alone() -> None:
    source = "def bending(bend): bend = 1\nclass A:\n    bend: int = 0"
    assert not faults("kernels/a.py", source, frozenset({"bend"}))
