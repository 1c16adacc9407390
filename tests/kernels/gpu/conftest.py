"""Kernels for GPUs run on one where there is one, else on tiny shapes in Triton's interpreter."""

from __future__ import annotations

import os

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
