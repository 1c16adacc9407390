"""A router over actors: started together, restarted one by one, more or fewer as the load wants.

It knows how a replica is started, and nothing of what it runs.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ...core.api.protocol import Backend, ForkrootError
from ...core.process.supervisor import Backoff, RestartingBackend
from ..router.router import Router
from .backend import ActorBackend
from .cluster import Starter
from .scaling import Bounds, Scaler

_INTERVAL = 1.0  # seconds
_SECONDS_TO_DRAIN = 300.0
_SECONDS_AFTER_FAILURE = 30.0
_log = logging.getLogger(__name__)


class RayRouter(Router):
    """As `Router`, over actors that `starter` starts: as many as `bounds` has least, at first.

    interval: seconds between looks at the load. Other arguments as in `Router`. Raises what the
    first start that fails raises; the others are ended.
    """

    def __init__(
        self,
        starter: Starter,
        bounds: Bounds,
        policy: str = "affinity",
        *,
        interval: float = _INTERVAL,
        backoff: Backoff | None = None,
        **settings: Any,
    ) -> None:
        self._starter, self._backoff = starter, backoff or Backoff()
        self._names = map(str, itertools.count())
        self._scaler, self._interval = Scaler(bounds), interval
        self._is_ending = threading.Event()
        self._not_before = 0.0
        super().__init__(self._first(bounds.least), policy, **settings)
        self._scaling = threading.Thread(target=self._scale, name="forkroot-scaling", daemon=True)
        if bounds.least < bounds.most:
            self._scaling.start()

    def close(self) -> None:
        """As `Router.close`; waits for a replica that is just being started or drained."""
        self._is_ending.set()
        super().close()
        if self._scaling.is_alive() and threading.current_thread() is not self._scaling:
            self._scaling.join()

    def _first(self, num: int) -> dict[str, Backend]:
        names = [next(self._names) for _ in range(num)]
        with ThreadPoolExecutor(num, "forkroot-start") as pool:
            starts = [pool.submit(self._start, name) for name in names]
        if errors := [error for it in starts if (error := it.exception()) is not None]:
            for one in starts:
                if one.exception() is None:
                    one.result().close()
            raise errors[0]
        return {name: it.result() for name, it in zip(names, starts, strict=True)}

    def _start(self, name: str) -> Backend:
        make: Callable[[], ActorBackend] = partial(self._starter.start, name)
        return RestartingBackend(make, self._backoff)

    # --- in a thread of its own ------------------------------------------------------------------

    def _scale(self) -> None:
        while not self._is_ending.wait(self._interval):
            num = len(self.replicas)
            load = self.info().load if not self.is_closed else {}
            num_open = max(load.get("held", 0) + self._num_open(), self._num_reported(load))
            wanted = self._scaler.wanted(time.monotonic(), num, num_open)
            try:
                if wanted > num and time.monotonic() >= self._not_before:
                    self._grow()
                elif wanted < num:
                    self._shrink()
            except ForkrootError as error:
                _log.warning("the number of replicas stays %d: %s", num, error)
                self._not_before = time.monotonic() + _SECONDS_AFTER_FAILURE

    def _num_open(self) -> int:
        return sum(it.open for it in self.replicas)

    def _num_reported(self, load: Any) -> float:
        return float(load.get("running", 0) + load.get("waiting", 0))

    def _grow(self) -> None:
        name = next(self._names)
        replica = self._start(name)
        if self._is_ending.is_set():
            replica.close()
            return
        self.add(replica, name)
        _log.info("replica %s was started: there are %d", name, len(self.replicas))

    def _shrink(self) -> None:
        """End the replica with the fewest open calls, once these have ended."""
        name = min(self.replicas, key=lambda it: (it.state == "ready", it.open)).name
        replica = self.remove(name, _SECONDS_TO_DRAIN)
        replica.close()
        _log.info("replica %s was ended: there are %d", name, len(self.replicas))
