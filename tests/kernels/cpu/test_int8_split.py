"""Numbers split into int8 limbs, and extend attention by them, on processors with AMX."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

pytest.importorskip("numba")

from forkroot.kernels.cpu.attention.extend import ExtendAttention
from forkroot.kernels.cpu.attention.in_place_plan import plan_in_place
from forkroot.kernels.cpu.loops import int8_split
from forkroot.kernels.cpu.work_items import AttentionOutput, ExtendItem, ScoreMod
from forkroot.kernels.interface import Past

if not int8_split.can_multiply():
    pytest.skip("needs a processor with AMX for int8", allow_module_level=True)

from numba import njit

from forkroot.kernels.cpu.jit import amx
from forkroot.kernels.cpu.jit.attention_lanes import few
from forkroot.kernels.cpu.jit.vectors import load, store

NUM_SLOTS = 4000
Numbers = npt.NDArray[np.float32]


@njit(error_model="numpy")
def split(numbers, found, is_signed):  # type: ignore[no-untyped-def]
    """Numbers [4, 16] as int8 limbs [3, 16, 4]."""
    x0, x1 = load(numbers, 0, few()), load(numbers, 16, few())
    x2, x3 = load(numbers, 32, few()), load(numbers, 48, few())
    if is_signed:
        int8_split.store_limbs(x0, x1, x2, x3, found, 0, 16)
    else:
        int8_split.store_limbs_unsigned(x0, x1, x2, x3, found, 0, 16)


@njit(error_model="numpy")
def multiply(left, right, sums, is_signed):  # type: ignore[no-untyped-def]
    amx.begin(amx.ROWS)
    amx.clear(0)
    amx.read(1, left, 0, amx.BYTES)
    amx.read(2, right, 0, amx.BYTES)
    if is_signed:
        int8_split.add_product(0, 1, 2)
    else:
        int8_split.add_product_unsigned(0, 1, 2)
    amx.write(0, sums, 0, amx.BYTES)
    amx.end()


@njit(error_model="numpy")
def joined(sums, found):  # type: ignore[no-untyped-def]
    """found [16] of sums [4, 16]."""
    store(found, 0, int8_split.combine_sums(sums, 0, 16))


@njit(error_model="numpy")
def greatest(numbers):  # type: ignore[no-untyped-def]
    return int8_split.largest_magnitude(int8_split.larger_magnitude(few(), load(numbers, 0, few())))


@pytest.mark.parametrize("is_signed", [True, False])
def test_three_limbs_are_the_nearest_integer(is_signed: bool) -> None:
    most = int8_split.MAX_SIGNED if is_signed else int8_split.MAX_UNSIGNED
    rng = np.random.default_rng(0)
    numbers = rng.uniform(-most if is_signed else 0, most, (4, 16)).astype(np.float32)
    numbers[:, :3] = [[most, 0, 0.4], [127.6, 128, 129], [255, 256, 32768], [65535, 8257663, 1]]
    numbers[:, 3] = -numbers[:, 0] if is_signed else numbers[:, 0]
    found = np.zeros(48, np.float32)
    split(numbers.reshape(-1), found, is_signed)
    limbs = found.view(np.int8 if is_signed else np.uint8).reshape(3, 16, 4).astype(np.int64)
    integers = limbs[0] * 256**2 + limbs[1] * 256 + limbs[2]
    assert (np.rint(numbers) == integers.T).all()


@pytest.mark.parametrize("is_signed", [True, False])
def test_tiles_of_limbs_are_multiplied_exactly(is_signed: bool) -> None:
    rng = np.random.default_rng(1)
    left = rng.integers(-128, 128, (16, 64), np.int8)
    kind = np.int8 if is_signed else np.uint8
    right = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (64, 16), kind)
    packed = np.ascontiguousarray(right.reshape(16, 4, 16).transpose(0, 2, 1))
    sums = np.zeros(256, np.int32)
    multiply(
        left.reshape(-1).view(np.float32), packed.reshape(-1).view(np.float32), sums, is_signed
    )
    assert (sums.reshape(16, 16) == left.astype(np.int64) @ right.astype(np.int64)).all()


def test_sums_are_combined_by_their_order_of_magnitude() -> None:
    rng = np.random.default_rng(2)
    sums = rng.integers(-(1 << 21), 1 << 21, (4, 16), np.int32)
    found = np.zeros(16, np.float32)
    joined(sums.reshape(-1), found)
    wanted = sums[0] * 256.0**2 + sums[1] * 256.0 + sums[2] + sums[3] / 256
    assert (np.abs(found - wanted) <= 1 + 2.0**-23 * np.abs(wanted)).all()


@pytest.mark.parametrize("worst", [3.5, -7.0, math.inf, -math.inf, math.nan])
def test_the_largest_magnitude_is_found_in_every_lane_also_if_it_is_not_finite(
    worst: float,
) -> None:
    for place in range(16):
        numbers = np.full(16, -2.5, np.float32)
        numbers[place] = worst
        assert np.array_equal(greatest(numbers), abs(worst), equal_nan=True)


def scattered(rng: np.random.Generator, starts: list[int], lens: list[int]) -> Past:
    """Sequences with nothing in common, in slots of any order."""
    ends = np.add(starts, lens)
    table = np.full((len(starts), int(ends.max())), -1, np.int32)
    for row, slots in enumerate(np.split(rng.permutation(NUM_SLOTS), np.cumsum(ends))[:-1]):
        table[row, : len(slots)] = slots
    rows = np.arange(len(starts), dtype=np.int32)
    return Past(table, rows, np.array(starts, np.int32), np.array(lens, np.int32))


def pool(rng: np.random.Generator, past: Past, kv_heads: int, dim: int) -> Tensor:
    """Keys and values, with NaN in all slots that no sequence has."""
    kv = torch.full((2, kv_heads, NUM_SLOTS, dim), torch.nan)
    for row, end in zip(past.rows, past.starts + past.lens, strict=True):
        slots = torch.from_numpy(past.table[row, :end].astype(np.int64))
        kv[:, :, slots] = torch.from_numpy(rng.standard_normal((2, kv_heads, end, dim), np.float32))
    return kv


def queries(rng: np.random.Generator, past: Past, heads: int, dim: int) -> Tensor:
    return torch.from_numpy(rng.standard_normal((int(past.lens.sum()), heads, dim), np.float32))


def extend_item(past: Past, window: int | None = None) -> ExtendItem:
    (item,) = plan_in_place(past, window).own
    assert isinstance(item, ExtendItem)
    return item


def read(
    q: Tensor,
    kv: Tensor,
    item: ExtendItem,
    softcap: float | None = None,
    scale: float = 0.125,
    num_threads: int = 1,
) -> AttentionOutput:
    output = AttentionOutput.like(q)
    ExtendAttention(num_threads, True).attend(q, kv, item, ScoreMod(scale, softcap), output)
    return output


def exact(
    q: Tensor,
    kv: Tensor,
    past: Past,
    window: int | None = None,
    softcap: float | None = None,
    scale: float = 0.125,
) -> AttentionOutput:
    """In float64."""
    outs, totals, first = [], [], 0
    for row, start, num in zip(past.rows, past.starts, past.lens, strict=True):
        index = torch.from_numpy(past.table[row, : start + num].astype(np.int64))
        keys, values = (
            x.double().repeat_interleave(q.shape[1] // len(x), 0) for x in kv[:, :, index]
        )
        scores = torch.einsum("thd,hnd->htn", q[first : first + num].double(), keys) * scale
        if softcap is not None:
            scores = (scores / softcap).tanh() * softcap
        behind = torch.arange(start, start + num)[:, None] - torch.arange(start + num)
        hidden = (behind < 0) | (behind >= (window or NUM_SLOTS))
        scores = scores.masked_fill(hidden, -math.inf)
        outs.append((scores.softmax(-1) @ values).transpose(0, 1))
        totals.append(scores.logsumexp(-1).T)
        first += num
    return AttentionOutput(torch.cat(outs), torch.cat(totals))


def off(found: Tensor, wanted: Tensor) -> float:
    """The greatest error of a head's result, by its length."""
    return float(((found - wanted).norm(dim=-1) / wanted.norm(dim=-1)).max())


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (20, None), (100, 5.0), (None, 0.4)])
def test_ragged_extends_have_the_precision_of_float32(
    dim: int, group: int, window: int | None, softcap: float | None
) -> None:
    rng = np.random.default_rng(group)
    past = scattered(rng, [0, 1, 63, 64, 130, 400], [33, 64, 150, 40, 5, 300])
    kv, q = pool(rng, past, 2, dim), queries(rng, past, 2 * group, dim)
    found = read(q, kv, extend_item(past, window), softcap)
    wanted = exact(q, kv, past, window, softcap)
    assert off(found.out, wanted.out) < 3e-6
    assert (found.lse - wanted.lse).abs().max() < 3e-6


