"""The machine of a run, named with what its processor can do."""

from __future__ import annotations

import os
from pathlib import Path

from forkroot.benchmarks.common.report import make_row

FEATURES = {  # of /proc/cpuinfo, by the name that is shown
    "AMX": "amx_tile",
    "AVX-512 BF16": "avx512_bf16",
    "AVX-512": "avx512f",
    "AVX2": "avx2",
}


def machine() -> str:
    """Processor, cores, vector extensions and memory, in words."""
    known = make_row("paper", {})["machine"]
    shown = [f"{known['cores']} cores of {known['cpu']}", ", ".join(features()) or "no AVX2"]
    return ", ".join([*shown, f"{_gigabytes()} GiB of memory"])


def features() -> list[str]:
    """The vector extensions of this processor, the widest first."""
    path = Path("/proc/cpuinfo")
    flags = path.read_text().split() if path.exists() else []
    return [name for name, flag in FEATURES.items() if flag in flags]


def load() -> float:
    """The mean number of running processes over the last minute: what else this machine does."""
    return round(os.getloadavg()[0], 2)


def _gigabytes() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
