"""A job over many items: workers with engines, which are given shards until none is left.

It runs in an actor of its own that outlives its driver. All that it knows is in the job's folder:
another one in its place goes on where it ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from ...core.api.protocol import Backend, ForkrootError
from ..native.language.plain import encoded
from .cluster import Room
from .shipping import unpacked
from .spool import LineCounter, Spool

_SHARDS_AT_ONCE = 2  # of one worker: the second keeps the engine busy while the first ends
_MOST_TRIES = 5  # of one shard
_INTERVAL = 0.25  # seconds
_SECONDS_KEPT = 600.0  # of a job that has ended, for a driver that asks for its outcome
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job is run. make: gives the backend of each worker. program: as `shipping.packed`.
    keywords: of each `run_batch`: settings of the program, threads, retries."""

    folder: str
    program: bytes
    make: Callable[[], Backend]
    room: Room
    num_workers: int
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a job. items: all of them. done: those that have ended, failed: of these with an error.
    deaths: of workers. error: for which the job ended early."""

    items: int
    done: int = 0
    failed: int = 0
    deaths: int = 0
    is_over: bool = False
    error: str | None = None


class Worker:
    """An actor with an engine, which runs shards."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._spool = plan, Spool(Path(plan.folder))
        self._program = unpacked(plan.program)
        self._backend = plan.make()

    def run(self, shard: int) -> int:
        """Run a shard to its end: the items that its checkpoint has are not run again, and none of
        a shard that is done. Returns how many items have failed."""
        if (num_failed := self._spool.num_failed(shard)) is not None:
            return num_failed
        items, path = self._spool.items(shard), self._spool.running_path(shard)
        path.parent.mkdir(exist_ok=True)
        states = self._program.run_batch(
            items,
            progress_bar=False,
            checkpoint=path,
            backend=self._backend,
            **self._plan.keywords,
        )
        first = self._spool.first_index(shard)
        rows = [
            _row(first + offset, item, state)
            for offset, (item, state) in enumerate(zip(items, states, strict=True))
        ]
        self._spool.finish(shard, rows)
        return sum(row["error"] is not None for row in rows)


class Job:
    """The actor that gives out the shards of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._spool = plan, Spool(Path(plan.folder))
        self._lock = threading.Lock()
        self._lines = LineCounter()
        self._failed = sum(row["error"] is not None for row in self._spool.results())
        self._num_items = self._spool.num_items
        self._left = deque(self._spool.left())
        self._num_left = sum(len(self._spool.items(shard)) for shard in self._left)
        self._running: dict[Any, tuple[Any, int]] = {}
        self._tries = Counter[int]()
        self._num_deaths = 0
        self._error: str | None = None
        self._is_cancelled = self._is_over = False
        threading.Thread(target=self._run, name="forkroot-job", daemon=True).start()

    def progress(self) -> Progress:
        """How far it is."""
        with self._lock:
            running = [shard for _, shard in self._running.values()]
            lines = [self._lines.num_lines(self._spool.running_path(it)) for it in running]
            done = self._num_items - self._num_left + sum(max(0, num - 1) for num in lines)
            return Progress(
                self._num_items, done, self._failed, self._num_deaths, self._is_over, self._error
            )

    def cancel(self) -> None:
        """Give out no more shards; what the running ones have is kept."""
        self._is_cancelled = True

    def _run(self) -> None:
        try:
            with self._spool.held():
                self._give_out()
        except Exception as error:
            _log.exception("the job has failed")
            with self._lock:
                self._error = f"{type(error).__name__}: {error}"
        self._is_over = True
        time.sleep(_SECONDS_KEPT)
        ray.kill(ray.get_runtime_context().current_actor)

    def _give_out(self) -> None:
        workers = [self._worker() for _ in range(min(self._plan.num_workers, len(self._left)))]
        try:
            while (self._left or self._running) and not self._is_cancelled:
                for worker in workers:
                    self._fill(worker)
                ended, _ = ray.wait(list(self._running), timeout=_INTERVAL)
                for reference in ended:
                    self._take(reference, workers)
        finally:
            for worker in workers:
                ray.kill(worker)

    def _fill(self, worker: Any) -> None:
        while (
            self._left and sum(it is worker for it, _ in self._running.values()) < _SHARDS_AT_ONCE
        ):
            shard = self._left.popleft()
            with self._lock:
                self._running[worker.run.remote(shard)] = worker, shard

    def _take(self, reference: Any, workers: list[Any]) -> None:
        """A shard has ended, or its worker has: then another worker goes on with it."""
        with self._lock:
            worker, shard = self._running.pop(reference)
        try:
            num_failed: int = ray.get(reference)
        except RayError as error:
            if isinstance(error, RayActorError) and worker in workers:
                workers[workers.index(worker)] = self._worker()
                self._num_deaths += 1
                ray.kill(worker)  # it may be out of reach only, and would go on with its shards
            if (found := self._spool.num_failed(shard)) is not None:  # it ended before its answer
                self._note_done(shard, found)
                return
            self._tries[shard] += 1
            cause = getattr(error, "cause", None)
            if isinstance(cause, ForkrootError) or self._tries[shard] >= _MOST_TRIES:
                raise (cause or error) from error
            _log.warning("shard %d is run again: %s", shard, error)
            self._left.appendleft(shard)
            return
        self._note_done(shard, num_failed)

    def _note_done(self, shard: int, num_failed: int) -> None:
        with self._lock:
            self._failed += num_failed
            self._num_left -= len(self._spool.items(shard))

    def _worker(self) -> Any:
        room = self._plan.room
        return (
            ray.remote(Worker)
            .options(
                num_cpus=room.cpus,
                num_gpus=room.gpus,
                resources=dict(room.resources) or None,
                max_concurrency=_SHARDS_AT_ONCE,
                max_restarts=0,
            )
            .remote(self._plan)
        )


def _row(index: int, item: Mapping[str, Any], state: Any) -> dict[str, Any]:
    """One line of the results."""
    error = state.error()
    row = {"index": index, "item": encoded(dict(item), "item"), "error": None}
    if error is not None:
        return {**row, "error": f"{type(error).__name__}: {error}"}
    values = encoded(state.variables(), "variables")
    returned = encoded(state.ret_value, "ret_value")
    usage = state.get_meta_info()
    return {
        **row,
        "text": state.text(),
        "variables": values,
        "returned": returned,
        "usage": usage,
    }
