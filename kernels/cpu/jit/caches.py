"""Sizes of the processor's caches, as the system reports them."""

from __future__ import annotations

import contextlib
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_USUAL = 1 << 19  # bytes of a small second cache
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def second_cache_size(folder: Path = _CACHES) -> int:
    """Bytes of the first core's second cache; 512 KiB where the system does not say. folder: as
    Linux lists caches."""
    for cache in sorted(folder.glob("index*")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            if (cache / "level").read_text().strip() == "2":
                size = (cache / "size").read_text().strip()
                return int(size[:-1]) * _UNITS[size[-1]]
    return _USUAL
