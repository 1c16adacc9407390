"""The page of clients and the script that runs them name the same ones."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that lists the clients."""
    path = ROOT / "benchmarks" / "clients_registry.py"
    spec = importlib.util.spec_from_file_location("clients_registry", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "clients_registry", module)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_clients_is_what_the_script_installs_and_runs(registry: ModuleType) -> None:
    assert registry.table() in (ROOT / "docs" / "clients.md").read_text("utf-8")


def test_every_client_has_a_program_and_every_program_a_client(registry: ModuleType) -> None:
    named = {client.program for client in registry.CLIENTS}
    assert len(named) == len(registry.CLIENTS)
    folder = ROOT / "benchmarks" / "client_programs"
    assert named == {f"client_programs/{path.name}" for path in folder.glob("*.py")}
    for name in named:
        compile((ROOT / "benchmarks" / name).read_text("utf-8"), name, "exec")
