"""Imports go down only: packages have floors, know only some others, and few of them see torch.

Reads the sources with `ast` and imports none of them; a failure names the line that broke a rule.
"""

from __future__ import annotations

import ast
import fnmatch
import graphlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

Modules: TypeAlias = dict[str, ast.Module]
Graph: TypeAlias = dict[str, set[str]]

ROOT = Path(__file__).resolve().parents[1]
MAX_MODULES = 18  # of one folder, its `__init__` aside

# Bottom to top. A folder (with a slash) is a package: the modules in it, and not those of its
# sub-packages. A module imports from lower floors and from its own package, and nothing else.
# `kernels/devices.py` chooses among the packages below it, and has a floor of its own.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("core/common/", "kernels/", "kernels/cpu/jit/"),
    ("core/api/", "kernels/cpu/", "kernels/cpu/sampling/", "kernels/gpu/"),
    (
        *("core/text/", "core/media/", "core/radix/", "core/fsm/regex/", "core/model/hub/"),
        *("kernels/cpu/loops/", "kernels/gpu/attention/"),
        *(
            "adapters/hints/",
            "adapters/common/",
            "adapters/http/wire/",
            "adapters/native/movement/",
        ),
    ),
    (
        *("core/fsm/tokens/", "core/fsm/json_schema/patterns/", "kernels/cpu/attention/"),
        *("core/engine/pictures/", "core/engine/accounting/"),
        *("kernels/cpu/linear/", "adapters/", "adapters/http/server/"),
        "adapters/langchain/hints/",
    ),
    (
        *("core/fsm/json_schema/", "kernels/cpu/decoder/", "adapters/native/language/"),
        *("adapters/langchain/", "adapters/http/requests/", "adapters/http/bench/"),
        *("adapters/api/", "adapters/router/"),
    ),
    (
        *("core/fsm/grammar/", "kernels/devices.py", "adapters/native/interpreter/"),
        "adapters/native/compiler/graph/",
        *("adapters/dspy/patterns/", "adapters/guidance/grammar/"),
        *("adapters/http/openai/", "adapters/http/sglang/", "adapters/http/relay/"),
    ),
    (
        *("core/fsm/", "core/model/", "adapters/http/forkroot/"),
        *("adapters/dspy/hints/", "adapters/guidance/", "adapters/native/compiler/passes/"),
        "adapters/native/compiler/sharing/",
        "adapters/native/remote/",
    ),
    ("core/model/vision/", "adapters/native/compiler/"),
    ("adapters/native/",),
    ("adapters/native/jobs/", "adapters/http/programs/"),
    (
        *("core/engine/", "core/process/"),
        *("core/model/arch/", "core/model/transformers/", "core/model/sampling/"),
        *("adapters/sglang/", "adapters/dspy/", "adapters/http/", "__init__.py"),
    ),
    ("core/model/runner/", "core/model/checkpoint/", "examples/", "adapters/ray/"),
    ("core/", "models/training/world/"),
    ("check_command.py",),
    ("models/training/tasks/", "models/training/scenes/", "__main__.py"),
    ("models/training/",),
    ("models/", "models/training/vision/"),
)

BASE = ("core/api/", "core/common/")
SCHEMAS = ("core/fsm/regex/", "core/fsm/json_schema/", "core/fsm/json_schema/patterns/")
ROUTES = ("core/api/", "adapters/common/", "adapters/http/wire/", "adapters/http/server/")

