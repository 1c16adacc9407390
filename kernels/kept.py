"""Machine code that is kept for later processes, as long as no file of this room changes.

Numba looks only at the file of the function that is compiled, and not at those of functions that it
calls: it would keep code that no longer fits these. Needs numba.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any


def keep(compiler: Any) -> None:
    """Let numba's compiler of one function, which has not begun, keep what it makes where files can
    be, and use what it kept."""
    from numba.core.caching import NullCache

    cache: Any = NullCache()
    with contextlib.suppress(RuntimeError, AttributeError):  # no folder; another numba
        compiler.enable_caching()
        compiler._cache._cache_file._source_stamp = _stamp()
        cache = compiler._cache
    compiler._cache = cache


@functools.cache
def _stamp() -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of every file of this room."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    stats = [file.stat() for file in files]
    return tuple(
        (file.name, stat.st_mtime_ns, stat.st_size) for file, stat in zip(files, stats, strict=True)
    )
