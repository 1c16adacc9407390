"""One job: many items at a time, each result written as it comes, until all have one.

A result is written once its run has ended; a killed process loses the runs at work, and no result.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from ....core.api.protocol import BackendClosed, InvalidCall, ProgramError
from ...common.retries import is_passing, pause_before
from ..run import AnyRun
from .results import Results, failure_of, result_of

_SECONDS_TO_END = 5.0  # of runs that are aborted


@dataclass(frozen=True, slots=True)
class JobOptions:
    """concurrency: items at work at a time. max_retries: of one item, after errors that pass by
    themselves. with_meta: results have the meta information of variables. retries_failed: items
    that have failed before are run again. Raises InvalidCall."""

    concurrency: int = 64
    max_retries: int = 8
    with_meta: bool = False
    retries_failed: bool = False

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("max_retries", 0)):
            found = getattr(self, name)
            if type(found) is not int or found < least:
                raise InvalidCall(name, found, f"an integer >= {least}")


@dataclass(slots=True)
class Summary:
    """What has become of a job. num_before: items that had ended well before. num_done: that have
    now. errors: items that failed, now or before, by the class of their error. totals: what the
    calls of this time used, those of failed items too. Mutable while the job goes on."""

    num_items: int
    num_before: int = 0
    num_done: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Job:
    """Runs the items that have no result yet.

    begin: makes the run of these arguments. items: their arguments, by number. advance: called
    with the summary when an item has ended, one at a time.
    """

    def __init__(
        self,
        begin: Callable[[Mapping[str, Any]], AnyRun],
        items: Any,
        results: Results,
        options: JobOptions,
        advance: Callable[[Summary], object] = lambda summary: None,
    ) -> None:
        self._begin, self._items, self._results = begin, items, results
        self._options, self._advance = options, advance
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._reason: BaseException | None = None
        self._runs = set[AnyRun]()
        self.summary = Summary(len(items), len(results.done))

    def execute(self) -> Summary:
        """Run to the end. Raises BackendClosed where the backend has ended, and InvalidCall where
        the results cannot be written; what has no result by then is run the next time."""
        left = [it for it in range(len(self._items)) if it not in self._results.done]
        if not self._options.retries_failed:
            left = [it for it in left if it not in self._results.failed]
            self.summary.errors.update(self._results.failed.values())
        start = time.monotonic()
        try:
            self._run_all(left)
        finally:
            self.summary.seconds = time.monotonic() - start
        if self._reason is not None:
            raise self._reason
        return self.summary

    def _run_all(self, left: list[int]) -> None:
        todo, ended = iter(left), SimpleQueue[None]()
        num = min(self._options.concurrency, len(left))
        threads = [
            threading.Thread(target=self._work, args=(todo, ended), daemon=True) for _ in range(num)
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in threads:
                ended.get()
        except BaseException:
            self._stop(ProgramError("the job was interrupted"))
            deadline = time.monotonic() + _SECONDS_TO_END
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            raise

    def _work(self, todo: Iterator[int], ended: SimpleQueue[None]) -> None:
        """Run items, in this thread, until none is left."""
        try:
            while not self._stopped.is_set():
                with self._lock:
                    index = next(todo, None)
                if index is None:
                    return
                self._run_item(index)
        except BaseException as error:
            self._stop(error)
        finally:
            ended.put(None)

    def _run_item(self, index: int) -> None:
        for num_retries in range(self._options.max_retries + 1):
            run = self._started(index)
            try:
                run.execute()
            finally:
                with self._lock:
                    self._runs.discard(run)
            error = run.failure()
            if not is_passing(error) or num_retries == self._options.max_retries:
                break
            if error is not None and self._stopped.wait(pause_before(num_retries, error)):
                return
        if self._stopped.is_set() and error is not None:
            return  # it was ended by that
        if isinstance(error, BackendClosed) and not is_passing(error):
            raise error
        self._keep(index, run, error, num_retries)

    def _started(self, index: int) -> AnyRun:
        run = self._begin(self._items[index])
        with self._lock:
            self._runs.add(run)
            is_late = self._stopped.is_set()
        if is_late:
            run.abort(ProgramError("the job was stopped"))
        return run

    def _keep(self, index: int, run: AnyRun, error: BaseException | None, num_retries: int) -> None:
        saved = run.saved(num_retries)
        record = None
        if error is None:
            try:
                record = result_of(index, saved, run.state, self._options.with_meta)
            except InvalidCall as refused:
                error = refused
        if record is None:
            assert error is not None
            record = failure_of(index, error, num_retries)
        self._results.add(record)
        with self._lock:
            if error is None:
                self.summary.num_done += 1
            else:
                self.summary.errors[type(error).__name__] += 1
            self.summary.totals.update(saved.totals)
            self._advance(self.summary)

    def _stop(self, error: BaseException) -> None:
        """Begin nothing more, and end the runs at work; the first error counts."""
        with self._lock:
            self._reason = self._reason or error
            self._stopped.set()
            runs = tuple(self._runs)
        for run in runs:
            run.abort(error)