# What each package may import. `*` stands for the package and all that is in it.
KNOWS: dict[str, tuple[str, ...]] = {
    "core/common/": (),
    "core/api/": ("core/common/",),
    "core/text/": ("core/api/",),
    "core/media/": BASE,
    "core/radix/": BASE,
    "core/fsm/regex/": ("core/api/",),
    "core/fsm/tokens/": ("core/api/", "core/fsm/regex/"),
    "core/fsm/json_schema/patterns/": ("core/api/", "core/fsm/regex/"),
    "core/fsm/json_schema/": (*BASE, "core/fsm/regex/", "core/fsm/json_schema/patterns/"),
    "core/fsm/grammar/": (
        *("core/api/", "core/fsm/regex/", "core/fsm/tokens/"),
        "core/fsm/json_schema/*",
    ),
    "core/fsm/": (*BASE, "core/fsm/*"),
    "core/engine/pictures/": (*BASE, "core/text/"),
    "core/engine/accounting/": BASE,
    "core/engine/": (
        *(*BASE, "core/text/", "core/radix/", "core/fsm/", "core/fsm/tokens/"),
        "core/engine/accounting/",
        "core/engine/pictures/",
    ),
    "core/process/": (
        *(*BASE, "core/text/", "core/media/", "core/model/hub/", "core/model/vision/"),
        "core/fsm/*",
    ),
    "core/model/hub/": BASE,
    "core/model/": (*BASE, "core/model/hub/", "kernels/*"),
    "core/model/arch/": ("core/api/", "core/model/", "kernels/*"),
    "core/model/vision/": (*BASE, "core/model/", "core/model/hub/"),
    "core/model/transformers/": (
        *(*BASE, "core/model/", "core/model/hub/"),
        *("core/model/vision/", "kernels/*"),
    ),
    "core/model/sampling/": ("core/api/", "core/model/", "kernels/*"),
    "core/model/runner/": (*BASE, "core/model/", "core/model/sampling/", "kernels/*"),
    "core/model/checkpoint/": (*BASE, "core/model/*", "kernels/*"),
    "core/": ("core/*", "kernels/devices.py"),
    "kernels/": (),
    "kernels/cpu/jit/": (),
    "kernels/cpu/": ("kernels/",),
    "kernels/cpu/sampling/": ("kernels/cpu/jit/",),
    "kernels/cpu/loops/": ("kernels/cpu/", "kernels/cpu/jit/"),
    "kernels/cpu/attention/": (
        "kernels/",
        "kernels/cpu/",
        "kernels/cpu/jit/",
        "kernels/cpu/loops/",
    ),
    "kernels/cpu/linear/": ("kernels/", "kernels/cpu/", "kernels/cpu/jit/", "kernels/cpu/loops/"),
    "kernels/cpu/decoder/": ("kernels/", "kernels/cpu/*"),
    "kernels/gpu/": ("kernels/",),
    "kernels/gpu/attention/": ("kernels/", "kernels/gpu/"),
    "kernels/devices.py": ("core/api/", "kernels/*"),
    "adapters/hints/": BASE,
    "adapters/common/": BASE,
    "adapters/": (*BASE, "core/model/hub/", "adapters/hints/", "adapters/common/"),
    "adapters/router/": (*BASE, "adapters/", "adapters/common/"),
    "adapters/api/": (*BASE, "adapters/", "adapters/common/"),
    "adapters/native/language/": (*BASE, "adapters/", "adapters/common/"),
    "adapters/native/interpreter/": (*BASE, "adapters/hints/", "adapters/native/language/"),
    "adapters/native/compiler/graph/": (*BASE, "adapters/native/language/"),
    "adapters/native/compiler/passes/": (
        *(*BASE, "adapters/native/language/"),
        "adapters/native/compiler/graph/",
    ),
    "adapters/native/movement/": BASE,
    "adapters/native/compiler/sharing/": (
        *(*BASE, "adapters/native/movement/", "adapters/native/compiler/graph/"),
    ),
    "adapters/native/compiler/": (
        *(*BASE, "adapters/native/language/", "adapters/native/interpreter/"),
        "adapters/native/compiler/*",
    ),
    "adapters/native/remote/": (
        *(*BASE, "adapters/", "adapters/native/language/", "adapters/native/interpreter/"),
    ),
    "adapters/native/jobs/": (*BASE, "adapters/", "adapters/common/", "adapters/native/*"),
    "adapters/native/": (
        *(*BASE, "adapters/hints/", "core/media/", "adapters/", "adapters/common/"),
        "adapters/native/*",
    ),
    "adapters/sglang/": (*BASE, "adapters/", "adapters/native/*"),
    "adapters/dspy/patterns/": ("core/api/", *SCHEMAS),
    "adapters/dspy/hints/": (*BASE, "adapters/hints/", "adapters/dspy/patterns/"),
    "adapters/dspy/": (
        *(*BASE, "core/media/", "adapters/", "adapters/common/", "adapters/hints/"),
        "adapters/dspy/*",
    ),
    "adapters/langchain/hints/": (*BASE, "adapters/hints/"),
    "adapters/langchain/": (
        *BASE,
        "core/media/",
        "adapters/",
        "adapters/common/",
        "adapters/langchain/*",
    ),
    "adapters/guidance/grammar/": ("core/api/", *SCHEMAS),
    "adapters/guidance/": (*BASE, "adapters/", "adapters/common/", "adapters/guidance/*"),
    "adapters/http/wire/": BASE,
    "adapters/http/server/": ("core/api/", "adapters/common/", "adapters/http/wire/"),
    "adapters/http/requests/": (*ROUTES, "core/common/", "core/media/"),
    "adapters/http/openai/": (*ROUTES, "adapters/http/requests/"),
    "adapters/http/sglang/": (*ROUTES, "adapters/http/requests/"),
    "adapters/http/forkroot/": (
        *(*ROUTES, "adapters/", "adapters/http/requests/", "adapters/http/openai/"),
    ),
    "adapters/http/relay/": (*ROUTES, "adapters/", "adapters/http/requests/"),
    "adapters/http/programs/": (
        *(*ROUTES, "core/common/", "adapters/", "adapters/http/requests/"),
        *("adapters/http/forkroot/", "adapters/native/*"),
    ),
    "adapters/http/bench/": ("core/api/", "adapters/", "adapters/common/"),
    "adapters/http/": (*BASE, "adapters/", "adapters/common/", "adapters/http/*"),
    "adapters/ray/": (
        *(*BASE, "core/model/hub/", "core/process/", "adapters/", "adapters/common/"),
        *("adapters/router/", "adapters/native/*", "adapters/http/*", "__init__.py"),
    ),
    "__init__.py": (*BASE, "adapters/", "adapters/native/", "adapters/sglang/"),
    "examples/": (
        *("__init__.py", *BASE, "core/media/", "adapters/", "adapters/dspy/"),
        *("adapters/langchain/", "adapters/guidance/"),
    ),
    "models/training/world/": ("examples/",),
    "models/training/tasks/": ("models/training/world/",),
    "models/training/scenes/": ("models/training/world/",),
    "models/training/": ("models/training/*",),
    "models/training/vision/": ("models/training/*", "core/model/hub/"),
    "models/": (),
    "check_command.py": (
        *("core/", *BASE, "core/model/hub/", "adapters/", "adapters/common/"),
        *("examples/", "__init__.py"),
    ),
    "__main__.py": ("check_command.py", "core/*", "adapters/*", "examples/", "__init__.py"),
}

