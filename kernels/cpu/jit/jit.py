"""How loops are compiled by numba, and whether that works here. Does not import torch."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from .code_cache import enable_cache, is_cached
from .loops import notifying

_log = logging.getLogger(__name__)
_TRIED = 97  # numbers on which a compiled loop is tried: vectors of any width, and one left
_REORDERED = {
    "reassoc",
    "contract",
    "nsz",
}  # sums in any order; NaN and infinity stay what they are


@functools.cache
def can_compile() -> bool:
    """Whether numba compiles loops here that give the right numbers: tried once, on a loop that
    most models need. Where it cannot, the reason is logged, and torch's operators are used."""
    try:
        is_right = _is_norm_right()
    except Exception as error:  # whatever a version, a processor or a setting leads to
        _log.warning("forkroot: numba cannot compile here (%r): running slower, by torch", error)
        return False
    if not is_right:
        _log.warning("forkroot: what numba compiles is wrong here: running slower, by torch")
    return is_right


def _is_norm_right() -> bool:
    from . import rows

    x = np.full((1, 1, _TRIED), 2, np.float32)
    normalize = compiled(rows.normalize, rows.NORMALIZE, is_reordered=False)
    normalize(x, x[0].copy(), np.float32(0), x)
    return bool(np.allclose(x, 2, atol=1e-5))


@functools.cache
def compiled(
    function: Callable[..., None], signature: str, is_reordered: bool = True
) -> Callable[..., None]:
    """The function in machine code, which is cached for later processes where files can be written.
    is_reordered: whether its sums may be taken in any order."""
    found = dispatcher(function, is_reordered)
    with notifying(function, is_cached(found, signature)):
        found.compile(signature)
    found.disable_compile()
    loop: Callable[..., None] = found
    return loop


def dispatcher(function: Callable[..., None], is_reordered: bool = True) -> Any:
    """Numba's compiler of a function, which has compiled nothing yet and uses the cache."""
    import numba

    fastmath = _REORDERED if is_reordered else False
    found = numba.njit(fastmath=fastmath, nogil=True, error_model="numpy")(function)
    enable_cache(found)
    return found