def test_limbs_are_as_precise_as_loops_that_multiply_float32() -> None:
    rng = np.random.default_rng(7)
    past = scattered(rng, [500], [200])
    kv, q = pool(rng, past, 2, 64), queries(rng, past, 4, 64)
    wanted, item = exact(q, kv, past).out, extend_item(past)
    plain = AttentionOutput.like(q)
    ExtendAttention(1, False).attend(q, kv, item, ScoreMod(0.125, None), plain)
    found = read(q, kv, item).out
    assert not torch.equal(found, plain.out)
    assert (found - wanted).pow(2).mean() < (plain.out - wanted).pow(2).mean()


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30])
def test_values_of_any_size_have_the_same_precision(size: float) -> None:
    rng = np.random.default_rng(8)
    past = scattered(rng, [100], [50])
    kv, q = pool(rng, past, 2, 64), queries(rng, past, 4, 64)
    kv[1] *= size
    found, wanted = read(q, kv, extend_item(past)).out, exact(q, kv, past).out
    assert off(found / size, wanted / size) < 3e-6


@pytest.mark.parametrize("size", [1e-20, 1e-6, 1e6, 1e20])
def test_keys_of_any_size_have_the_same_precision(size: float) -> None:
    rng = np.random.default_rng(9)
    past = scattered(rng, [100], [50])
    kv, q = pool(rng, past, 2, 64), queries(rng, past, 4, 64)
    kv[0] *= size
    q /= size
    assert off(read(q, kv, extend_item(past)).out, exact(q, kv, past).out) < 3e-6


