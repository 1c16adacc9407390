"""Threads that run the tasks of several tenants: the tenants in turn, each one's in their order.

Whose turn it is depends on the tasks that run for a tenant, and on the time that they took. Threads
start when they are needed, and end when they have been idle for a while. Standard library only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .fair_share import FairShare

SECONDS_IDLE = 10.0
_log = logging.getLogger(__name__)


class FairExecutor:
    """At most `num_threads` threads, of which tasks of one tenant have `most_of_one` at a time.

    stop: called with the id of a thread whose task is cancelled while it runs; it may make the task
      end early.
    """

    def __init__(
        self,
        num_threads: int,
        name: str,
        most_of_one: int | None = None,
        stop: Callable[[int], object] | None = None,
    ) -> None:
        self._num_threads = num_threads
        self._most_of_one = most_of_one or num_threads
        self._name = name
        self._stop = stop
        self._condition = threading.Condition()
        self._tenants: dict[str, _Tenant] = {}
        self._share = FairShare()
        self._num_started = self._num_idle = 0
        self._is_closed = False

    @property
    def num_waiting(self) -> int:
        """Tasks that no thread has taken yet."""
        with self._condition:
            return sum(len(it.waiting) for it in self._tenants.values())

    def submit(self, tenant: str, weight: float, action: Callable[[], object]) -> Task:
        """Let a task wait for its turn. An exception that it raises is logged."""
        task = Task(self, tenant, action)
        with self._condition:
            known = self._tenants.setdefault(tenant, _Tenant())
            known.weight = weight
            known.waiting.append(task)
            self._share.update({name: it.weight for name, it in self._tenants.items()})
            if not self._num_idle and self._num_started < self._num_threads:
                self._num_started += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            self._condition.notify()
        return task

    def cancel(self, task: Task) -> None:
        """Take a task out that waits; stop one that runs. Nothing where it has ended."""
        with self._condition:
            tenant = self._tenants.get(task.tenant)
            if tenant is not None and task in tenant.waiting:
                tenant.waiting.remove(task)
                self._forget_idle()
            elif task.thread is not None and self._stop is not None:
                self._stop(task.thread)

    def close(self) -> None:
        """Run what waits without regard to its turn, then end the threads. Does not wait."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            started = time.monotonic()
            try:
                task.action()
            except Exception:
                _log.exception("a task failed")
            with self._condition:
                task.thread = None
                self._tenants[task.tenant].num_running -= 1
                self._share.charge(task.tenant, time.monotonic() - started)
                self._forget_idle()
                self._condition.notify()

    def _next(self) -> Task | None:
        """The task whose turn it is, when there is one; None: the thread ends."""
        with self._condition:
            while (task := self._take()) is None:
                self._num_idle += 1
                is_awake = not self._is_closed and self._condition.wait(SECONDS_IDLE)
                self._num_idle -= 1
                if not is_awake:
                    self._num_started -= 1
                    return None
            return task

    def _take(self) -> Task | None:
        ready = [
            name
            for name, it in self._tenants.items()
            if it.waiting and (self._is_closed or it.num_running < self._most_of_one)
        ]
        if not ready:
            return None
        tenants, used = self._tenants, self._share.used
        name = min(ready, key=lambda it: (tenants[it].num_running / tenants[it].weight, used(it)))
        task = tenants[name].waiting.popleft()
        tenants[name].num_running += 1
        task.thread = threading.get_ident()
        return task

    def _forget_idle(self) -> None:
        for name in [it for it, known in self._tenants.items() if known.is_idle]:
            del self._tenants[name]


@dataclass(slots=True, eq=False)
class Task:
    """One that waits or runs. thread: the id of the thread that runs it now."""

    executor: FairExecutor
    tenant: str
    action: Callable[[], object]
    thread: int | None = None

    def cancel(self) -> None:
        """As `FairExecutor.cancel`."""
        self.executor.cancel(self)


@dataclass(slots=True, eq=False)
class _Tenant:
    weight: float = 1.0
    num_running: int = 0
    waiting: deque[Task] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.num_running