# The ways up: `forkroot.connect` fetches the composition root, or a client, when called, and a hub
# model is judged before its weights are downloaded.
WAYS_UP = {
    ("core/model/hub/folders.py", "core/model/checkpoint/load.py"),
    ("adapters/connection.py", "core/local.py"),
    ("adapters/connection.py", "core/process/client.py"),
    ("adapters/connection.py", "core/process/supervisor.py"),
    ("adapters/connection.py", "adapters/http/client.py"),
    ("adapters/connection.py", "adapters/router/start.py"),
}

TORCH = ("torch", "triton", "flashinfer", "safetensors.torch")
WITH_TORCH = (
    *("core/model/*", "core/local.py", "core/child.py", "core/rank.py", "kernels/*"),
    "core/requirements.py",
    *("models/training/evaluate.py", "models/training/network.py"),
    *("models/training/optimizer.py", "models/training/planting.py"),
    *("models/training/probe.py", "models/training/train.py", "models/training/vision/*"),
)
TORCHLESS = "core/model/hub/", "core/model/vision/"
WITHOUT_TORCH = (
    *("core/model/__init__.py", "core/model/config.py", "core/model/hub/*"),
    "core/model/vision/*",
)


class Import(NamedTuple):
    """One imported module, ours by its path and any other by its dotted name.

    is_ours: of this package. is_deferred: inside a function.
    """

    source: str
    line: int
    target: str
    is_ours: bool
    is_deferred: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


@pytest.fixture(scope="session")
def imports(modules: Modules) -> tuple[Import, ...]:
    """Every import of every module, wherever in it: in functions and for types only, too."""
    return tuple(
        item for path, tree in modules.items() for item in read_imports(path, tree, modules)
    )


