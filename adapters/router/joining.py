"""Replicas that were not there when their router started: they are tried again until they are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...core.api.protocol import Backend, BackendClosed, CallFailed, ForkrootError
from ..connection import connect
from .router import Router
from .start import check_policy, names_of

INTERVAL = 5.0  # seconds between tries
_SECONDS_FOR_OTHERS = 3.0  # that a replica may take to start once another has
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
    present, errors = _Starting(starts).wait()
    absent = {name: start for name, start in starts.items() if name not in present}
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


class _Starting:
    """Tries all of `starts` at a time, each in a thread of its own."""

    def __init__(self, starts: Mapping[str, Callable[[], Backend]]) -> None:
        self._starts = starts
        self._present, self._errors = dict[str, Backend](), list[ForkrootError]()
        self._changed = threading.Condition()
        self._is_over = False

    def wait(self) -> tuple[dict[str, Backend], list[ForkrootError]]:
        """Those that have started, and the errors of others; of those that take long, only the
        first is waited for."""
        for name in self._starts:
            threading.Thread(target=self._try, args=(name,), daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._present or self._are_known)
            self._changed.wait_for(lambda: self._are_known, _SECONDS_FOR_OTHERS)
            self._is_over = True
            return self._present, self._errors

    @property
    def _are_known(self) -> bool:
        return len(self._present) + len(self._errors) == len(self._starts)

    def _try(self, name: str) -> None:
        backend, failure = None, None
        try:
            backend = self._starts[name]()
        except ForkrootError as error:
            failure = error
        except Exception as error:
            failure = CallFailed(f"the replica {name} did not start: {error!r:.200}")
        with self._changed:
            if backend is not None and not self._is_over:
                self._present[name] = backend
            elif failure is not None:
                self._errors.append(failure)
            is_late = backend is not None and self._is_over
            self._changed.notify_all()
        if is_late and backend is not None:  # it is tried again
            backend.close()


class Joining:
    """Adds replicas to a router as soon as they can be started: a thread for each of `absent`, by
    its name, tries it again and again. A replica that is refused for good (another model, a wrong
    key) is logged once, and tried no more."""

    def __init__(
        self,
        router: Router,
        absent: Mapping[str, Callable[[], Backend]],
        interval: float = INTERVAL,
    ) -> None:
        self._router, self._absent, self._interval = router, dict(absent), interval
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=it, name="forkroot-joining", daemon=True)
            for it in absent.items()
        ]
        for thread in self._threads:
            thread.start()

    @property
    def absent(self) -> tuple[str, ...]:
        """The names of those that have not joined."""
        return tuple(self._absent)

    def close(self) -> None:
        """Try no more."""
        self._is_over.set()
        for thread in self._threads:
            if threading.current_thread() is not thread:
                thread.join()

    def _run(self, name: str, start: Callable[[], Backend]) -> None:
        while name in self._absent and not self._is_over.wait(self._interval):
            if self._router.is_closed:
                return
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
