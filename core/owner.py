"""Which process something belongs to: in a fork of that process its threads are gone, and its lines
to others are not the fork's own."""

from __future__ import annotations

import os

from .protocol import BackendClosed


class Owner:
    """The process in which this is made."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises BackendClosed in a fork of that process."""
        if not self.is_here:
            raise self.refusal()

    def refusal(self) -> BackendClosed:
        """What a fork is told."""
        return BackendClosed(
            f"the backend belongs to process {self._pid}, of which this one is a fork; allowed: one"
            " that is started here, after the fork"
        )