def test_rows_of_zeros_are_zeros() -> None:
    rng = np.random.default_rng(10)
    past = scattered(rng, [0], [70])
    found = read(queries(rng, past, 2, 64), torch.zeros(2, 1, NUM_SLOTS, 64), extend_item(past))
    assert (found.out == 0).all()
    assert (found.lse - torch.arange(1, 71).log()[:, None]).abs().max() < 1e-6


@pytest.mark.parametrize("scale", [1e-6, 60.0, 1e6])
def test_scores_of_any_size_get_correct_weights(scale: float) -> None:
    rng = np.random.default_rng(11)
    past = scattered(rng, [200], [40])
    kv, q = pool(rng, past, 1, 64), queries(rng, past, 2, 64)
    kv[0], q = kv[0].clamp(-1, 1).round(), q.clamp(-1, 1).round()  # all limbs but one are zeros
    kv[0, :, :, 0], q[:, :, 0] = 127, 1
    found, wanted = read(q, kv, extend_item(past), scale=scale), exact(q, kv, past, scale=scale)
    assert (found.out - wanted.out).abs().max() < 1e-4


def test_chunked_prefill_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(12)
    past = scattered(rng, [0], [400])
    kv, q = pool(rng, past, 2, 64), queries(rng, past, 4, 64)
    whole = read(q, kv, extend_item(past))
    for first, end in ((0, 17), (17, 67), (67, 200), (200, 400), (40, 330)):
        bounds = np.array([[first], [end - first]], np.int32)
        piece = read(q[first:end], kv, extend_item(Past(past.table, past.rows, *bounds)))
        assert torch.equal(piece.out, whole.out[first:end])
        assert torch.equal(piece.lse, whole.lse[first:end])


