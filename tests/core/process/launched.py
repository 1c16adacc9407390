"""The code of an engine's process for tests: it reports with what it was started."""

from __future__ import annotations

import sys

from forkroot.core.process.ipc import Child, serve_parent


def main(fd: int, device: str, *ranks: Child) -> None:
    """As `core.child.main`."""
    are_alive = all(rank.process.poll() is None for rank in ranks)
    has_torch = "torch" in sys.modules
    serve_parent(fd, lambda line: (line.send(len(ranks), are_alive, has_torch), line.close()))
