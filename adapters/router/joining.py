"""Replicas that were not there when their router started: they are tried again until they are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ...core.api.protocol import Backend, BackendClosed, ForkrootError
from ..connection import connect
from .router import Router
from .start import check_policy, names_of

INTERVAL = 5.0  # seconds between tries
_log = logging.getLogger(__name__)


def over_servers(
    urls: Sequence[str], policy: str, interval: float = INTERVAL, **settings: Any
) -> Router:
    """A router over the servers at these URLs, of which one must be there; the others join when
    they are. settings: of each, as in `connect`. Raises what `connect` raises."""
    check_policy(policy)
    starts = {
        name: partial(connect, url, **settings)
        for name, url in zip(names_of(urls), urls, strict=True)
    }
    present, absent, errors = dict[str, Backend](), dict(starts), list[ForkrootError]()
    with ThreadPoolExecutor(len(starts), "forkroot-start") as pool:
        for name, future in [(name, pool.submit(start)) for name, start in starts.items()]:
            try:
                present[name] = future.result()
                del absent[name]
            except ForkrootError as error:
                errors.append(error)
    refused = next((it for it in errors if not isinstance(it, BackendClosed)), None)
    if refused is not None or not present:
        for backend in present.values():
            backend.close()
        raise refused or errors[0]
    router = Router(present, policy)
    if absent:
        _log.warning("replicas that are not there yet: %s", ", ".join(absent))
        Joining(router, absent, interval)
    return router


class Joining:
    """Adds replicas to a router as soon as they can be started: a thread tries each of `absent`, by
    its name, again and again. A replica that is refused for good (another model, a wrong key) is
    logged once, and tried no more."""

    def __init__(
        self,
        router: Router,
        absent: Mapping[str, Callable[[], Backend]],
        interval: float = INTERVAL,
    ) -> None:
        self._router, self._absent, self._interval = router, dict(absent), interval
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forkroot-joining", daemon=True)
        self._thread.start()

    @property
    def absent(self) -> tuple[str, ...]:
        """The names of those that have not joined."""
        return tuple(self._absent)

    def close(self) -> None:
        """Try no more."""
        self._is_over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while self._absent and not self._is_over.wait(self._interval):
            if self._router.is_closed:
                return
            for name, start in list(self._absent.items()):
                self._try(name, start)

    def _try(self, name: str, start: Callable[[], Backend]) -> None:
        try:
            backend = start()
        except BackendClosed:
            return  # it is still not there
        except ForkrootError as error:
            self._give_up(name, error)
            return
        try:
            self._router.add(backend, name)
        except ForkrootError as error:
            backend.close()
            if not isinstance(error, BackendClosed):
                self._give_up(name, error)
            return
        del self._absent[name]
        _log.info("the replica %s has joined", name)

    def _give_up(self, name: str, error: ForkrootError) -> None:
        _log.error("the replica %s is left out: %s", name, error)
        del self._absent[name]
