"""Threads beside the caller's that run compiled loops."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor


@functools.cache
def helpers(num_threads: int) -> ThreadPoolExecutor:
    """One thread fewer than so many; the loops need no interpreter."""
    return ThreadPoolExecutor(num_threads - 1, "forkroot-loops")


if hasattr(os, "register_at_fork"):  # a forked child has none of the threads
    os.register_at_fork(after_in_child=helpers.cache_clear)
