"""Memory in large pages is memory like any other."""

from __future__ import annotations

import pytest
import torch

from forkroot.kernels.cpu.pages import empty_in_large_pages


@pytest.mark.parametrize("shape", [(3, 5), (3, 1 << 20), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_has_its_shape_and_keeps_what_is_written(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    first, second = empty_in_large_pages(shape, dtype), empty_in_large_pages(shape, dtype)
    assert first.shape == shape
    assert first.dtype is dtype
    assert first.is_contiguous()
    first.fill_(1)
    second.fill_(2)
    assert (first == 1).all()
    assert (second == 2).all()
