"""Every linear kernel gives the same result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from forkroot.kernels.backend import LinearKernel
from forkroot.kernels.cpu.jit import amx, pairs
from forkroot.kernels.cpu.linear import linear
from forkroot.kernels.cpu.linear.half_precision import can_pack
from forkroot.kernels.cpu.linear.linear import (
    Bf16Linear,
    Bf16PairsLinear,
    Bf16x3Linear,
    OneDnnLinear,
    PackedBf16Linear,
    PackedLinear,
    TorchLinear,
    linear_kernel,
    row_dtype,
)

needs_tiles = pytest.mark.skipif(not amx.can_multiply(), reason="needs a processor with AMX")

needs_pairs = pytest.mark.skipif(not pairs.can_multiply(), reason="needs AVX-512 BF16")

needs_packing = pytest.mark.skipif(
    not can_pack(torch.bfloat16), reason="needs a processor for which oneDNN packs bfloat16"
)

PACKED = [
    (PackedLinear, torch.float32),
    (PackedBf16Linear, torch.bfloat16),
    pytest.param(Bf16x3Linear, torch.bfloat16, marks=needs_tiles),
    pytest.param(Bf16x3Linear, torch.float16, marks=needs_tiles),
]

ROUNDING = [
    pytest.param(Bf16Linear, marks=needs_tiles),
    pytest.param(Bf16PairsLinear, marks=needs_pairs),
]


@pytest.mark.parametrize("rows", [1, 3, 33])
@pytest.mark.parametrize(
    ("layout", "dtype", "tolerance"),
    [
        (TorchLinear, torch.float32, 1e-5),
        (OneDnnLinear, torch.float32, 1e-5),
        (PackedLinear, torch.float32, 1e-5),
        (TorchLinear, torch.bfloat16, 0.2),
        pytest.param(OneDnnLinear, torch.bfloat16, 0.2, marks=needs_packing),
    ],
)
def test_a_layout_multiplies_and_adds(
    layout: Callable[[torch.Tensor], LinearKernel], rows: int, dtype: torch.dtype, tolerance: float
) -> None:
    random = torch.Generator().manual_seed(rows)
    weight = torch.randn(70, 40, generator=random).to(dtype)
    x = torch.randn(rows, 40, generator=random).to(dtype)
    total = torch.randn(rows, 70, generator=random).to(dtype)
    wanted = x.double() @ weight.double().T
    kernel = layout(weight)
    assert (kernel(x) - wanted).abs().max() < tolerance
    wanted += total
    kernel.add_to(total, x)
    assert (total - wanted).abs().max() < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_chosen_kernel_is_right_for_each_dtype(dtype: torch.dtype) -> None:
    first, second = (linear_kernel(torch.full((8, 4), value, dtype=dtype)) for value in (1.0, 2.0))
    assert type(first) is type(second)
    of_rows = row_dtype(dtype, torch.device("cpu"))
    x = torch.ones(2, 4, dtype=of_rows)
    assert torch.equal(first(x), torch.full((2, 8), 4.0, dtype=of_rows))
    assert torch.equal(second(x), torch.full((2, 8), 8.0, dtype=of_rows))


@pytest.mark.parametrize(("layout", "stored"), PACKED)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 17, 32, 40, 64, 300])
@pytest.mark.parametrize(("width", "depth"), [(1, 1), (7, 33), (64, 256), (70, 300), (96, 1000)])
def test_packed_weights_multiply_and_add_whatever_the_sizes(
    layout: type[PackedLinear], stored: torch.dtype, rows: int, width: int, depth: int
) -> None:
    random = torch.Generator().manual_seed(rows)
    weight = torch.randn(width, depth, generator=random).to(stored).float()
    x = torch.randn(rows, depth + 3, generator=random)[:, 1:-2]
    total = torch.randn(rows, width, generator=random)
    wanted = x.double() @ weight.double().T
    kernel = layout(weight)
    assert (kernel(x) - wanted).abs().max() < 1e-6 * depth
    wanted += total
    kernel.add_to(total, x)
    assert (total - wanted).abs().max() < 1e-6 * depth


@pytest.mark.parametrize(("layout", "stored"), PACKED)
def test_no_rows_give_no_rows(layout: type[PackedLinear], stored: torch.dtype) -> None:
    assert layout(torch.ones(5, 3))(torch.ones(0, 3)).shape == (0, 5)


@pytest.mark.parametrize(("layout", "stored"), PACKED)
def test_rows_that_do_not_fit_packed_weights_are_refused(
    layout: type[PackedLinear], stored: torch.dtype
) -> None:
    kernel = layout(torch.ones(5, 3))
    with pytest.raises(ValueError, match=r"\[2, 4\] and a matrix \[3, 5\]"):
        kernel(torch.ones(2, 4))
    for total in (torch.ones(2, 6), torch.ones(1, 5)):
        with pytest.raises(ValueError, match="have no product"):
            kernel.add_to(total, torch.ones(2, 3))


@pytest.mark.parametrize(("layout", "stored"), PACKED)
def test_a_row_gives_the_same_numbers_in_any_batch(
    layout: type[PackedLinear], stored: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(1)
    kernel = layout(torch.randn(100, 600, generator=random).to(stored).float())
    x = torch.randn(300, 600, generator=random)
    whole = kernel(x)
    few = (0, 1), (1, 3), (4, 7), (0, 4), (1, 6), (9, 15)
    for start, end in (*few, (290, 300), (7, 40), (3, 60), (8, 280)):
        assert torch.equal(kernel(x[start:end]), whole[start:end])


@pytest.mark.parametrize(("layout", "stored"), PACKED)
def test_a_row_with_nan_changes_no_other(layout: type[PackedLinear], stored: torch.dtype) -> None:
    x = torch.ones(10, 40)
    x[3, 5] = torch.nan
    is_bad = layout(torch.ones(33, 40))(x).isnan()
    assert is_bad.all(-1).nonzero().flatten().tolist() == [3]
    assert is_bad.sum() == 33


@pytest.mark.parametrize(("layout", "stored"), PACKED)
@pytest.mark.parametrize("num_threads", [2, 3])
def test_the_number_of_threads_does_not_change_the_result(
    layout: type[PackedLinear], stored: torch.dtype, num_threads: int
) -> None:
    random = torch.Generator().manual_seed(2)
    weight = torch.randn(500, 400, generator=random).to(stored).float()
    x = torch.randn(40, 400, generator=random)
    alone, several = layout(weight, 1), layout(weight, num_threads)
    assert torch.equal(several(x), alone(x))
    totals = torch.ones(40, 500), torch.ones(40, 500)
    alone.add_to(totals[0], x)
    several.add_to(totals[1], x)
    assert torch.equal(*totals)


def test_half_the_memory_gives_the_same_bits() -> None:
    random = torch.Generator().manual_seed(6)
    weight = torch.randn(90, 300, generator=random).bfloat16().float()
    x = torch.randn(11, 300, generator=random)
    assert torch.equal(PackedBf16Linear(weight)(x), PackedLinear(weight)(x))
    with pytest.raises(ValueError, match="not bfloat16"):
        PackedBf16Linear(torch.full((3, 5), 0.1))


@needs_tiles
@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_bf16x3_has_the_precision_of_float32(stored: torch.dtype) -> None:
    random = torch.Generator().manual_seed(3)
    weight = torch.randn(64, 512, generator=random).exp().to(stored).float()
    x = torch.randn(48, 512, generator=random).exp()
    wanted = x.double() @ weight.double().T
    error = ((Bf16x3Linear(weight)(x) - wanted) / wanted).abs().max()
    assert error < 1e-6  # without the smallest product it is ten times as large


@needs_tiles
@pytest.mark.parametrize("size", [2.0**-126, 2.0**-100, 2.0**-20, 1.0, 2.0**20, 2.0**126])
def test_bf16x3_of_small_and_large_numbers(size: float) -> None:
    random = torch.Generator().manual_seed(4)
    x = torch.rand(20, 32, generator=random) + 1
    kernel = Bf16x3Linear(torch.eye(32) * size)
    assert torch.allclose(kernel(x) / size, x, rtol=2.0**-7 if size < 1e-35 else 1e-6, atol=0)


@needs_tiles
def test_only_weights_of_half_precision_are_split_into_bf16_terms() -> None:
    random = torch.Generator().manual_seed(5)
    weight = torch.randn(90, 33, generator=random)
    for stored in (torch.bfloat16, torch.float16):
        assert isinstance(linear_kernel(weight.to(stored).float()), Bf16x3Linear)
    assert not isinstance(linear_kernel(weight), Bf16x3Linear | PackedBf16Linear)
    with pytest.raises(ValueError, match="neither bfloat16 nor float16"):
        Bf16x3Linear(weight)


def test_without_amx_no_weight_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amx, "can_multiply", lambda: False)
    weight = torch.ones(5, 3)
    assert type(linear_kernel(weight)) is PackedBf16Linear
    with pytest.raises(ValueError, match="does not let tiles be multiplied"):
        Bf16x3Linear(weight)


@pytest.mark.parametrize(("layout", "stored"), PACKED)
@pytest.mark.parametrize(("rows", "num_threads"), [(1, 1), (2, 1), (21, 1), (21, 3)])
def test_some_columns_are_those_of_the_whole_product(
    layout: type[PackedLinear],
    stored: torch.dtype,
    rows: int,
    num_threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear, "_WHOLE", 0)
    random = torch.Generator().manual_seed(3)
    weight = torch.randn(6000, 130, generator=random).to(stored).float()
    kernel, x = layout(weight, num_threads), torch.randn(rows, 130, generator=random)
    wanted = [0, 1, 700, 2047, 2048, 3333, 5999]
    flags = np.zeros(6016, bool)
    flags[wanted] = True
    bits = np.packbits(flags, bitorder="little").view(np.int32)
    spans = kernel.spans(bits)
    assert spans is not None
    panels = sorted({column // kernel.lanes for column in wanted})
    assert [panel for span in spans for panel in range(*span)] == panels
    found, is_chosen = kernel.some(x, spans), np.isin(np.arange(6000) // kernel.lanes, panels)
    assert torch.equal(found[:, is_chosen], kernel(x)[:, is_chosen])
    assert not found[:, ~is_chosen].any()


@pytest.mark.parametrize(("layout", "stored"), PACKED)
def test_most_columns_are_left_to_the_whole_product(
    layout: type[PackedLinear], stored: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_WHOLE", 0)
    kernel = layout(torch.ones(4000, 8))
    every_second = np.full(125, 0x55555555, np.int32)
    assert kernel.spans(every_second) is None
    assert kernel.spans(np.zeros(125, np.int32)) == []
    flags = np.arange(4000) % (3 * kernel.lanes) == 0  # spans cost more than panels
    one_in_many = np.packbits(flags, bitorder="little").view(np.int32)
    assert kernel.spans(one_in_many) is None


@pytest.mark.parametrize(("layout", "stored"), PACKED)
def test_bits_may_be_fewer_or_more_than_columns(
    layout: type[PackedLinear], stored: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_WHOLE", 0)
    kernel = layout(torch.ones(4000, 8))
    first = np.array([1], np.int32)
    assert kernel.spans(first) == [(0, 1)]
    beyond = np.zeros(140, np.int32)
    beyond[[0, 135]] = 1  # tokens of the tokenizer that the model does not have
    assert kernel.spans(beyond) == [(0, 1)]


def test_a_small_matrix_is_read_whole() -> None:
    assert PackedLinear(torch.ones(4000, 8)).spans(np.array([1], np.int32)) is None


@pytest.mark.parametrize("kind", ROUNDING)
@pytest.mark.parametrize("rows", [1, 4, 15, 16, 17, 32, 33, 49, 300])
@pytest.mark.parametrize(("width", "depth"), [(1, 1), (7, 33), (64, 256), (70, 300), (200, 4100)])
def test_rounded_rows_are_multiplied_as_bfloat16_numbers_whatever_the_sizes(
    kind: type[PackedLinear], rows: int, width: int, depth: int
) -> None:
    random = torch.Generator().manual_seed(rows)
    weight = torch.randn(width, depth, generator=random).bfloat16().float()
    x = torch.randn(rows, depth + 3, generator=random)[:, 1:-2]
    total = torch.randn(rows, width, generator=random)
    wanted = x.bfloat16().double() @ weight.double().T
    kernel = kind(weight)
    found = kernel(x)
    assert (found - wanted).abs().max() <= 1e-6 * depth
    assert torch.equal(found[rows // 2], kernel(x[rows // 2 : rows // 2 + 1])[0])
    wanted += total
    kernel.add_to(total, x)
    assert (total - wanted).abs().max() <= 1e-6 * depth


@pytest.mark.parametrize("kind", ROUNDING)
def test_rows_are_rounded_to_the_nearest_bfloat16_number_and_ties_to_the_even_one(
    kind: type[PackedLinear],
) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 2, generator=random).mul(torch.tensor([1.0, 1 / 64])).bfloat16()
    x = x.float().sum(1, keepdim=True)
    assert (x.view(torch.int32) & 0xFFFF == 0x8000).any()  # ties are among them
    kernel = kind(torch.ones(33, 1))
    assert torch.equal(kernel(x), x.bfloat16().float().expand(-1, 33))


@pytest.mark.parametrize("kind", ROUNDING)
def test_rounded_rows_share_panels_out_and_give_some_of_them(kind: type[PackedLinear]) -> None:
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(70_000, 64, generator=random).bfloat16().float()
    x = torch.randn(40, 64, generator=random)
    wanted = kind(weight, num_threads=1)(x)
    shared = kind(weight, num_threads=3)
    assert torch.equal(shared(x), wanted)
    bits = np.zeros(-(-70_000 // 32), np.int32)
    bits[7] = 1 << 3
    spans = shared.spans(bits)
    assert spans is not None
    some = shared.some(x, spans)
    assert torch.equal(some[:, 224:256], wanted[:, 224:256])
    assert not some[:, :192].any()


@pytest.mark.parametrize("kind", ROUNDING)
def test_a_rounded_row_with_nan_changes_no_other(kind: type[PackedLinear]) -> None:
    weight, x = torch.ones(70, 40), torch.ones(20, 40)
    x[3, 2], x[5, 39] = torch.nan, torch.inf
    kernel = kind(weight)(x)
    assert kernel[3].isnan().all()
    assert kernel[5].isinf().all()
    others = [row for row in range(20) if row not in (3, 5)]
    assert torch.equal(kernel[others], torch.full((18, 70), 40.0))


@pytest.mark.parametrize("is_mixed", [False, True])
def test_bfloat16_weights_take_float32_rows_where_compiled_loops_multiply_them(
    monkeypatch: pytest.MonkeyPatch, is_mixed: bool
) -> None:
    monkeypatch.setattr(linear, "has_bf16_loops", lambda: False)
    monkeypatch.setattr(linear, "_has_amx", lambda: False)
    monkeypatch.setattr(linear, "is_native", lambda dtype: not is_mixed)
    cpu, wanted = torch.device("cpu"), torch.float32 if is_mixed else torch.bfloat16
    assert row_dtype(torch.bfloat16, cpu) is wanted
    assert row_dtype(torch.bfloat16, torch.device("cuda")) is torch.bfloat16
    assert row_dtype(torch.float16, cpu) is torch.float16
    if is_mixed:
        kernel = linear_kernel(torch.full((8, 4), 2.0, dtype=torch.bfloat16))
        assert isinstance(kernel, PackedBf16Linear)
        assert torch.equal(kernel(torch.full((3, 4), 1.0009765625)), torch.full((3, 8), 8.0078125))


@needs_pairs
def test_without_amx_bfloat16_weights_are_multiplied_in_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear, "_has_amx", lambda: False)
    kernel = linear_kernel(torch.full((8, 5), 2.0, dtype=torch.bfloat16))
    assert type(kernel) is Bf16PairsLinear
    assert row_dtype(torch.bfloat16, torch.device("cpu")) is torch.float32
    with pytest.raises(ValueError, match="not bfloat16"):
        Bf16PairsLinear(torch.full((3, 5), 0.1))


def test_without_the_instructions_no_pairs_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "can_multiply", lambda: False)
    with pytest.raises(ValueError, match="does not multiply pairs"):
        Bf16PairsLinear(torch.ones(5, 3))
