"""Kernels for GPUs run on one where there is one, else on tiny shapes in Triton's interpreter."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def device() -> torch.device:
    """Where kernels run."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(params=["float32", "float16", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Of what kernels read and write."""
    found = getattr(torch, request.param)
    assert isinstance(found, torch.dtype)
    return found


@pytest.fixture
def library(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Any:
    """FlashInfer, or on a CPU its double, which needs no workspace."""
    if device.type == "cuda":
        return pytest.importorskip("flashinfer")
    from forkroot.kernels.gpu.attention import flashinfer

    from . import flashinfer_double

    monkeypatch.setattr(flashinfer, "WORKSPACE", 1 << 10)
    return flashinfer_double
