"""Prefaulted pages hold the same numbers as any others."""

from __future__ import annotations

import sys

import pytest
import torch

from forkroot.kernels.cpu.attention.prefault import Prefaulter
from forkroot.kernels.cpu.pages import empty_in_large_pages

SLOTS_OF_A_PAGE = (1 << 21) // (64 * 4)
SHAPE = (2, 2, 1, 5 * SLOTS_OF_A_PAGE, 64)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system of Linux")
def test_slots_have_pages_before_they_are_used_and_keep_their_numbers() -> None:
    storage = empty_in_large_pages(SHAPE, torch.float32)
    storage[:, :, :, :100] = 7
    prefaulter = Prefaulter(storage)
    threads = [prefaulter.use(slot) for slot in range(0, SHAPE[3], 100)]
    started = [thread for thread in threads if thread is not None]
    assert len(started) == 4  # the first page's was started before
    for thread in started:
        thread.join()
    assert prefaulter.use(SHAPE[3] - 1) is None
    assert bool((storage[:, :, :, :100] == 7).all())
    storage.fill_(3)
    assert bool((storage == 3).all())


def test_slots_that_were_skipped_are_prefaulted_once() -> None:
    prefaulter = Prefaulter(torch.empty(SHAPE))
    first, second = prefaulter.use(3 * SLOTS_OF_A_PAGE), prefaulter.use(3 * SLOTS_OF_A_PAGE)
    assert second is None
    if first is not None:
        first.join()


@pytest.mark.parametrize(
    "storage",
    [
        torch.empty(2, 2, 1, 1000, 64),
        torch.empty(SHAPE).transpose(0, 1),
        torch.empty(SHAPE, device="meta"),
    ],
)
def test_small_pools_and_others_are_left_alone(storage: torch.Tensor) -> None:
    prefaulter = Prefaulter(storage)
    assert [prefaulter.use(slot) for slot in (0, 500, storage.shape[3] - 1)] == [None] * 3
