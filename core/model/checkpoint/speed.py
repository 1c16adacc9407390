"""How fast this machine reads memory and multiplies, measured in a moment; and what a model could
reach by that at best."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from ..sizes import Sizes
from .memory import matrix_parameters, number_bytes

_READ = 128 << 20  # bytes, more than caches hold
_WIDTH = 2048
_ROWS = 256
_SECONDS, _RUNS = 0.08, 3  # of each measurement, at least
CONTEXT = 1000  # tokens before the one that is written


class Machine(NamedTuple):
    """bandwidth: bytes read from memory in a second. flops: operations in a second."""

    bandwidth: float
    flops: float


class Estimate(NamedTuple):
    """Tokens per second of one sequence: written one by one, and of a prompt."""

    decode: float
    prefill: float


def measure(dtype: str, device: str = "cpu") -> Machine:
    """Time a product with one row, which reads a matrix once, and one with many."""
    kind, torch_device = getattr(torch, dtype), torch.device(device)
    wide = torch.ones(_READ // 4 // 4096, 4096, device=torch_device)
    row = torch.ones(4096, device=torch_device)
    matrix = torch.ones(_WIDTH, _WIDTH, dtype=kind, device=torch_device)
    rows = torch.ones(_ROWS, _WIDTH, dtype=kind, device=torch_device)
    with torch.inference_mode():
        read = _least(lambda: torch.mv(wide, row), torch_device)
        multiplied = _least(lambda: torch.mm(rows, matrix), torch_device)
    return Machine(_READ / read, 2 * _ROWS * _WIDTH * _WIDTH / multiplied)


def estimate(
    sizes: Sizes,
    dtype: str,
    device: str,
    machine: Machine,
    of_experts: int = 0,
    fraction: float = 1.0,
) -> Estimate:
    """What memory and arithmetic allow: a written token reads its matrices and the KV of `CONTEXT`
    tokens, a token of a prompt is multiplied with the matrices. As `matrix_parameters`."""
    written, read = matrix_parameters(sizes, of_experts, fraction)
    size = written * number_bytes(sizes, dtype, device) + CONTEXT * sizes.kv_bytes_per_token(dtype)
    return Estimate(machine.bandwidth / size, machine.flops / (2 * read))


def _least(run: Callable[[], object], device: torch.device) -> float:
    """Seconds of the quickest of a few runs, after one that is not counted."""
    best, count = float("inf"), 0
    run()
    end = time.perf_counter() + _SECONDS
    while count < _RUNS or time.perf_counter() < end:
        _finish(device)
        start = time.perf_counter()
        run()
        _finish(device)
        best, count = min(best, time.perf_counter() - start), count + 1
    return best


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
