"""Compiled code is cached, and never taken for that of other files."""

from __future__ import annotations

import importlib.util
import os
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

import numba

from forkroot.kernels.cpu.jit import code_cache

SOURCE = "def double(x):\n    return x * 2\n"


class Package:
    """A module of one function, and a cache folder for its code."""

    def __init__(self, folder: Path) -> None:
        self._file, self._folder = folder / "doubling.py", folder / "cache"
        self._file.write_text(SOURCE)
        self._alive: list[Any] = []  # numba finds what code names while its function lives

    def loaded(self) -> Any:
        """The function as a new process has it."""
        spec = importlib.util.spec_from_file_location("doubling", self._file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._alive.append(module)
        found = numba.njit(module.double)
        code_cache.enable_cache(found)
        return found

    def compiled(self) -> Any:
        """The same, compiled."""
        found = self.loaded()
        found.compile("int64(int64)")
        assert found(21) == 42
        self._alive.append(found)
        return found

    def is_cached(self) -> bool:
        """Whether the function is there, and need not be compiled."""
        return bool(self.compiled().stats.cache_hits)

    @property
    def code(self) -> list[Path]:
        return list(self._folder.rglob("*.nbc"))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    return Package(tmp_path)


def test_code_is_cached_as_long_as_no_file_changes(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not package.is_cached()
    assert package.is_cached()
    older = package.code
    monkeypatch.setattr(code_cache, "_stamp", lambda: "other")
    assert not package.is_cached()
    assert package.is_cached()
    assert len(package.code) == 1
    assert package.code != older


def test_older_code_is_not_taken_while_newer_is_written(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    package.compiled()
    replace = os.replace

    def without_code(source: str, target: str) -> None:
        if str(target).endswith(".nbc"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", without_code)
    monkeypatch.setattr(code_cache, "_stamp", lambda: "other")
    assert not package.is_cached()  # now the index says that there is code
    assert not package.is_cached()


@pytest.mark.parametrize("size", [0, 100])
def test_truncated_code_is_compiled_again(package: Package, size: int) -> None:
    package.compiled()
    (file,) = package.code
    file.write_bytes(file.read_bytes()[:size])
    assert not package.is_cached()
    assert package.is_cached()


@pytest.mark.parametrize("code", [b"cnowhere\nthing\n.", b"cnumba\nnothing_of_it\n."])
def test_code_that_refers_to_missing_modules_is_compiled_again(
    package: Package, code: bytes
) -> None:
    package.compiled()
    (file,) = package.code
    file.write_bytes(code)
    assert not package.is_cached()
    assert package.is_cached()


def test_the_same_files_by_another_name_are_another_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = code_cache._stamp.__wrapped__()
    monkeypatch.setattr(code_cache, "__name__", "elsewhere.kernels.code_cache")
    assert code_cache._stamp.__wrapped__() != before


def test_the_stamp_is_of_every_file_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = []
    monkeypatch.setattr(code_cache, "__file__", str(tmp_path / "jit" / "code_cache.py"))
    for text in ("a = 1", "a = 2", "a = 1"):
        (tmp_path / "other.py").write_text(text)
        os.utime(tmp_path / "other.py", (0, 0))
        stamps.append(code_cache._stamp.__wrapped__())
    assert stamps[0] == stamps[2] != stamps[1]


def test_without_files_or_folders_nothing_is_cached(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise RuntimeError("there are no files to go by")

    monkeypatch.setattr(code_cache, "_stamp", missing)
    package.compiled()
    assert not package.code


def test_code_for_several_processors_is_cached_side_by_side(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    processors = "one", "other"
    for is_cached in (False, True):
        for name in processors:
            monkeypatch.setattr(code_cache, "fingerprint", lambda name=name: name)
            assert package.is_cached() is is_cached
    assert sorted(file.name.split(".")[3] for file in package.code) == ["one", "other"]
    monkeypatch.setattr(code_cache, "_stamp", lambda: "newer")
    assert not package.is_cached()  # of "other"
    monkeypatch.setattr(code_cache, "_stamp", code_cache._stamp)
    assert len(package.code) == 2


def test_the_older_code_of_another_processor_is_not_removed(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    package.compiled()
    (before,) = package.code
    monkeypatch.setattr(code_cache, "fingerprint", lambda: "other")
    monkeypatch.setattr(code_cache, "_stamp", lambda: "newer")
    package.compiled()
    assert before.exists()
    assert len(package.code) == 2


def test_code_is_cached_for_the_user_where_the_package_is_read_only(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba.core.caching import InTreeCacheLocator

    def refuse(self: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(InTreeCacheLocator, "ensure_cache_path", refuse)
    assert not package.is_cached()
    assert package.is_cached()
    assert list((tmp_path / "user").rglob("*.nbc"))


def test_two_that_save_code_of_one_function_at_a_time_lose_none(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    signatures = ["float32(float32)", "int16(int16)"]
    first, second = (package.loaded() for _ in signatures)
    save, given = second._cache.save_overload, list[Any]()
    monkeypatch.setattr(second._cache, "save_overload", lambda *args: given.extend(args))
    second.compile(signatures[1])
    other = threading.Thread(target=save, args=given)
    write = first._cache._cache_file._save_index

    def write_late(overloads: Any) -> None:
        other.start()
        other.join(0.3)  # ends meanwhile, unless it waits for its turn
        write(overloads)

    monkeypatch.setattr(first._cache._cache_file, "_save_index", write_late)
    first.compile(signatures[0])
    other.join()
    for signature in signatures:
        found = package.loaded()
        found.compile(signature)
        assert found.stats.cache_hits
