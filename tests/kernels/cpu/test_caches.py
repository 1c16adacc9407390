"""Sizes of caches, as the system lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forkroot.kernels.cpu.jit.caches import second_cache_size


def listed(folder: Path, caches: dict[str, tuple[str, str]]) -> Path:
    """A folder as Linux lists caches: levels and sizes by name."""
    for name, (level, size) in caches.items():
        (folder / name).mkdir()
        (folder / name / "level").write_text(f"{level}\n")
        (folder / name / "size").write_text(f"{size}\n")
    return folder


@pytest.mark.parametrize(("size", "num_bytes"), [("2048K", 2 << 20), ("1M", 1 << 20)])
def test_the_size_of_the_second_cache_is_read(tmp_path: Path, size: str, num_bytes: int) -> None:
    caches = {"index0": ("1", "32K"), "index2": ("2", size), "index3": ("3", "32M")}
    assert second_cache_size(listed(tmp_path, caches)) == num_bytes


@pytest.mark.parametrize("size", ["", "K", "12", "twoM", "3G"])
def test_a_size_that_is_not_known_is_that_of_a_small_cache(tmp_path: Path, size: str) -> None:
    assert second_cache_size(listed(tmp_path, {"index2": ("2", size)})) == 512 << 10
    assert second_cache_size(tmp_path / "nothing") == 512 << 10
