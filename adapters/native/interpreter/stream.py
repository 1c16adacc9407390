"""The stream executor: steps that run in order, without a thread of their own (paper, section 2).

A step either ends at once or is resumed when a reply is there, so a thousand streams need no
thousand threads, and only a reader waits. It knows nothing of prompts and calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from ....core.api.protocol import ProgramError

Action: TypeAlias = Callable[[], object]
LOOK_AHEAD = 0.1  # seconds
Post: TypeAlias = Callable[[Action], object]


@dataclass(frozen=True, slots=True)
class Step:
    """One primitive to run.

    run: start it; returns whether it has ended, otherwise `Stream.resume` or `fail` is called
      once it has. What it raises ends the stream.
    skip: called with the error if it will never run.
    item: what it runs, for those who look at the queue.
    """

    run: Callable[[], bool]
    skip: Callable[[BaseException], object] = lambda error: None
    item: object = None


class Stream:
    """Steps in order, until the first error; it then skips all others and nothing ever waits.

    post: runs an action soon in another thread, so that steps never run in a backend's.
    is_born: otherwise no step runs before `resume`.
    lock: held by all that read or change what the steps change.
    """

    def __init__(self, post: Post, is_born: bool = True) -> None:
        self.lock = threading.RLock()
        self.error: BaseException | None = None
        self.is_error_seen = False
        self.is_closed = False
        self._post = post
        self._steps: deque[Step] = deque()
        self._is_busy = not is_born
        self._idle_actions: list[Action] = []
        self._failure_actions: list[Action] = []
        self._wakes: list[Action] = []
        self._deferred: Action | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all submitted steps have ended."""
        return not self._is_busy

    def check_open(self) -> None:
        """Raise ProgramError if no further step is taken."""
        if self.is_closed:
            raise ProgramError("the state has ended (its program returned, or it was joined)")

    def submit(self, step: Step) -> None:
        """Run `step` after those before it; starts it now if it is the next one."""
        self.check_open()
        with self.lock:
            error = self.error
            if error is None:
                self._steps.append(step)
                is_next, self._is_busy = not self._is_busy, True
        if error is not None:
            step.skip(error)
        elif is_next:
            self._drain()

    def submit_next(self, step: Step) -> None:
        """Run `step` after the running one, before those that wait."""
        with self.lock:
            self._steps.appendleft(step)

    def resume(self) -> None:
        """The running step has ended well; may be called in any thread."""
        with self.lock:
            if self.error is not None:
                return
            self._failure_actions.clear()
            has_more = bool(self._steps)
        if has_more:
            self._post(self._drain)
        else:
            self._rest()

    def fail(self, error: BaseException) -> None:
        """End the stream with an error; only the first one counts."""
        with self.lock:
            if self.error is not None:
                return
            self.error = error
            skipped = tuple(self._steps)
            actions = tuple(self._failure_actions)
            self._steps.clear()
            self._failure_actions.clear()
        for action in actions:
            action()
        for step in skipped:
            step.skip(error)
        self._rest()

    def queued(self) -> tuple[object, ...]:
        """The items of the steps that wait, in order."""
        with self.lock:
            return tuple(step.item for step in self._steps)

    def defer(self, action: Action) -> None:
        """Call `action`, which ends the running step or fails it, once somebody waits for the
        stream or it is closed, or soon; a program may submit more steps meanwhile."""
        with self.lock:
            is_awaited = bool(self._wakes or self._idle_actions or self.is_closed)
            if not is_awaited:
                self._deferred = action
        if is_awaited:
            action()
            return
        timer = threading.Timer(LOOK_AHEAD, self._run_deferred)
        timer.daemon = True
        timer.start()

    def _run_deferred(self) -> None:
        with self.lock:
            action, self._deferred = self._deferred, None
        if action is not None:
            action()

    def on_failure(self, action: Action) -> None:
        """Call `action` if the stream fails before the running step has ended."""
        with self.lock:
            if self.error is None:
                self._failure_actions.append(action)
                return
        action()

    def close(self) -> None:
        """Take no further steps; those submitted still run."""
        with self.lock:
            self.is_closed = True
        self.notify()
        self._run_deferred()

    def when_idle(self, action: Action) -> None:
        """Call `action` once all submitted steps have ended (or now, if they have)."""
        with self.lock:
            is_busy = self._is_busy
            if is_busy:
                self._idle_actions.append(action)
        if is_busy:
            self._run_deferred()
        else:
            action()

    def notify(self) -> None:
        """What readers wait for may have come true."""
        with self.lock:
            wakes, self._wakes = self._wakes, []
        for wake in wakes:
            wake()

    def wait(self, is_ready: Callable[[], bool]) -> None:
        """Wait until `is_ready()`, which is called under the lock."""
        while True:
            event = threading.Event()
            with self.lock:
                if is_ready():
                    return
                self._wakes.append(event.set)
            self._run_deferred()
            event.wait()

    def wait_idle(self) -> None:
        """Wait until all submitted steps have ended."""
        self.wait(lambda: not self._is_busy)

    async def wait_async(self, is_ready: Callable[[], bool]) -> None:
        """As `wait`, for asyncio."""
        loop = asyncio.get_running_loop()
        while True:
            event = asyncio.Event()
            with self.lock:
                if is_ready():
                    return
                self._wakes.append(partial(_wake, loop, event))
            self._run_deferred()
            await event.wait()

    def _drain(self) -> None:
        while True:
            with self.lock:
                step = self._steps.popleft() if self._steps else None
            if step is None:
                self._rest()
                return
            try:
                if not step.run():
                    return
            except BaseException as error:
                self.fail(error)
                if not isinstance(error, Exception):
                    raise
                return

    def _rest(self) -> None:
        with self.lock:
            self._is_busy = bool(self._steps)
            actions: list[Action] = []
            if not self._is_busy:
                actions, self._idle_actions = self._idle_actions, []
            is_busy = self._is_busy
        if is_busy:
            self._post(self._drain)
            return
        self.notify()
        for action in actions:
            action()


def countdown(num: int, action: Action) -> Callable[[object], None]:
    """A callback, safe in any thread, that calls `action` at its `num`-th call."""
    lock = threading.Lock()
    left = iter(range(num - 1, -1, -1))

    def arrive(_: object) -> None:
        with lock:
            is_last = next(left) == 0
        if is_last:
            action()

    return arrive


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(event.set)
