"""Tells of loops that are compiled now because no earlier process has left them: the one wait of a
first start that could be taken for a standstill.

Knows numba's events, and of loops only in which room they are.
"""

from __future__ import annotations

import functools
import logging
from importlib.util import find_spec
from typing import Any

TOLD = "forkroot: compiling loops for this processor, once: about a minute"
_LOOPS = f"{__name__.rpartition('.core.')[0]}.kernels."
log = logging.getLogger(__name__)


def tell() -> None:
    """Say it: on stderr, where a program has not set up logging otherwise."""
    log.warning(TOLD)


@functools.cache
def watch() -> None:
    """From now on `tell` of the first loop of ours that this process compiles, before it does. One
    that is read from where numba keeps them is not told of. Without numba there are no loops."""
    if find_spec("numba") is None:
        return
    from numba.core import event

    class Watcher(event.Listener):
        """Told by numba whenever it begins to compile something."""

        has_told = False

        def on_start(self, begun: Any) -> None:
            """What it compiles may be anybody's."""
            room = begun.data["dispatcher"].py_func.__module__
            if not self.has_told and room.startswith(_LOOPS):
                self.has_told = True
                tell()

        def on_end(self, ended: Any) -> None:
            """Nothing is said of it."""

    event.register("numba:compile", Watcher())  # type: ignore[no-untyped-call]
