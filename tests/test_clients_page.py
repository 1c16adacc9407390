"""The page of clients and the script that runs them name the same ones."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def registry() -> ModuleType:
    """The module that lists the clients."""
    from forkroot.benchmarks.frameworks import clients_registry

    return clients_registry


def test_the_table_of_clients_is_what_the_script_installs_and_runs(registry: ModuleType) -> None:
    assert registry.table() in (ROOT / "docs" / "clients.md").read_text("utf-8")


def test_every_client_has_a_program_and_every_program_a_client(registry: ModuleType) -> None:
    named = {client.program for client in registry.CLIENTS}
    assert len(named) == len(registry.CLIENTS)
    folder = ROOT / "benchmarks" / "frameworks" / "client_programs"
    assert named == {f"client_programs/{path.name}" for path in folder.glob("*.py")}
    for name in named:
        compile((ROOT / "benchmarks" / "frameworks" / name).read_text("utf-8"), name, "exec")
