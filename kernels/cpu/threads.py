"""Threads beside the caller's that run compiled loops."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


@functools.cache
def helpers(num_threads: int) -> ThreadPoolExecutor:
    """One thread fewer than so many; the loops need no interpreter."""
    return ThreadPoolExecutor(num_threads - 1, "forkroot-loops")


def run_all(
    num_threads: int, function: Callable[..., Any], parts: Iterable[tuple[Any, ...]]
) -> None:
    """Call a function with each of these arguments: with the first in this thread, with the others
    in `helpers` of so many."""
    first, *rest = parts
    others = [helpers(num_threads).submit(function, *part) for part in rest]
    function(*first)
    for other in others:
        other.result()


if hasattr(os, "register_at_fork"):  # a forked child has none of the threads
    os.register_at_fork(after_in_child=helpers.cache_clear)
