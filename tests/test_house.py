"""The house holds: every import goes down, rooms know what they may, and few see torch.

Reads the sources with `ast` and imports none of them; a failure names the line that broke a rule.
"""

from __future__ import annotations

import ast
import fnmatch
import graphlib
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import pytest

Modules: TypeAlias = dict[str, ast.Module]
Graph: TypeAlias = dict[str, set[str]]

FRAMEWORKS = (
    *("adapters/native/", "adapters/dspy/", "adapters/langchain/"),
    *("adapters/guidance/", "adapters/http/"),
)

# Bottom to top. A room is a file, or a folder (with a slash) and all that is in it. A module
# imports from lower floors and from its own room, and nothing else.
FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "core/__init__.py",
        "core/errors.py",
        "core/exits.py",
        "core/extras.py",
        "core/counters.py",
        "core/model/batch.py",
        *("core/watch.py", "core/beats.py", "core/inbox.py"),
        *("core/nearest.py", "core/compiling.py"),
    ),
    ("core/keywords.py", "core/dialects.py"),
    ("core/prompts.py",),
    ("core/calls.py",),
    ("core/protocol.py",),
    ("core/hub/",),
    (
        *("core/reply.py", "core/config.py", "core/template.py", "core/codec.py"),
        *("core/folders.py", "core/owner.py"),
        *("core/radix/", "core/fsm/", "kernels/"),
    ),
    (
        *("core/tokenizer.py", "core/model/", "core/forks.py", "core/frames.py", "adapters/"),
        "core/restarts.py",
    ),
    ("core/workshop.py", "core/compiler.py", "core/ranks.py", "core/rank.py"),
    ("core/sequence.py", "core/testing.py", *FRAMEWORKS),
    ("adapters/sglang/",),
    (
        "core/intake.py",
        "core/waiting.py",
        "core/pins.py",
        "core/advance.py",
        "core/batches.py",
        "__init__.py",
    ),
    ("core/scheduler.py", "core/flights.py"),
    ("core/engine.py",),
    ("core/local.py", "core/process.py"),
    ("core/child.py", "core/requirements.py"),
    ("examples/",),
    ("models/",),
    ("__main__.py",),
)

# Rooms that know less than their floor would let them.
KNOWS: dict[str, tuple[str, ...]] = {
    "core/reply.py": ("core/protocol.py",),
    "core/config.py": ("core/protocol.py", "core/nearest.py"),
    "core/template.py": ("core/protocol.py",),
    "core/hub/": ("core/protocol.py", "core/nearest.py"),
    "core/folders.py": ("core/protocol.py", "core/nearest.py", "core/hub/"),
    "core/codec.py": ("core/protocol.py", "core/calls.py", "core/errors.py"),
    "core/frames.py": ("core/codec.py",),
    "core/owner.py": ("core/protocol.py",),
    "core/restarts.py": ("core/protocol.py", "core/exits.py", "core/owner.py"),
    "core/workshop.py": (
        *("core/protocol.py", "core/exits.py", "core/owner.py", "core/frames.py", "core/watch.py"),
        "core/fsm/",
    ),
    "core/compiler.py": ("core/protocol.py", "core/frames.py", "core/fsm/"),
    "core/ranks.py": (
        *("core/protocol.py", "core/owner.py", "core/frames.py"),
        *("core/watch.py", "core/beats.py"),
    ),
    "core/rank.py": ("core/protocol.py", "core/frames.py", "core/model/"),
    "core/radix/": ("core/protocol.py", "core/model/batch.py"),
    "core/dialects.py": ("core/nearest.py",),
    "core/fsm/": (
        *("core/protocol.py", "core/counters.py", "core/nearest.py", "core/dialects.py"),
    ),
    "kernels/": ("core/protocol.py",),
    "core/tokenizer.py": ("core/protocol.py", "core/template.py"),
    "core/model/": (
        *("core/protocol.py", "core/folders.py", "core/extras.py", "core/model/batch.py"),
        *("core/hub/", "core/compiling.py", "kernels/"),
    ),
    "core/testing.py": ("core/model/batch.py", "core/tokenizer.py"),
    "adapters/": (
        *("core/protocol.py", "core/reply.py", "core/exits.py", "core/folders.py"),
        *("core/owner.py", "core/nearest.py", "core/keywords.py", "core/dialects.py"),
    ),
    **dict.fromkeys(
        FRAMEWORKS,
        (
            *("core/protocol.py", "core/reply.py", "core/exits.py", "core/extras.py"),
            *("core/owner.py", "core/nearest.py", "core/keywords.py", "core/dialects.py"),
            "adapters/",
        ),
    ),
    "adapters/sglang/": (
        *("core/protocol.py", "core/owner.py", "core/nearest.py", "core/keywords.py"),
        *("adapters/", "adapters/native/"),
    ),
    "__init__.py": (
        *("core/protocol.py", "core/nearest.py"),
        *("adapters/", "adapters/native/", "adapters/sglang/"),
    ),
    "examples/": (
        *("__init__.py", "adapters/", "adapters/dspy/", "adapters/langchain/"),
        *("adapters/guidance/", "core/extras.py"),
    ),
}

