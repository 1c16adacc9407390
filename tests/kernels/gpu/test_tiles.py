"""Tiles of attention fit into the shared memory of every device, and cover all queries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from forkroot.kernels.gpu.attention.attention import GpuAttention
from forkroot.kernels.gpu.attention.tiles import decode_tile, extend_tile, padded
from forkroot.kernels.interface import Past
from forkroot.kernels.reference import attend

from .closeness import is_close

KIB = 1024
DEVICES = (64 * KIB, 99 * KIB, 163 * KIB, 227 * KIB)  # T4, A10G and L4, A100, H100
HALF = torch.bfloat16


@pytest.mark.parametrize("memory", DEVICES)
def test_buffers_of_keys_and_values_fit_into_every_device(memory: int) -> None:
    dtypes, dims = (HALF, torch.float32), (8, 64, 80, 96, 128, 256, 512)
    for dtype, dim, group in itertools.product(dtypes, dims, (1, 4, 7, 16, 64)):
        tiles = [decode_tile(dtype, dim, group, memory)]
        tiles += [extend_tile(dtype, dim, group, rows, memory) for rows in (16, 32, 64, 128)]
        for tile in tiles:
            buffers = 3 if tile is tiles[0] else 4  # of keys and values
            num_bytes = buffers * tile.keys * padded(dim) * dtype.itemsize
            assert num_bytes <= memory or tile.keys == 16
            assert tile.rows >= max(group, 16)


def test_wide_heads_get_smaller_tiles_on_small_devices() -> None:
    small, large = (extend_tile(HALF, 256, 2, 128, it * KIB) for it in (99, 227))
    assert (small.rows, small.keys, small.launch.num_warps) == (64, 32, 8)
    assert (large.rows, large.keys, large.launch.num_warps) == (64, 64, 8)
    assert decode_tile(HALF, 256, 2, 99 * KIB).keys == 64
    assert decode_tile(HALF, 256, 2, 64 * KIB).keys == 32
    assert decode_tile(torch.float32, 256, 2, 227 * KIB).keys == 32


def test_usual_heads_keep_large_tiles_on_large_devices() -> None:
    assert extend_tile(HALF, 128, 4, 128, 227 * KIB)[:2] == (128, 64)
    assert extend_tile(HALF, 128, 4, 128, 163 * KIB)[:2] == (64, 32)
    assert extend_tile(HALF, 64, 4, 128, 99 * KIB)[:2] == (128, 32)
    assert decode_tile(HALF, 128, 4, 99 * KIB)[:2] == (16, 64)


@pytest.mark.parametrize("window", [None, 50])
def test_lists_of_queries_longer_than_a_tile_are_those_of_the_oracle(window, device) -> None:
    """128 rows are planned; heads of 256 numbers get tiles of 64."""
    rng = np.random.default_rng(1)
    table = rng.permutation(300).astype(np.int32)[None, :90]
    past = Past(table, np.zeros(1, np.int32), np.array([10], np.int32), np.array([75], np.int32))
    kv, q = (
        torch.from_numpy(rng.standard_normal(shape, np.float32)).half()
        for shape in ((2, 1, 300, 256), (75, 2, 256))
    )
    attention = GpuAttention(device, 1, torch.float16, 2)
    found = attention.attend(q.to(device), kv.to(device), attention.plan(past, window), 0.1)
    assert is_close(found, attend(q, kv, past, 0.1, window), torch.float16)
