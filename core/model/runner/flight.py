"""A batch that was launched and is not waited for: the device's side of overlap.

Forward passes, draws and copies go into one queue of the device, in the order in which they are
asked for; the drawn tokens stay there, and the next batch takes them from there.
"""

from __future__ import annotations

from collections.abc import Callable

from ...api.batch import Draw, Outcome


class DeviceFlight:
    """Keeps what a forward pass gave until it is said how tokens are drawn from it.

    begin: asks the device for all that is wanted of it, and gives what waits for that.
    """

    def __init__(self, begin: Callable[[tuple[Draw, ...]], Callable[[], Outcome]]) -> None:
        self._begin = begin
        self._wait: Callable[[], Outcome] | None = None

    def draw(self, draws: tuple[Draw, ...]) -> None:
        """Let tokens be drawn so; comes before the next launch."""
        self._wait = self._begin(draws)

    def outcome(self) -> Outcome:
        """Wait for what it gave, and for nothing that was launched after it."""
        assert self._wait is not None, "it was not said how tokens are drawn"
        return self._wait()
