"""How long the texts of a pattern are: whether all have one length, so that none goes on as
another."""

from __future__ import annotations

import re
import warnings
from importlib import import_module


def has_one_width(pattern: str) -> bool:
    """Whether all texts that match have the same number of characters; False where that is not
    known."""
    parser = import_module("re._parser")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low, high = parser.parse(pattern).getwidth()
    except (re.error, RecursionError, OverflowError):
        return False
    return bool(low == high)
