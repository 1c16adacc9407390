"""The host tier's memory: what cannot be had is refused by the setting's name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from forkroot.core.api.errors import InvalidCall
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.pool import KVPool
from forkroot.core.model.runner.host import Host, HostStore

from ..conftest import PLAIN

LAYERS = torch.zeros(1, 2, 1, 8, 4)
HUGE = 1 << 46
CPU = torch.device("cpu")


def test_a_file_in_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCall, match=r"invalid host_file=.*expected a new file in a folder"):
        HostStore(LAYERS, Host(8, tmp_path / "missing" / "kv"))


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
