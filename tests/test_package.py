"""What the package is made of: its list and data, a light face, true exports, finished sources.

Reads the sources with `ast`; a failure names the file, and the line, that broke a rule.
"""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Modules: TypeAlias = dict[str, ast.Module]

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES, MAX_FUNCTION_LINES = 400, 60
NOT_IN_WHEEL = re.compile("models/training(/|$)")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


def report(faults: list[str]) -> None:
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


@pytest.mark.parametrize(
    "use",
    ["", "for name in forkroot.__all__: getattr(forkroot, name)"],
    ids=["import", "every name"],
)
def test_the_face_loads_the_standard_library_and_itself_only(use: str, tmp_path: Path) -> None:
    program = f"""
import sys
before = set(sys.modules)
import forkroot
{use}
tops = {{name.split(".")[0] for name in set(sys.modules) - before}}
print(forkroot.__file__, *sorted(tops - sys.stdlib_module_names - {{"forkroot"}}), sep="\\n")
"""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    file, *others = done.stdout.splitlines()
    assert Path(file).samefile(ROOT / "__init__.py")
    assert others == []


def setuptools_table() -> dict[str, Any]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    table: dict[str, Any] = project["tool"]["setuptools"]
    return table


def test_the_package_list_in_pyproject_is_the_tree_but_for_training(modules: Modules) -> None:
    homes = sorted({path.rpartition("/")[0] for path in modules})
    shipped = [home for home in homes if not NOT_IN_WHEEL.match(home)]
    tree = [".".join(["forkroot", *filter(None, home.split("/"))]) for home in shipped]
    assert setuptools_table()["packages"] == tree
    inits = [f"{home}/__init__.py".lstrip("/") for home in homes]
    report([f"{init} is missing" for init in inits if init not in modules])


def test_every_data_file_inside_the_package_but_for_training_is_packaged(
    files: tuple[Path, ...],
) -> None:
    globs = {
        "/".join([*package.split(".")[1:], pattern])
        for package, patterns in setuptools_table()["package-data"].items()
        for pattern in patterns
    }
    data = [path.as_posix() for path in files if path.suffix not in {".py", ".md"}]
    data = [path for path in data if not NOT_IN_WHEEL.match(path)]
    lost = [path for path in data if not any(fnmatch.fnmatch(path, glob) for glob in globs)]
    empty = [glob for glob in sorted(globs) if not any(ROOT.glob(glob))]
    report(
        [f"{path} matches no package-data of pyproject.toml" for path in lost]
        + [f"package-data {glob} matches no file" for glob in empty]
    )


def test_every_exported_name_is_bound_and_listed_once(modules: Modules) -> None:
    faults = []
    for path, tree in modules.items():
        names = exported(tree)
        faults += [f"{path}: __all__ lists {n} twice" for n in set(names) if names.count(n) > 1]
        faults += [f"{path}: __all__ lists {n}, not bound here" for n in set(names) - bound(tree)]
    report(faults)


def exported(tree: ast.Module) -> list[str]:
    """What `__all__` lists. (Its order is held by the linter, rule RUF022.)"""
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names += ast.literal_eval(node.value)
    return names


def bound(tree: ast.Module) -> set[str]:
    """Names that a module binds at its top, be it under a condition."""
    names: set[str] = set()
    pending: list[ast.AST] = list(tree.body)
    for node in pending:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
                continue
            case ast.alias():
                names.add((node.asname or node.name).split(".")[0])
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
        pending += ast.iter_child_nodes(node)
    return names


def test_sources_are_finished(modules: Modules) -> None:
    faults = []
    for path, tree in modules.items():
        lines = (ROOT / path).read_text("utf-8").splitlines()
        faults += [
            f"{path}:{number} is unfinished: {line.strip()}"
            for number, line in enumerate(lines, 1)
            if UNFINISHED.search(line)
        ]
        faults += [f"{path}:{line} {fault}" for line, fault in sloppy_statements(tree)]
    report(faults)


def sloppy_statements(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=None):
                yield node.lineno, "has a bare except"
            case ast.Assert(test=ast.Constant()):
                yield node.lineno, "asserts a constant"
            case ast.Global():
                yield node.lineno, "rebinds a global"


def test_files_and_functions_are_short(modules: Modules) -> None:
    faults = []
    for path, tree in modules.items():
        num_lines = len((ROOT / path).read_text("utf-8").splitlines())
        if num_lines > MAX_LINES:
            faults.append(f"{path} has {num_lines} lines, more than {MAX_LINES}")
        if path.startswith("kernels/"):
            continue
        faults += [
            f"{path}:{line} {name} has {num_lines} lines, more than {MAX_FUNCTION_LINES}"
            for name, line, num_lines in functions(tree)
            if num_lines > MAX_FUNCTION_LINES
        ]
    report(faults)


def functions(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines of each function; decorators do not count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def test_the_structure_pages_have_one_line_for_every_module_and_no_other(modules: Modules) -> None:
    listed: list[str] = []
    for page in sorted((ROOT / "docs/structure").glob("*.md")):
        listed += re.findall(r"^\| `([\w/.]+\.py)` \|", page.read_text("utf-8"), re.MULTILINE)
    missing, invented = modules.keys() - set(listed), set(listed) - modules.keys()
    faults = [f"docs/structure/ has no line for {path}" for path in sorted(missing)]
    faults += [f"docs/structure/ lists {path}, which is not there" for path in sorted(invented)]
    faults += [f"docs/structure/ lists {p} twice" for p in set(listed) if listed.count(p) > 1]
    report(faults)


def test_the_structure_pages_have_a_section_for_every_package_before_its_modules(
    modules: Modules,
) -> None:
    faults: list[str] = []
    sections: list[str] = []
    for page in sorted((ROOT / "docs/structure").glob("*.md")):
        home = ""
        for line in page.read_text("utf-8").splitlines():
            if found := re.match(r"^## `([\w/]+)/`$", line):
                sections.append(home := found[1])
                continue
            found = re.match(r"^\| `([\w/.]+\.py)` \|", line)
            if found and found[1].rpartition("/")[0] != home:
                faults.append(f"{page.name}: {found[1]} is not in the section of its package")
    packages = {path.rpartition("/")[0] for path in modules} - {""}
    assert sorted(sections) == sorted(packages)
    report(faults)


def test_the_readme_begins_with_the_tree_of_the_structure_page(modules: Modules) -> None:
    tree = (ROOT / "docs/structure.md").read_text("utf-8").split("```")[1]
    assert tree in (ROOT / "README.md").read_text("utf-8").partition("\n## ")[0]
    folders = {name for path in modules for name in path.split("/")[:-1]} | {"benchmarks", "tests"}
    assert set(re.findall(r"(\w+)/", tree)) <= folders


def test_every_package_says_what_it_is_for_its_entry_and_what_it_may_import_and_knows_not(
    modules: Modules,
) -> None:
    faults = []
    for path, tree in modules.items():
        if path.endswith("/__init__.py"):
            text = ast.get_docstring(tree) or ""
            wanted = ("Entry:", "May import", "ever know")
            faults += [f"{path} does not say {it!r}" for it in wanted if it not in text]
            if len(text.splitlines()) > 12:
                faults.append(f"{path} says more than it should")
    report(faults)
