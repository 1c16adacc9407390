"""Every layout of a matrix gives the same product."""

from __future__ import annotations

import pytest
import torch

from forkroot.kernels.products import Layout, Packed, Plain, Products


@pytest.mark.parametrize("rows", [1, 3, 33])
@pytest.mark.parametrize("layout", [Plain, Packed])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.2)])
def test_a_layout_multiplies_and_adds(
    layout: Layout, rows: int, dtype: torch.dtype, tolerance: float
) -> None:
    random = torch.Generator().manual_seed(rows)
    weight = torch.randn(70, 40, generator=random).to(dtype)
    x = torch.randn(rows, 40, generator=random).to(dtype)
    total = torch.randn(rows, 70, generator=random).to(dtype)
    wanted = x.double() @ weight.double().T
    product = layout(weight)
    assert (product(x) - wanted).abs().max() < tolerance
    wanted += total
    product.add_to(total, x)
    assert (total - wanted).abs().max() < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_chosen_layout_is_remembered_and_right(dtype: torch.dtype) -> None:
    products = Products()
    first, second = (products.of(torch.full((8, 4), value, dtype=dtype)) for value in (1.0, 2.0))
    assert type(first) is type(second)
    x = torch.ones(2, 4, dtype=dtype)
    assert torch.equal(first(x), torch.full((2, 8), 4.0, dtype=dtype))
    assert torch.equal(second(x), torch.full((2, 8), 8.0, dtype=dtype))
