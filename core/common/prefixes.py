"""How far two arrays of tokens agree."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt


def common_prefix_len(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> int:
    """Length of the common prefix of two arrays of one dimension."""
    size = min(len(first), len(second))
    differs = first[:size] != second[:size]
    index = int(differs.argmax()) if size else 0
    return index if size and differs[index] else size