def test_a_sequence_has_the_same_numbers_beside_shorter_and_longer_ones() -> None:
    rng = np.random.default_rng(13)
    past = scattered(rng, [50, 9, 200, 0], [3, 40, 16, 350])
    kv, q = pool(rng, past, 2, 64), queries(rng, past, 4, 64)
    together = read(q, kv, extend_item(past))
    ends = np.cumsum(past.lens)
    for s, end in enumerate(ends):
        of_one = slice(s, s + 1)
        tokens = slice(int(end - past.lens[s]), int(end))
        one = Past(past.table, past.rows[of_one], past.starts[of_one], past.lens[of_one])
        alone = read(q[tokens], kv, extend_item(one))
        assert torch.equal(alone.out, together.out[tokens])
        assert torch.equal(alone.lse, together.lse[tokens])


@pytest.mark.parametrize("window", [None, 50])
def test_the_number_of_threads_does_not_change_the_result(window: int | None) -> None:
    rng = np.random.default_rng(14)
    past = scattered(rng, [0, 300, 5], [500, 70, 3])
    kv, q = pool(rng, past, 2, 64), queries(rng, past, 6, 64)
    item = extend_item(past, window)
    alone = read(q, kv, item)
    for num_threads in (2, 3, 7):
        several = read(q, kv, item, num_threads=num_threads)
        assert torch.equal(several.out, alone.out)
        assert torch.equal(several.lse, alone.lse)


def test_keys_of_two_items_are_merged() -> None:
    rng = np.random.default_rng(15)
    past = scattered(rng, [130], [60])
    kv, q = pool(rng, past, 2, 64), queries(rng, past, 4, 64)
    item, zero, output = extend_item(past), np.zeros(1, np.int32), AttentionOutput.like(q)
    reader, score_mod = ExtendAttention(1, True), ScoreMod(0.125, None)
    own = {name: getattr(item, name) for name in ("tokens", "table", "rows", "starts", "ends")}
    end = np.array([77], np.int32)
    later = ExtendItem(**own, firsts=end, bounds=item.bounds, window=None, num_scores=1)
    own.update(starts=end, ends=end)
    sooner = ExtendItem(**own, firsts=zero, bounds=item.bounds, window=None, num_scores=1)
    reader.attend(q, kv, later, score_mod, output)
    reader.attend(q, kv, sooner, score_mod, output, is_merged=True)
    wanted = exact(q, kv, past)
    assert off(output.out, wanted.out) < 3e-6
    assert (output.lse - wanted.lse).abs().max() < 3e-6


def test_strided_queries_give_the_same_result() -> None:
    rng = np.random.default_rng(16)
    past = scattered(rng, [50], [30])
    kv, q = pool(rng, past, 2, 64), queries(rng, past, 4, 64)
    strided = torch.stack([q, torch.full_like(q, torch.nan)], -1).flatten(-2)[..., ::2]
    assert strided.stride(-1) == 2
    found, wanted = read(strided, kv, extend_item(past)), read(q, kv, extend_item(past))
    assert torch.equal(found.out, wanted.out)
    assert torch.equal(found.lse, wanted.lse)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_poisoned_key_is_seen_by_later_tokens_of_its_own_sequence_only(poison: float) -> None:
    rng = np.random.default_rng(17)
    past = scattered(rng, [0, 90], [130, 80])
    kv, q = pool(rng, past, 1, 64), queries(rng, past, 2, 64)
    kv[0, :, past.table[0, 64]] = poison
    is_bad = read(q, kv, extend_item(past)).out.isfinite().logical_not().all(-1).all(-1)
    assert is_bad.tolist() == [False] * 64 + [True] * 66 + [False] * 80


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_poisoned_value_is_not_lost(poison: float) -> None:
    rng = np.random.default_rng(18)
    past = scattered(rng, [0, 90], [130, 80])
    kv, q = pool(rng, past, 1, 64), queries(rng, past, 2, 64)
    kv[1, :, past.table[0, 64], 5] = poison
    is_bad = read(q, kv, extend_item(past)).out.isfinite().logical_not().all(-1).any(-1)
    assert is_bad[64:130].all()
    assert not is_bad[:64].any()
    assert not is_bad[130:].any()