def read_imports(
    path: str, node: ast.AST, modules: Modules, is_deferred: bool = False
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        for level, names in named_modules(child):
            target = module_path(path, level, names, modules) if level else None
            shown = target or "." * level + ".".join(names)
            yield Import(path, getattr(child, "lineno", 0), shown, level > 0, is_deferred)
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from read_imports(path, child, modules, is_deferred or is_function)


def named_modules(node: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Leading dots and names of what an import statement, or `import_module("...")`, asks for."""
    match node:
        case ast.Import():
            yield from ((0, alias.name.split(".")) for alias in node.names)
        case ast.ImportFrom(level=0, module=str(module)):
            yield 0, module.split(".")
        case ast.ImportFrom():
            home = node.module.split(".") if node.module else []
            yield from ((node.level, [*home, alias.name]) for alias in node.names)
        case ast.Call(
            func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(module)), *_],
        ):
            name = module.lstrip(".")
            yield len(module) - len(name), name.split(".")


def module_path(source: str, level: int, names: list[str], modules: Modules) -> str | None:
    """The file that a relative import means: a module, or the module that defines its last name."""
    home = source.split("/")
    if level > len(home):
        return None
    parts = [*home[:-level], *names]
    stems = ["/".join(parts), "/".join(parts[:-1])]
    paths = [f"{stem}{end}".lstrip("/") for stem in stems for end in (".py", "/__init__.py")]
    return next((path for path in paths if path in modules), None)


def package(path: str) -> str | None:
    """The package that a module is in, or the module itself where it has a floor of its own."""
    home = path if path in KNOWS else path.rpartition("/")[0] + "/"
    return home if home in KNOWS else None


def floor(name: str) -> int:
    return next(index for index, names in enumerate(FLOORS) if name in names)


def may_know(here: str, target_package: str) -> bool:
    return any(
        target_package == known or (known.endswith("*") and target_package.startswith(known[:-1]))
        for known in KNOWS[here]
    )


def is_way_up(item: Import) -> bool:
    return item.is_deferred and (item.source, item.target) in WAYS_UP


def between_packages(imports: tuple[Import, ...]) -> Iterator[tuple[Import, str, str]]:
    """Imports that lead from one package into another, but for the ways up."""
    for item in imports:
        here, target_package = package(item.source), package(item.target)
        if (
            item.is_ours
            and here
            and target_package
            and here != target_package
            and not is_way_up(item)
        ):
            yield item, here, target_package


def report(faults: list[str]) -> None:
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


def test_every_package_has_a_floor_and_says_what_it_may_import(modules: Modules) -> None:
    named = [name for names in FLOORS for name in names]
    assert sorted(named) == sorted(KNOWS)
    report([f"{path} is in no package of KNOWS" for path in modules if package(path) is None])
    homes = {package(path) for path in modules}
    report([f"{name} of KNOWS has no module" for name in KNOWS if name not in homes])


def test_no_folder_has_more_than_18_modules(modules: Modules) -> None:
    measured = {path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks").rglob("*.py")}
    counts = Counter(
        path.rpartition("/")[0]
        for path in {*modules, *measured}
        if not path.endswith("__init__.py")
    )
    report([f"{home}/ has {n} modules" for home, n in counts.items() if n > MAX_MODULES])


def test_imports_inside_the_package_are_relative_and_find_a_module(
    modules: Modules, imports: tuple[Import, ...]
) -> None:
    tops = {"forkroot", *(path.split("/")[0].removesuffix(".py") for path in modules)}
    report(
        [
            f"{item}, which is not a module of the package"
            for item in imports
            if item.is_ours and item.target not in modules
        ]
        + [
            f"{item}: inside the package imports are relative"
            for item in imports
            if not item.is_ours and item.target.split(".")[0] in tops
        ]
    )


def test_imports_go_down_only(imports: tuple[Import, ...]) -> None:
    report(
        [
            f"{item}: from floor {floor(here)} to floor {floor(target_package)}, which is not lower"
            for item, here, target_package in between_packages(imports)
            if floor(target_package) >= floor(here)
        ]
    )


def test_packages_import_no_more_than_they_may(imports: tuple[Import, ...]) -> None:
    report(
        [
            f"{item}: {here} knows only {', '.join(KNOWS[here])}"
            for item, here, target_package in between_packages(imports)
            if not may_know(here, target_package)
        ]
    )


def test_no_package_imports_itself_by_way_of_others(imports: tuple[Import, ...]) -> None:
    graph: Graph = {name: set() for name in KNOWS}
    for _, here, target_package in between_packages(imports):
        graph[here].add(target_package)
    check_no_circle(graph)


def test_models_and_kernels_are_seen_by_composition_roots_alone() -> None:
    for name in KNOWS:
        seen = [it for it in KNOWS if may_know(name, it) and it != name]
        of_models = [it for it in seen if it.startswith("core/model/") and it not in TORCHLESS]
        of_kernels = [it for it in seen if it.startswith("kernels/")]
        if not name.startswith(("core/model/", "kernels/")) and name not in (
            "core/",
            "__main__.py",
        ):
            assert (name, of_models, of_kernels) == (name, [], [])


def test_no_module_imports_itself_in_a_circle(
    modules: Modules, imports: tuple[Import, ...]
) -> None:
    graph: Graph = {path: set() for path in modules}
    for item in imports:
        if item.is_ours and not is_way_up(item):
            graph[item.source].add(item.target)
    check_no_circle(graph)


def check_no_circle(graph: Graph) -> None:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("a circle: " + " is imported by ".join(error.args[1]), pytrace=False)


def may_import_torch(path: str) -> bool:
    def is_of(names: tuple[str, ...]) -> bool:
        return any(fnmatch.fnmatch(path, name) for name in names)

    return is_of(WITH_TORCH) and not is_of(WITHOUT_TORCH)


def imports_torch(item: Import) -> bool:
    return not item.is_ours and any(
        item.target == name or item.target.startswith(f"{name}.") for name in TORCH
    )


def test_only_packages_beyond_the_torch_line_import_torch(imports: tuple[Import, ...]) -> None:
    report(
        [
            f"{item}: torch is for {', '.join(WITH_TORCH)}, without {', '.join(WITHOUT_TORCH)}"
            for item in imports
            if imports_torch(item) and not may_import_torch(item.source)
        ]
    )


def test_no_module_on_this_side_of_the_torch_line_loads_torch_by_way_of_others(
    modules: Modules, imports: tuple[Import, ...]
) -> None:
    loads: Graph = {path: set(parents(path, modules)) for path in modules}
    for item in imports:
        if item.is_ours and not item.is_deferred:
            loads[item.source] |= {item.target, *parents(item.target, modules)}
    heavy = {item.source for item in imports if imports_torch(item) and not item.is_deferred}
    light = [path for path in modules if not may_import_torch(path) and path != "__main__.py"]
    ways = [way_to(heavy, path, loads) for path in light]
    report([f"{way[0]} loads torch: {' imports '.join(way)}" for way in ways if way])


def parents(path: str, modules: Modules) -> Iterator[str]:
    """The `__init__` files that Python runs before this module."""
    parts = path.split("/")[:-1]
    for length in range(len(parts) + 1):
        init = "/".join([*parts[:length], "__init__.py"])
        if init in modules and init != path:
            yield init


def way_to(goals: set[str], start: str, loads: Graph) -> list[str]:
    """A shortest chain of imports from `start` into `goals`; empty where there is none."""
    ways = [[start]]
    seen = {start}
    for way in ways:
        if way[-1] in goals:
            return way
        for target in sorted(loads.get(way[-1], set()) - seen):
            seen.add(target)
            ways.append([*way, target])
    return []


def test_class_patterns_name_what_they_read(modules: Modules) -> None:
    """CPython 3.11 makes a new text of `__match_args__` for each pattern that names nothing, which
    stays in its cache of attributes: that costs time, and scatters memory that a server holds."""
    found = [
        f"{path}:{node.lineno}"
        for path, module in modules.items()
        if path.startswith(("core/", "adapters/", "kernels/"))
        for node in ast.walk(module)
        if isinstance(node, ast.MatchClass) and node.patterns
    ]
    assert not found
