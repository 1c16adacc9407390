"""Decorators of functions that only compiled code calls. Numba makes no entries for Python of them,
which would take a quarter of the time that loops take to compile: called from Python, they crash.
Needs numba."""

from __future__ import annotations

from typing import Any

import numba

_njit: Any = numba.njit  # its types know fewer options
_SETTINGS = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
callee = _njit(**_SETTINGS)
inlined_callee = _njit(**_SETTINGS, forceinline=True)  # no call in an inner loop
