"""Machine code is kept, and never taken for that of other files."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

import numba

from forkroot.kernels.cpu.jit import kept

SOURCE = "def double(x):\n    return x * 2\n"


class Room:
    """A module of one function, and a folder for what is kept of it."""

    def __init__(self, folder: Path) -> None:
        self._file, self._folder = folder / "doubling.py", folder / "kept"
        self._file.write_text(SOURCE)
        self._alive: list[Any] = []  # numba finds what code names while its function lives

    def compiled(self) -> Any:
        """As a new process has it."""
        spec = importlib.util.spec_from_file_location("doubling", self._file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = numba.njit(module.double)
        kept.keep(found)
        found.compile("int64(int64)")
        assert found(21) == 42
        self._alive.append(found)
        return found

    def is_kept(self) -> bool:
        """Whether the function is there, and need not be compiled."""
        return bool(self.compiled().stats.cache_hits)

    @property
    def code(self) -> list[Path]:
        return list(self._folder.rglob("*.nbc"))


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kept"))
    return Room(tmp_path)


def test_code_is_kept_as_long_as_no_file_changes(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not room.is_kept()
    assert room.is_kept()
    older = room.code
    monkeypatch.setattr(kept, "_stamp", lambda: "other")
    assert not room.is_kept()
    assert room.is_kept()
    assert len(room.code) == 1
    assert room.code != older


def test_older_code_is_not_taken_while_newer_is_written(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.compiled()
    replace = os.replace

    def without_code(source: str, target: str) -> None:
        if str(target).endswith(".nbc"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", without_code)
    monkeypatch.setattr(kept, "_stamp", lambda: "other")
    assert not room.is_kept()  # now the index says that there is code
    assert not room.is_kept()


@pytest.mark.parametrize("size", [0, 100])
def test_code_that_is_cut_short_is_made_anew(room: Room, size: int) -> None:
    room.compiled()
    (file,) = room.code
    file.write_bytes(file.read_bytes()[:size])
    assert not room.is_kept()
    assert room.is_kept()


@pytest.mark.parametrize("code", [b"cnowhere\nthing\n.", b"cnumba\nnothing_of_it\n."])
def test_code_that_names_what_is_not_there_is_made_anew(room: Room, code: bytes) -> None:
    room.compiled()
    (file,) = room.code
    file.write_bytes(code)
    assert not room.is_kept()
    assert room.is_kept()


def test_the_same_files_by_another_name_are_another_room(monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept._stamp.__wrapped__()
    monkeypatch.setattr(kept, "__name__", "elsewhere.kernels.kept")
    assert kept._stamp.__wrapped__() != before


def test_the_stamp_is_of_every_file_of_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = []
    monkeypatch.setattr(kept, "__file__", str(tmp_path / "jit" / "kept.py"))
    for text in ("a = 1", "a = 2", "a = 1"):
        (tmp_path / "other.py").write_text(text)
        os.utime(tmp_path / "other.py", (0, 0))
        stamps.append(kept._stamp.__wrapped__())
    assert stamps[0] == stamps[2] != stamps[1]


def test_without_files_or_folders_nothing_is_kept(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise RuntimeError("there are no files to go by")

    monkeypatch.setattr(kept, "_stamp", missing)
    room.compiled()
    assert not room.code


def test_code_for_several_processors_is_kept_side_by_side(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    processors = "one", "other"
    for is_kept in (False, True):
        for name in processors:
            monkeypatch.setattr(kept, "fingerprint", lambda name=name: name)
            assert room.is_kept() is is_kept
    assert sorted(file.name.split(".")[3] for file in room.code) == ["one", "other"]
    monkeypatch.setattr(kept, "_stamp", lambda: "newer")
    assert not room.is_kept()  # of "other"
    monkeypatch.setattr(kept, "_stamp", kept._stamp)
    assert len(room.code) == 2


def test_the_older_code_of_another_processor_is_not_removed(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.compiled()
    (before,) = room.code
    monkeypatch.setattr(kept, "fingerprint", lambda: "other")
    monkeypatch.setattr(kept, "_stamp", lambda: "newer")
    room.compiled()
    assert before.exists()
    assert len(room.code) == 2


def test_code_is_kept_for_the_user_where_the_package_is_read_only(
    room: Room, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba.core.caching import InTreeCacheLocator

    def refuse(self: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(InTreeCacheLocator, "ensure_cache_path", refuse)
    assert not room.is_kept()
    assert room.is_kept()
    assert list((tmp_path / "user").rglob("*.nbc"))
