"""Which instructions this process may use: those that the processor and the system support, unless
a setting excludes them.

Every choice of a kernel depends on this module. Names are those of LLVM without punctuation
("avx512f", "amxtile", "sse42"), whoever reports them. Loops are compiled for the same features, so
a loop never uses an instruction that this module does not report.

`FORKROOT_CPU_FEATURES` restricts a process to a level: sse4.2, avx2, avx512, avx512bf16 or amx. It
is read once, before the first loop is compiled. It does not restrict torch and oneDNN, which read
ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from typing import Any

VARIABLE = "FORKROOT_CPU_FEATURES"
_FROM_AVX512 = ("amx", "avx10", "avx512bf16", "avx512fp16")
_FROM_AVX2 = ("amx", "avx10", "avx512", "evex512")
_FROM_SSE42 = ("amx", "avx", "bmi", "evex512", "f16c", "fma", "lzcnt", "movbe", "vaes", "vpclmul")
# What a level lacks, by the beginnings of names; and the processor that code is scheduled for.
_LACKS: dict[str, tuple[str, ...]] = {
    "sse4.2": _FROM_SSE42,
    "avx2": _FROM_AVX2,
    "avx512": _FROM_AVX512,
    "avx512bf16": ("amx", "avx10", "avx512fp16"),
    "amx": (),
}
_PROCESSORS = {
    "sse4.2": "x86-64-v2",
    "avx2": "x86-64-v3",
    "avx512": "x86-64-v4",
    "avx512bf16": "x86-64-v4",
    "amx": "x86-64-v4",
}
LEVELS = tuple(_LACKS)
# What each of LLVM's generic processors has at least, the best one first.
_GENERIC = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86-64-v3", {"avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}),
    ("x86-64-v2", {"sse42", "ssse3", "popcnt", "cx16"}),
)
AMX_BF16 = "amxtile", "amxbf16", "avx512bw"  # what loops that multiply bfloat16 tiles use


def has(*names: str) -> bool:
    """Whether this process may use all of these features."""
    return features().issuperset(names)


@functools.cache
def features() -> frozenset[str]:
    """All features that this process may use. Raises ValueError for a level that is not known."""
    level = os.environ.get(VARIABLE) or None
    if level is not None and level not in LEVELS:
        raise ValueError(f"invalid {VARIABLE}={level!r}: expected one of {', '.join(LEVELS)}")
    return _of_numba(level)


@functools.cache
def fingerprint() -> str:
    """A short name of what loops are compiled for: code of one is not run where it differs."""
    from numba.core.registry import cpu_target

    features()  # sets numba's level
    made_for = repr(cpu_target.target_context.codegen().magic_tuple())
    return hashlib.sha256(made_for.encode()).hexdigest()[:8]


def _of_numba(level: str | None) -> frozenset[str]:
    """The instruction sets that numba compiles for. A level replaces numba's own settings."""
    import numba
    from llvmlite import binding

    config: Any = numba.config  # its settings are made when it is imported
    try:
        host = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this system
        return frozenset()
    kept = {name: on and not _is_masked(_plain(name), level) for name, on in host.items()}
    name = _generic(kept) if level is None else _PROCESSORS[level]
    is_set = config.CPU_NAME or config.CPU_FEATURES or not config.ENABLE_AVX  # by the user
    if level is not None or (name and not is_set):
        config.CPU_NAME = name
        config.CPU_FEATURES = ",".join("-+"[on] + name for name, on in sorted(kept.items()))
    present = {name for name, on in host.items() if on}
    if config.CPU_FEATURES is not None:
        present &= {name[1:] for name in config.CPU_FEATURES.split(",") if name.startswith("+")}
    elif not config.ENABLE_AVX:
        present = {name for name in present if not name.startswith("avx")}
    return frozenset(map(_plain, present))


def _generic(host: Mapping[str, bool]) -> str | None:
    """LLVM's generic processor for these features; None where there is none, as on ARM.

    Code that LLVM 22 made for "alderlake", "sapphirerapids" and later ones ran one round too many
    of a loop in `decode_attention`: wrong answers where heads have 8 dimensions.
    """
    present = {_plain(name) for name, on in host.items() if on}
    return next((name for name, needs in _GENERIC if needs <= present), None)


def _is_masked(name: str, level: str | None) -> bool:
    return level is not None and name.startswith(_LACKS[level])


def _plain(name: str) -> str:
    return name.translate({ord(mark): None for mark in "-_."})
