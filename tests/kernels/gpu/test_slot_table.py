"""The slot table on the device is the scheduler's, for all that a step reads."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.kernels.gpu.slot_table import SlotTable
from forkroot.kernels.interface import Past

ROWS, COLUMNS, SPARE = 5, 30, 999


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000))
def test_what_a_step_reads_is_on_the_device_after_any_changes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 100, (ROWS, COLUMNS)).astype(np.int32)
    slots = SlotTable(torch.device("cpu"), SPARE)
    ends = np.zeros(ROWS, np.int32)
    for _ in range(12):
        changed = []
        for row in np.flatnonzero(rng.random(ROWS) < 0.4).tolist():  # cached elsewhere meanwhile
            start, end = sorted(rng.integers(0, ends[row] + 1, 2).tolist())
            table[row, start:end] = rng.integers(0, 100, end - start)
            changed.append((row, start, end))
        some = np.flatnonzero(rng.random(ROWS) < 0.6).astype(np.int32)
        starts = np.array([rng.integers(0, min(ends[row] + 1, COLUMNS)) for row in some], np.int32)
        lens = np.array([rng.integers(1, COLUMNS - start + 1) for start in starts], np.int32)
        for row, start, end in zip(some, starts, starts + lens, strict=True):
            table[row, start:end] = rng.integers(0, 100, end - start)
            ends[row] = end
        known = np.array(changed, np.int32).reshape(-1, 3)
        past = Past(table, some, starts, lens, None if rng.random() < 0.2 else known)
        if rng.random() < 0.1:
            slots.forget()
        slots.update(past)
        for row, end in zip(some, starts + lens, strict=True):
            assert slots.slots[row, :end].tolist() == table[row, :end].tolist()
        assert (slots.slots[-1] == SPARE).all()


def test_only_changes_are_sent() -> None:
    table = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS)
    slots = SlotTable(torch.device("cpu"), SPARE)
    rows, one = np.arange(ROWS, dtype=np.int32), np.ones(ROWS, np.int32)
    slots.update(Past(table, rows, 9 * one, one, np.empty((0, 3), np.int32)))
    table += 1000
    slots.update(Past(table, rows, 10 * one, one, np.array([[1, 4, 6]], np.int32)))
    sent = slots.slots[:ROWS, :11].numpy() >= 1000
    assert np.argwhere(sent[:, :10]).tolist() == [[1, 4], [1, 5]] and sent[:, 10].all()


def test_memory_moves_only_for_a_larger_table() -> None:
    slots = SlotTable(torch.device("cpu"), SPARE)
    assert slots.reserve(4, 10)
    assert not slots.reserve(3, 10)
    assert slots.reserve(4, 11)
    assert slots.slots.shape == (5, 11)
