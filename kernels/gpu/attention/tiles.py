"""Tiles of the attention kernels: how many queries and keys a program multiplies at once.

Chosen by dtype, head dim and the shared memory that a program may use, so that nothing spills and
no launch asks for more than the device has. `benchmarks/kernels/compiled.py` compiles all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..launch import Launch, power_of_two

MIN_ROWS = 16  # of a product on tensor cores
MAX_ROWS = 128
MAX_KEYS = 64
MAX_REGISTERS = 255  # of a thread of extend: without a limit it spills to fit in more programs
FULL_ROWS = 16  # in float32, which has no tensor cores and twice the registers
WGMMA_MEMORY = 200 * 1024  # devices with more multiply from shared memory instead of registers


class Tile(NamedTuple):
    """rows: query heads of queries. keys: of one step of the loop. launch: how it is compiled."""

    rows: int
    keys: int
    launch: Launch


def padded(dim: int) -> int:
    """Columns of a tile for heads of `dim` numbers."""
    return max(MIN_ROWS, power_of_two(dim))


def most_rows(dtype: torch.dtype) -> int:
    """Rows of the largest tile of any device."""
    return FULL_ROWS if dtype is torch.float32 else MAX_ROWS


def decode_tile(dtype: torch.dtype, dim: int, group: int, shared_memory: int) -> Tile:
    """The tile of single queries, `group` heads of each, where a program may use `shared_memory`
    bytes."""
    rows, width = max(MIN_ROWS, power_of_two(group)), padded(dim)
    is_wide = width > 128
    is_heavy = dtype is torch.float32 and width > 64
    most = MAX_KEYS // 2 if is_heavy or (is_wide and rows > MIN_ROWS) else MAX_KEYS
    keys = min(most, _fitting_keys(dtype, width, shared_memory // 3))
    return Tile(rows, keys, Launch(8 if is_heavy else 4, 2 if is_wide else 3))


def extend_tile(dtype: torch.dtype, dim: int, group: int, rows: int, shared_memory: int) -> Tile:
    """The tile of queries over keys, where a list of queries has up to `rows` rows, a power of two;
    the rest as in `decode_tile`."""
    width, heads = padded(dim), power_of_two(group)
    fitting_keys = _fitting_keys(dtype, width, shared_memory // 4)
    if dtype is torch.float32:
        keys = min(MAX_KEYS // 2 if width <= 128 else MAX_KEYS // 4, fitting_keys)
        return Tile(max(FULL_ROWS, heads), keys, Launch(8, 2, MAX_REGISTERS))
    has_wgmma = shared_memory > WGMMA_MEMORY
    most = MAX_ROWS if width <= (128 if has_wgmma else 64) else MAX_ROWS // 2
    rows = max(min(rows, most), heads, MIN_ROWS)
    is_tall = rows > MAX_ROWS // 4
    is_short = rows == MIN_ROWS or (width <= 128 and not is_tall)
    keys = MAX_KEYS if is_short or (is_tall and has_wgmma) else MAX_KEYS // 2
    is_heavy = rows == MAX_ROWS or (is_tall and width > 128)
    return Tile(rows, min(keys, fitting_keys), Launch(8 if is_heavy else 4, 2, MAX_REGISTERS))


def _fitting_keys(dtype: torch.dtype, width: int, num_bytes: int) -> int:
    """How many keys, a power of two, fit into a buffer of so many bytes."""
    fitting = num_bytes // (width * dtype.itemsize)
    return max(MIN_ROWS, 1 << (fitting.bit_length() - 1 if fitting else 0))
