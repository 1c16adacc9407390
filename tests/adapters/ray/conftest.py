"""One small cluster of Ray for all tests, on this machine; skipped without Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray reads it when it is imported
MEMORY = 200 << 20  # bytes of Ray's object store


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A running cluster of two processors, which ends with the tests; or that of RAY_ADDRESS."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}
    if "RAY_ADDRESS" not in os.environ:
        sizes = {"num_cpus": 2, "object_store_memory": MEMORY, "include_dashboard": False}
        options = {**options, **sizes}
    ray.init(namespace="forkroot", **options)
    yield ray
    ray.shutdown()
