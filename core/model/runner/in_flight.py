"""A launched batch whose results are not read yet: the device's side of overlap scheduling.

Forward passes, sampling and copies are enqueued on the device in the order of the calls; sampled
tokens stay on the device, where the next batch reads them.
"""

from __future__ import annotations

from collections.abc import Callable

from ...api.batch import Outcome, SamplingParams


class DeviceBatch:
    """A batch in flight: holds the results of a forward pass until sampling is launched.

    launch_sampling: enqueues sampling and copies, and returns a function that waits for them.
    """

    def __init__(
        self, launch_sampling: Callable[[tuple[SamplingParams, ...]], Callable[[], Outcome]]
    ) -> None:
        self._launch_sampling = launch_sampling
        self._wait: Callable[[], Outcome] | None = None

    def sample(self, params: tuple[SamplingParams, ...]) -> None:
        """Launch sampling with these parameters; must come before the next launch."""
        self._wait = self._launch_sampling(params)

    def result(self) -> Outcome:
        """Wait for the results, and for nothing that was launched after them."""
        assert self._wait is not None, "result() before sample()"
        return self._wait()
