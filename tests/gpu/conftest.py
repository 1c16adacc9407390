"""What tests on a GPU stand on. Nothing here imports Triton before a test runs: elsewhere its
kernels are interpreted, which must be said first."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from forkroot.core.api.protocol import Call
from forkroot.core.local import LocalBackend

from .asking import LONGEST, NUM_PROMPTS, NUM_TOKENS, SIZES, Answers, answers_of, make_prompts


@pytest.fixture
def device() -> str:
    """The name of a device, for settings."""
    return "cuda"


@pytest.fixture
def measuring() -> Callable[[str], ModuleType]:
    """Modules of the benchmarks by name; what they measure on a GPU they also check."""
    from importlib import import_module

    return lambda name: import_module(f"forkroot.benchmarks.gpu.{name}")


@pytest.fixture
def prompts() -> list[Call]:
    """Greedy calls of 1 to LONGEST tokens, most of which begin as others do."""
    return make_prompts(NUM_PROMPTS, LONGEST, NUM_TOKENS)


@pytest.fixture
def answers() -> Callable[..., Answers]:
    """The tokens of calls that are submitted together, from a new engine of these settings."""

    def run(calls: list[Call], **settings: Any) -> Answers:
        wanted = {**SIZES, "dtype": "float32", **settings}
        with LocalBackend.from_folder("tiny", **wanted) as backend:
            found = answers_of(backend, calls)
            backend.check()
        return found

    return run
