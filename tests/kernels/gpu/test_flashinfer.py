"""What FlashInfer is given, on a double where there is no GPU and by itself where there is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from forkroot.kernels.gpu.attention.flashinfer import FlashInferAttention
from forkroot.kernels.interface import Past
from forkroot.kernels.reference import attend

from .closeness import is_close
from .test_attention import CASES, forest, pool


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("window", "softcap"), [(None, None), (24, None), (None, 5.0)])
def test_every_step_is_the_oracles(case, window, softcap, library, device) -> None:
    rng = np.random.default_rng(len(case))
    past, dim, dtype = forest(rng, *CASES[case]), 64, torch.float16
    kv = pool(rng, past, 2, dim).to(dtype)
    q = torch.from_numpy(rng.standard_normal((past.lens.sum(), 8, dim), np.float32)).to(dtype)
    attention = FlashInferAttention(device, 8, 2, dim, dtype, library)
    plan = attention.plan(past, window)
    assert (plan.roots is not None) is ("root" in case and window is None)
    for _ in range(2):  # a plan serves every layer
        found = attention.attend(q.to(device), kv.to(device), plan, 0.125, softcap)
        assert is_close(found, attend(q, kv, past, 0.125, window, softcap), dtype)


@pytest.mark.parametrize("case", CASES)
def test_layers_of_two_windows_take_turns_within_a_step(case, library, device) -> None:
    rng = np.random.default_rng(len(case))
    past, dim, dtype = forest(rng, *CASES[case]), 64, torch.float16
    kv = pool(rng, past, 2, dim).to(dtype)
    q = torch.from_numpy(rng.standard_normal((past.lens.sum(), 8, dim), np.float32)).to(dtype)
    attention = FlashInferAttention(device, 8, 2, dim, dtype, library)
    plans = {window: attention.plan(past, window) for window in (None, 8)}
    for window in (None, 8, None, 8):
        found = attention.attend(q.to(device), kv.to(device), plans[window], 0.125)
        assert is_close(found, attend(q, kv, past, 0.125, window), dtype)


def test_a_plan_is_not_taken_for_that_of_the_step_before(library, device) -> None:
    rng = np.random.default_rng(1)
    past, dim, dtype = forest(rng, *next(iter(CASES.values()))), 64, torch.float16
    kv = pool(rng, past, 2, dim).to(dtype)
    q = torch.from_numpy(rng.standard_normal((past.lens.sum(), 8, dim), np.float32)).to(dtype)
    shorter = Past(past.table, past.rows, past.starts // 2, past.lens)
    attention = FlashInferAttention(device, 8, 2, dim, dtype, library)
    for each in (past, shorter, past):
        found = attention.attend(q.to(device), kv.to(device), attention.plan(each), 0.125)
        assert is_close(found, attend(q, kv, each, 0.125), dtype)