# Rooms that only these may see: the composition root joins, and programs stand on top.
SEEN_BY: dict[str, tuple[str, ...]] = {
    "core/model/": (
        *("core/local.py", "core/rank.py", "core/requirements.py"),
        *("models/", "__main__.py"),
    ),
    "kernels/": ("core/model/", "core/local.py", "models/", "__main__.py"),
    "core/local.py": ("core/child.py", "core/requirements.py", "models/", "__main__.py"),
}

# The ways up: `forkroot.connect` fetches the composition root, or a client, when called, and a hub
# model is judged before its weights are downloaded.
WAYS_UP = {
    ("core/folders.py", "core/model/load.py"),
    ("adapters/connection.py", "core/local.py"),
    ("adapters/connection.py", "core/process.py"),
    ("adapters/connection.py", "adapters/http/client.py"),
}

TORCH = ("torch", "triton", "flashinfer", "safetensors.torch")
WITH_TORCH = (
    *("core/model/*", "core/local.py", "core/child.py", "core/rank.py", "kernels/*"),
    "core/requirements.py",
    *("models/evaluate.py", "models/network.py", "models/optimizer.py", "models/planting.py"),
    *("models/probe.py", "models/train.py"),
)
WITHOUT_TORCH = ("core/model/__init__.py", "core/model/batch.py", "core/model/config.py")


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


def room(path: str) -> str | None:
    """The room a module lives in: its own, else the innermost folder's that is one."""
    names = {name for rooms in FLOORS for name in rooms}
    if path in names:
        return path
    homes = [name for name in names if name.endswith("/") and path.startswith(name)]
    return max(homes, key=len, default=None)


def floor(name: str) -> int:
    return next(index for index, rooms in enumerate(FLOORS) if name in rooms)


def is_way_up(item: Import) -> bool:
    return item.is_deferred and (item.source, item.target) in WAYS_UP


def between_rooms(imports: tuple[Import, ...]) -> Iterator[tuple[Import, str, str]]:
    """Imports that lead from one room into another, but for the one way up."""
    for item in imports:
        here, there = room(item.source), room(item.target)
        if item.is_ours and here and there and here != there and not is_way_up(item):
            yield item, here, there


def report(faults: list[str]) -> None:
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


def test_every_module_has_a_floor(modules: Modules) -> None:
    report([f"{path} lives in no room of FLOORS" for path in modules if room(path) is None])


def test_imports_inside_the_package_are_relative_and_find_a_module(
    modules: Modules, imports: tuple[Import, ...]
) -> None:
    tops = {"forkroot", *(path.split("/")[0].removesuffix(".py") for path in modules)}
    report(
        [
            f"{item}, which is no module of the package"
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
            f"{item}: from floor {floor(here)} to floor {floor(there)}, which is not lower"
            for item, here, there in between_rooms(imports)
            if floor(there) >= floor(here)
        ]
    )


def test_rooms_know_no_more_than_they_may(imports: tuple[Import, ...]) -> None:
    report(
        [
            f"{item}: {here} knows only {', '.join(KNOWS[here])}"
            for item, here, there in between_rooms(imports)
            if here in KNOWS and there not in KNOWS[here]
        ]
    )


def test_only_the_composition_root_and_programs_see_models_and_kernels(
    imports: tuple[Import, ...],
) -> None:
    report(
        [
            f"{item}: {there} is seen only by {', '.join(SEEN_BY[there])}"
            for item, here, there in between_rooms(imports)
            if there in SEEN_BY and here not in SEEN_BY[there]
        ]
    )


def test_no_module_imports_itself_in_a_circle(
    modules: Modules, imports: tuple[Import, ...]
) -> None:
    graph: Graph = {path: set() for path in modules}
    for item in imports:
        if item.is_ours and not is_way_up(item):
            graph[item.source].add(item.target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("a circle: " + " is imported by ".join(error.args[1]), pytrace=False)


def may_import_torch(path: str) -> bool:
    return path not in WITHOUT_TORCH and any(fnmatch.fnmatch(path, name) for name in WITH_TORCH)


def imports_torch(item: Import) -> bool:
    return not item.is_ours and any(
        item.target == name or item.target.startswith(f"{name}.") for name in TORCH
    )


def test_only_rooms_beyond_the_torch_line_import_torch(imports: tuple[Import, ...]) -> None:
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
