"""The host tier's memory: what cannot be had is refused by the setting's name."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from forkroot.core.api.batch import Copy, Ints, NoMemory
from forkroot.core.api.errors import InvalidCall
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.pool import KVPool
from forkroot.core.model.runner.host import Host, HostStore
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.sizes import STAGING_BYTES

from ..conftest import NUM_SLOTS, PLAIN, MakeCheckpoint, Placement, load
from .counting import AllocationCounter

LAYERS = torch.zeros(1, 2, 1, 8, 4)
HUGE = 1 << 46
CPU = torch.device("cpu")


class FakeCudart:
    """Remembers which memory is locked. error: what it answers instead."""

    def __init__(self, error: int = 0) -> None:
        self.locked = dict[int, int]()
        self._error = error

    def cudaHostRegister(self, pointer: int, num_bytes: int, flags: int) -> int:
        assert flags == 1  # for all devices
        if not self._error:
            self.locked[pointer] = num_bytes
        return self._error

    def cudaHostUnregister(self, pointer: int) -> int:
        del self.locked[pointer]
        return 0


def test_a_file_in_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCall, match=r"invalid host_file=.*expected the name of a new file"):
        HostStore(LAYERS, Host(8, tmp_path / "missing" / "kv"))


@pytest.mark.parametrize("kind", ["a file", "a link", "a link to nothing", "a FIFO", "a folder"])
def test_what_stands_at_the_files_name_is_kept_and_refused(tmp_path: Path, kind: str) -> None:
    file, other = tmp_path / "kv", tmp_path / "other"
    if kind == "a folder":
        file.mkdir()
    elif kind == "a FIFO":
        os.mkfifo(file)
    else:
        there = file if kind == "a file" else other
        if kind != "a link to nothing":
            there.write_text("precious")
        if kind != "a file":
            file.symlink_to(other)
    before = [(path.name, path.lstat()) for path in sorted(tmp_path.iterdir())]
    with pytest.raises(InvalidCall, match=r"invalid host_file=.*expected the name of a new file"):
        HostStore(LAYERS, Host(8, file))
    assert [(path.name, path.lstat()) for path in sorted(tmp_path.iterdir())] == before


def test_a_file_holds_what_is_copied_and_has_no_name(tmp_path: Path) -> None:
    layers = torch.rand(2, 2, 3, 8, 4)
    expected, (slots, host) = layers.clone(), np.array([[5, 1, 2], [0, 7, 3]], np.int32)
    store = HostStore(layers, Host(8, tmp_path / "kv"))
    assert not list(tmp_path.iterdir())
    store.copy(Copy(slots, host, False))
    layers.zero_()
    store.copy(Copy(slots, host, True))
    assert torch.equal(layers[:, :, :, slots], expected[:, :, :, slots])
    store.close()


def test_space_for_all_of_the_file_is_taken_before_it_is_used(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, before[1]))
    try:
        with pytest.raises(InvalidCall, match=r"invalid host_slots=.*\(host_file\)"):
            HostStore(LAYERS, Host(1 << 15, tmp_path / "kv"))  # 1 MiB
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_a_file_that_the_disk_cannot_hold_is_refused_before_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidCall, match=r"invalid host_slots=.*GiB of KV\): expected"):
        HostStore(LAYERS, Host(HUGE, tmp_path / "kv"))
    assert not list(tmp_path.iterdir())


def test_host_memory_that_cannot_be_allocated_is_refused() -> None:
    with pytest.raises(InvalidCall, match="invalid host_slots="):
        HostStore(LAYERS, Host(HUGE))


@pytest.mark.parametrize("is_by_slot", [False, True])
def test_a_pool_that_cannot_be_allocated_is_refused(is_by_slot: bool) -> None:
    with pytest.raises(InvalidCall, match="invalid num_slots="):
        KVPool(PLAIN, HUGE, torch.float32, CPU, Ranks(), is_by_slot)


def copies_of(slots: Ints, host: Ints, *, is_load: bool) -> tuple[Copy, ...]:
    """A copy of each half."""
    middle = len(slots) // 2
    halves = slice(None, middle), slice(middle, None)
    return tuple(Copy(slots[half].copy(), host[half].copy(), is_load) for half in halves)


@pytest.mark.parametrize("num_failures", [1, 2, 3, 4, 5])
def test_copies_that_memory_was_too_short_for_are_made_before_the_next_batch(
    make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch, num_failures: int
) -> None:
    folder, _ = make_checkpoint()
    runner = ModelRunner(load(folder), 2 * NUM_SLOTS, host=Host(64))
    placement = Placement(3)
    prompt = placement.random.integers(3, 61, 40).tolist()
    first = placement.add(prompt)
    token = runner.run(placement.batch({first: 40})).tokens[0]
    placement.ids[first].append(int(token))
    step = placement.batch({first: 1})
    wanted = runner.run(step).tokens.tolist()
    slots, host = step.table[step.rows[0], :40].copy(), np.arange(64, dtype=np.int32)[::-1][:40]
    other = placement.add(placement.random.integers(3, 61, 40).tolist())
    overwriting = placement.batch({other: 40})
    overwriting = replace(overwriting, slots=slots, table=step.table.copy())
    overwriting.table[overwriting.rows[0], :40] = slots

    copy, failures = HostStore.copy, iter([False] + [True] * num_failures)

    def failing(store: HostStore, it: Copy) -> None:
        if next(failures, False):
            copy(store, Copy(it.slots[:7], it.host[:7], it.is_load))
            raise torch.OutOfMemoryError("no memory")
        copy(store, it)

    monkeypatch.setattr(HostStore, "copy", failing)
    batch = replace(overwriting, copies=copies_of(slots, host.copy(), is_load=False))
    while True:
        try:
            runner.run(batch)
            break
        except NoMemory:
            batch = overwriting
    loading = replace(step, copies=copies_of(slots, host.copy(), is_load=True))
    assert runner.run(loading).tokens.tolist() == wanted


def test_long_copies_are_made_in_blocks() -> None:
    layers = torch.arange(2 * 2 * 600 * 4, dtype=torch.float32).view(1, 2, 2, 600, 4)
    store, kept = HostStore(layers, Host(600)), layers.clone()
    slots = np.random.default_rng(0).permutation(600).astype(np.int32)
    host = np.arange(600, dtype=np.int32)
    store.copy(Copy(slots, host, is_load=False))
    layers.zero_()
    store.copy(Copy(slots, host, is_load=True))
    assert torch.equal(layers, kept)


@pytest.mark.parametrize("num_slots", [1, 37, 5000])
def test_pinned_memory_is_exactly_as_large_as_the_host_tier(num_slots: int) -> None:
    cudart = FakeCudart()
    store = HostStore(LAYERS, Host(num_slots), cudart)
    assert list(cudart.locked.values()) == [num_slots * 2 * 4 * 4]
    store.close()
    assert not cudart.locked


def test_pinned_memory_is_unlocked_with_its_last_user() -> None:
    cudart = FakeCudart()
    store = HostStore(LAYERS, Host(8), cudart)
    assert cudart.locked
    del store
    assert not cudart.locked


def test_pinned_memory_holds_what_is_copied_to_it() -> None:
    layers = torch.arange(2 * 8 * 4, dtype=torch.float32).view(1, 2, 1, 8, 4)
    store, kept = HostStore(layers, Host(8), FakeCudart()), layers.clone()
    slots, host = np.arange(8, dtype=np.int32), np.arange(8, dtype=np.int32)[::-1].copy()
    store.copy(Copy(slots, host, is_load=False))
    layers.zero_()
    store.copy(Copy(slots, host, is_load=True))
    assert torch.equal(layers, kept)


def test_memory_that_cannot_be_pinned_is_refused() -> None:
    with pytest.raises(InvalidCall, match=r"invalid host_slots=8 \(0\.0 GiB of KV\): expected"):
        HostStore(LAYERS, Host(8), FakeCudart(error=2))


def test_more_than_the_free_memory_is_refused_before_any_is_pinned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from forkroot.core.model.runner import host

    monkeypatch.setattr(host, "available_memory", lambda: 255)
    cudart = FakeCudart()
    with pytest.raises(InvalidCall, match=r"invalid host_slots=8 .*as many tokens as fit in free"):
        HostStore(LAYERS, Host(8), cudart)
    assert not cudart.locked
    HostStore(LAYERS, Host(7), cudart).close()


def test_copies_of_wide_tokens_take_no_more_of_the_device_than_is_kept_for_them() -> None:
    layers = torch.zeros(4, 2, 128, 80, 256)  # 1 MiB a token
    layers[:, :, 0, :, 0] = torch.arange(80)
    store, kept = HostStore(layers, Host(80)), layers[:, :, :2].clone()
    slots, host = np.arange(80, dtype=np.int32)[::-1].copy(), np.arange(80, dtype=np.int32)
    with AllocationCounter(CPU) as counter:
        store.copy(Copy(slots, host, is_load=False))
        layers.zero_()
        store.copy(Copy(slots, host, is_load=True))
    assert 2 * counter.peak <= STAGING_BYTES + 4096
    assert torch.equal(layers[:, :, :2], kept)
