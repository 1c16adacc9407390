"""What tests stand on: examples drawn alike in every run, and the package's own sources to read."""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from .preloaded import forking, preloader
from .preloader import Forks

ROOT = Path(__file__).resolve().parents[1]
NOT_PACKAGED = {"tests", "benchmarks", "deploy", "docs", "build", "dist"}

os.environ["HF_HUB_OFFLINE"] = "1"  # no test asks the real hub
if "PYTEST_XDIST_WORKER" in os.environ:  # threads of several processes would wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")

hypothesis.settings.register_profile("house", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("house")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `gpu` runs only where there is one."""
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that may take longest begin, so that no process is alone with one at the end."""

    def longest(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout")
        seconds: float = marker.args[0] if marker is not None else 0
        return seconds if seconds > 300 else 0

    items.sort(key=longest, reverse=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules and collected tests are there to the end: garbage is not looked for among them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks | None]:
    """Starts engines, ranks and programs as forks of a process that has imported their code."""
    with preloader() as made:
        yield made


@pytest.fixture(scope="module")
def preloaded(forks: Forks | None) -> Iterator[None]:
    """Engines and ranks that the module's tests start are forks of a process that has imported
    their code."""
    with forking(forks):
        yield


@pytest.fixture(scope="session")
def files() -> tuple[Path, ...]:
    """Every file of the package, relative to the root: modules and data."""
    return tuple(package_files(ROOT))


@pytest.fixture(scope="session")
def modules(files: tuple[Path, ...]) -> dict[str, ast.Module]:
    """Path of every module of the package, and its syntax tree."""
    paths = [path for path in files if path.suffix == ".py"]
    return {path.as_posix(): ast.parse((ROOT / path).read_bytes()) for path in paths}


def package_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if not is_aside(path):
                yield from package_files(path)
        elif folder != ROOT or path.suffix == ".py":
            yield path.relative_to(ROOT)


def is_aside(folder: Path) -> bool:
    """Whether a folder is none of the package's: tests, build products, an environment."""
    return (
        folder.name.startswith((".", "__"))
        or folder.name.endswith(".egg-info")
        or (folder.parent == ROOT and folder.name in NOT_PACKAGED)
        or (folder / "pyvenv.cfg").exists()
    )
