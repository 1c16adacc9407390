"""A hub of the tests' own, with the embedded model under another name."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from forkroot.core.model.hub.folders import model_folder

from .server import Hub, Repository, running_hub


@pytest.fixture(scope="session")
def served() -> Iterator[Hub]:
    """A hub without models."""
    with running_hub() as hub:
        yield hub


@pytest.fixture
def hub(served: Hub, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The hub that the environment names, with "someone/tiny-model", and an empty cache."""
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    served.repositories = {"someone/tiny-model": Repository({"main": tiny})}
    served.requests.clear()
    served.status, served.delay = None, 0.0
    yield served


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model, with files beside it that nobody needs."""
    folder = tmp_path_factory.mktemp("hub") / "tiny"
    shutil.copytree(model_folder("tiny"), folder)
    for name in ("pytorch_model.bin", "model.onnx", "consolidated.safetensors", "tiny.gguf"):
        (folder / name).write_bytes(b"not needed")
    (folder / "original").mkdir()
    (folder / "original" / "model.safetensors").write_bytes(b"not needed")
    return folder
