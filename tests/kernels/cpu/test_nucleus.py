"""Which tokens the compiled sampler keeps, against an oracle that sorts in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("numba")

from numba import njit

from forkroot.kernels.cpu.jit.jit import compiled
from forkroot.kernels.cpu.sampling import sampler
from forkroot.kernels.cpu.sampling.nucleus import CompiledSampler, Filters

SAMPLER = CompiledSampler()
ROW = "float32[::1]"
weigh = compiled(sampler.weigh.py_func, f"void({ROW}, float32, float32, {ROW})", is_reordered=False)
floor = compiled(
    sampler.floor.py_func,
    f"float32({ROW}, int64, int64, float64, {ROW}, {ROW})",
    is_reordered=False,
)


def weights_of(rows: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    width = -(-rows.shape[1] // sampler.BLOCK) * sampler.BLOCK + sampler.SPARE
    weights = np.empty((len(rows), width), np.float32)
    scale = np.float32(1 / (math.log(2) * temperature))
    for row, found in zip(rows.astype(np.float32), weights, strict=True):
        weigh(row, row.max(), scale, found)
    return weights


def kept(weights: np.ndarray, size: int, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    width, count = weights.shape[1], top_k if 0 < top_k < size else size
    num_blocks = -(-(width // sampler.BLOCK) // sampler.WIDE) * sampler.WIDE
    buffers = np.empty(width, np.float32), np.empty(num_blocks, np.float32)
    floors = [max(floor(row, size, count, top_p, *buffers), np.float32(min_p)) for row in weights]
    return np.array(floors)


def wanted(row: np.ndarray, top_k: int, top_p: float, min_p: float) -> float:
    """The least weight kept, by sorting."""
    best = np.sort(row.astype(np.float64))[::-1]
    best = best[:top_k] if top_k > 0 else best
    sums = np.cumsum(best)
    place = int(np.searchsorted(sums, top_p * sums[-1])) if top_p < 1 else len(best) - 1
    return max(float(best[min(place, len(best) - 1)]), float(np.float32(min_p)))


def shapes(size: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    noise = random.standard_normal((4, size))
    masked = np.where(random.random(size) < 0.5, -np.inf, noise[3])
    return np.stack([noise[0], 3 * noise[1], 9 * noise[2], masked, 0.01 * noise[0]])


@pytest.mark.parametrize("size", [1, 60, 1000, 9000])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 5.0])
def test_weights_are_exponentials_that_end_in_zeros(size: int, temperature: float) -> None:
    rows = shapes(size, 1)[:3].astype(np.float32)
    found = weights_of(rows, temperature)
    exact = np.exp((rows - rows.max(-1, keepdims=True)).astype(np.float64) / temperature)
    assert found.shape[1] > size and not found[:, size:].any()
    assert np.allclose(found[:, :size], exact, rtol=1e-5, atol=1e-37)
    assert (found.max(-1) == 1).all()


@pytest.mark.parametrize("size", [60, 1000, 9000])
@pytest.mark.parametrize("top_p", [0.01, 0.3, 0.77, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("top_k", [-1, 1, 7, 50, 900])
def test_floors_are_those_of_a_sort(size: int, top_p: float, top_k: int) -> None:
    top_k = min(top_k, size)
    for seed in range(3):
        weights = weights_of(shapes(size, seed))
        found = kept(weights, size, top_k, top_p, 0.001)
        for row, floor in zip(weights, found, strict=True):
            assert floor == np.float32(wanted(row[:size], top_k, top_p, 0.001)) or (
                is_narrow_miss(row[:size], top_k, top_p, floor)
            )


def is_narrow_miss(row: np.ndarray, top_k: int, top_p: float, floor: float) -> bool:
    """Whether sums of float32 may also find that the nucleus ends here."""
    best = np.sort(row.astype(np.float64))[::-1]
    best = best[:top_k] if top_k > 0 else best
    goal = top_p * best.sum()
    above, down_to = best[best > floor].sum(), best[best >= floor].sum()
    return bool(above < goal * (1 + 1e-6) and down_to > goal * (1 - 1e-6))


def test_ties_with_the_last_token_kept_are_kept() -> None:
    weights = weights_of(np.log(np.array([[8.0, 4, 4, 4, 2, 2, 1] * 100])))
    for top_k, top_p, floor in ((101, 1.0, 0.5), (400, 1.0, 0.5), (401, 1.0, 0.25)):
        assert kept(weights, 700, top_k, top_p, 0.0)[0] == pytest.approx(floor)
    assert kept(weights, 700, -1, 0.5, 0.0)[0] == pytest.approx(0.5)
    assert kept(weights, 700, 101, 0.5, 0.0)[0] == 1.0  # of the mass of 101, not of all ties


@pytest.mark.parametrize("top_k", [-1, 5])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_of_one_value_end_with_a_token_that_exists(top_k: int, temperature: float) -> None:
    tokens = sampled(np.full((2, 300), 0.5), temperature, top_k)
    assert ((tokens >= 0) & (tokens < 300)).all()


@pytest.mark.parametrize("value", [-np.inf, np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("size", [3, 300])
def test_a_row_that_is_not_finite_gives_no_token(
    value: float, temperature: float, size: int
) -> None:
    for place in (0, size // 2, size - 1):
        rows = np.zeros((3, size))
        rows[1, place], rows[2, -1] = value, 1.0
        assert (sampled(rows, temperature) < 0).tolist() == [False, True, False]
        assert SAMPLER.greedy(rows.astype(np.float32)).tolist() == [0, -1, size - 1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_whose_tokens_are_all_masked_gives_no_token(temperature: float) -> None:
    rows = np.full((3, 300), -np.inf)
    rows[1, 77] = -5.0
    assert sampled(rows, temperature, has_holes=True).tolist() == [-1, 77, -1]


def sampled(
    rows: np.ndarray, temperature: float, top_k: int = -1, has_holes: bool = False
) -> np.ndarray:
    num = len(rows)
    filters = Filters(np.full(num, top_k), np.full(num, 0.9), np.zeros(num, np.float32))
    numbers, temperatures = np.linspace(0, 0.999, num), np.full(num, temperature)
    tokens = SAMPLER.sample(rows.astype(np.float32), temperatures, filters, numbers, has_holes)
    assert (tokens >= -1).all()
    return tokens


@pytest.mark.parametrize("size", [1, 31, 64, 300, 9000])
def test_greedy_takes_the_first_of_equal_logits(size: int) -> None:
    rows = np.random.default_rng(size).integers(-9, 9, (20, size)).astype(np.float32)
    assert SAMPLER.greedy(rows).tolist() == rows.argmax(-1).tolist()


@pytest.mark.parametrize("num", [32, 640, 2048])
def test_weights_are_packed_alike_on_any_processor(num: int) -> None:
    weights = np.random.default_rng(num).random(num).astype(np.float32)
    singly = njit(sampler.packed_singly)
    for low, high in ((0.25, 0.75), (0.0, 2.0), (0.5, 0.5)):
        low, high = np.float32(low), np.float32(high)
        kept = weights[(weights >= low) & (weights < high)]
        for packed in (singly, njit(sampler.packed)):
            found = np.full(num + sampler.SPARE, 9, np.float32)
            assert packed(weights, num, found, low, high) == len(kept)
            assert found[: len(kept)].tolist() == kept.tolist()
            assert not found[len(kept) :][: sampler.SPARE].any()
