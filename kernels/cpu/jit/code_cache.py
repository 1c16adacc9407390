"""A disk cache of compiled code, valid as long as no file of `kernels/cpu/` changes.

Numba looks only at the file of the compiled function, not at those of the functions that it calls,
and would use stale code. Code for different processors lies side by side, each with its own index:
machines that share a folder neither remove nor run each other's code. Where the package's folder is
read-only, code goes to the user's cache folder. Needs numba.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from .features import fingerprint

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_SECONDS_BETWEEN_TRIES = 0.1
# Full disks, files cut short, code of modules that are not there.
_BROKEN = (OSError, EOFError, ValueError, ImportError, AttributeError, pickle.UnpicklingError)


def enable_cache(compiler: Any) -> None:
    """Let numba's compiler of one function, which has not compiled yet, use the cache where files
    can be written."""
    from numba.core.caching import NullCache

    cache: Any = NullCache()
    # no folder; another numba
    with contextlib.suppress(RuntimeError, AttributeError, OSError, ValueError):
        compiler.enable_caching()
        _mark(compiler._cache, _stamp(), fingerprint())
        cache = compiler._cache
    compiler._cache = cache


def has_cache(compiler: Any) -> bool:
    """Whether `enable_cache` found a folder for this compiler."""
    return hasattr(compiler._cache, "_cache_file")


@contextlib.contextmanager
def compiling_lock(compiler: Any, seconds: float) -> Iterator[bool]:
    """The lock of those that compile into the folder of a compiler's cache: of several processes
    that start together one compiles, and the others find its code. Gives whether it had to wait.
    After so many seconds, and where there are no such locks, it goes on without; a process that
    ends releases it."""
    has_waited = False
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, AttributeError):
            folder = Path(compiler._cache._cache_file._cache_path)
            folder.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context((folder / "forkroot-compiling.lock").open("a"))
            end = time.monotonic() + seconds
            while not _is_taken(file) and time.monotonic() < end:
                has_waited = True
                time.sleep(_SECONDS_BETWEEN_TRIES)
            stack.callback(_unlock, file)
        yield has_waited


def _is_taken(file: IO[str]) -> bool:
    """Whether this process has the lock of a file now. Raises OSError where there are no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(file: IO[str]) -> None:
    """Closing is not enough: a fork of this process may hold the file open."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_UN)


def is_cached(compiler: Any, signature: Any) -> bool:
    """Whether the cache has code of a function for a signature."""
    files = getattr(compiler._cache, "_cache_file", None)
    if files is None:
        return False
    with contextlib.suppress(*_BROKEN):
        names = {key[0]: name for key, name in files._load_index().items()}
        name = names.get(signature)
        return name is not None and Path(files._data_path(name)).exists()
    return False


def _mark(cache: Any, stamp: str, processor: str) -> None:
    """Make a cache valid for one stamp and processor only. Both are in the name of the code's file:
    numba writes the index first, and another process would meanwhile load older code, or that of
    another processor."""
    files = cache._cache_file
    begin, end = files._data_name_pattern.split("{", 1)
    begin = f"{begin}{processor}."
    files._index_name = f"{begin}nbi"
    files._index_path = str(Path(files._cache_path) / files._index_name)
    files._source_stamp, files._data_name_pattern = stamp, f"{begin}{stamp}.{{{end}"
    load, save = cache.load_overload, cache.save_overload
    cache.load_overload = _patient(load)
    folder = Path(files._cache_path)

    def save_and_clear(*given: Any) -> None:
        with _locked(folder):
            save(*given)
            _clear(folder, begin, stamp)

    cache.save_overload = _patient(save_and_clear)


def _patient(action: Callable[..., Any]) -> Any:
    """The same function, but it returns None where a file cannot be read or written."""

    def tried(*given: Any) -> Any:
        with contextlib.suppress(*_BROKEN):
            return action(*given)
        return None

    return tried


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, where the system has such locks. Numba reads the index of a
    function, adds an entry and writes it: of two processes at a time, one entry would be lost, or
    name the other's code."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "forkroot.lock").open("a") as file:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _clear(folder: Path, begin: str, stamp: str) -> None:
    """Remove cached code of a function for this processor under other stamps."""
    for file in folder.iterdir():
        is_code = file.name.startswith(begin) and file.suffix == ".nbc"
        if is_code and not file.name.startswith(begin + stamp):
            file.unlink(missing_ok=True)


@functools.cache
def _stamp() -> str:
    """A hash of every file of `kernels/cpu/` and its name, and of this module's name, which cached
    code refers to."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    if not files:
        raise RuntimeError("there are no files to go by")
    texts = (f"{file.name}\0".encode() + file.read_bytes() for file in files)
    return hashlib.sha256(b"\0".join([__name__.encode(), *texts])).hexdigest()[:16]
