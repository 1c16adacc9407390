"""Decorators of functions that only compiled code calls. Numba makes no entries for Python of them,
which would take a quarter of the time that loops take to compile: called from Python, they crash.
Needs numba."""

from __future__ import annotations

from typing import Any

from numba import njit

_SETTINGS = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
callee: Any = njit(**_SETTINGS)
inlined_callee: Any = njit(**_SETTINGS, forceinline=True)  # no call in an inner loop
