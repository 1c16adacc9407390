"""What all streams of one run share: its settings, its worker, and the list of streams itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from ....core.api.protocol import (
    Backend,
    BackendInfo,
    Call,
    ForkHint,
    Prompt,
    Reply,
    Sampling,
)
from ....core.common.harmless import hint_errors
from ...hints.courses import Course
from ..language.outlook import Outlook
from ..language.settings import Settings
from .meta import Totals
from .speculation import pays
from .stream import Action, Stream

_log = logging.getLogger("forkroot.programs")
_MOST = 100  # priority of a call
NO_ROOT = ForkHint("")


def free(num_chars: int) -> None:
    """No limit for the texts of a run."""


class Context:
    """One run, or a program that another run has called as a part of it.

    worker: runs the steps that replies have set free; shared by the runs of a batch.
    outer: the run that this one is a part of: its streams end with those of that run.
    totals: what all calls of the run used. program, kind: the names of the run and of its program
      in hints. first, roots: of a compiled program, the hint of its first call, and those of forks
      by their position.
    course: of the run, from which hints say what follows; None: of runs without any.
    spend: called with the number of characters of each text that a state of the run gets, before it
      gets it; what it raises ends the run, or the state.
    """

    def __init__(
        self,
        settings: Settings,
        worker: ThreadPoolExecutor,
        outer: Context | None = None,
        spend: Callable[[int], object] = free,
        course: Course | None = None,
        kind: str = "",
    ) -> None:
        self.settings = settings
        self.spend: Callable[[int], object] = spend if outer is None else outer.spend
        self._worker = worker
        self._outer = outer
        self._streams: list[Stream] = []
        self._abort_error: BaseException | None = None
        self.totals: Totals = Totals() if outer is None else outer.totals
        self.course: Course | None = course if outer is None else outer.course
        own = uuid4().hex if self.course is None else self.course.name
        self.program: str = own if outer is None else outer.program
        if self.course is not None:
            kind = self.course.title
        self.kind: str = kind if outer is None else outer.kind
        self.first: ForkHint | None = None
        self.roots: dict[int, ForkHint] = {}
        self._infos: dict[int, tuple[Backend, BackendInfo]] = {}
        settings.find()

    def part(self, settings: Settings) -> Context:
        """A run with its own settings that ends when this one does."""
        return Context(settings, self._worker, self)

    def open(self, is_born: bool = True) -> Stream:
        """A new stream of this run."""
        if self._outer is not None:
            return self._outer.open(is_born)
        # not by a method: run and streams would be freed by garbage collection only
        stream = Stream(partial(_post, self._worker), is_born)
        self._streams.append(stream)
        if self._abort_error is not None:
            stream.fail(self._abort_error)
        return stream

    def call(
        self,
        prompt: Prompt,
        sampling: Sampling,
        hint: ForkHint | None = None,
        extra_priority: int = 0,
        **fields: Any,
    ) -> Call:
        """A call under the settings of this run. extra_priority: added to their priority. fields:
        further ones, as in `Call`."""
        settings = self.settings
        if self.kind:
            hint = replace(hint or NO_ROOT, kind=self.kind)
        return Call(
            prompt,
            sampling,
            hint=hint if settings.hints else None,
            namespace=settings.namespace,
            priority=_added(settings.priority, extra_priority),
            deadline=settings.deadline,
            **fields,
        )

    def root_of(self, outlook: Outlook) -> ForkHint:
        """The hint of the root that a call of a compiled program names."""
        if outlook.is_first and self.first is not None:
            return self.first
        return self.roots.get(-1 if outlook.root is None else outlook.root, NO_ROOT)

    def with_rest(self, call: Call, label: str, known: ForkHint | None = None) -> Call:
        """The call with what is expected to follow it. label: the place in the program from which
        it is made. known: what is left there for sure."""
        course = self.course
        if course is not None and self.settings.hints:
            with hint_errors.suppress(_log, "saying what follows a call"):
                return course.hinted(call, label, known)
        return call

    def submit(self, backend: Backend, call: Call) -> Reply:
        """Submit a call of the run."""
        reply = backend.submit(call)
        if self.course is not None:
            self.course.follow(reply)
        return reply

    def info(self, backend: Backend) -> BackendInfo:
        """What a backend reports of itself; it may be remote, and is asked once in a run."""
        if self._outer is not None:
            return self._outer.info(backend)
        if id(backend) not in self._infos:
            self._infos[id(backend)] = backend, backend.info()
        return self._infos[id(backend)][1]

    def finish(self, main: Stream) -> None:
        """Wait until every stream of the run has ended, and close them.

        An error of a stream that was not raised becomes one of `main`.
        """
        for stream in self._streams:
            stream.wait_idle()
        for stream in self._streams:
            if stream.error is not None and not stream.is_error_seen:
                main.fail(stream.error)
        self._close()
        if self.settings.speculate and not pays(self.totals.counters):
            text = "speculation does not pay here: %d tokens wasted, %d prompt tokens saved"
            found = self.totals.counters
            _log.info(text, found["wasted_tokens"], found["saved_tokens"])

    def check_open(self) -> None:
        """Raise the error with which the run was given up, if it was."""
        if self._abort_error is not None:
            raise self._abort_error

    def abort(self, error: BaseException) -> None:
        """End every stream with `error`, also those that are still to come."""
        self._abort_error = error
        for stream in tuple(self._streams):
            stream.fail(error)
        self._close()

    def _close(self) -> None:
        for stream in self._streams:
            stream.close()


def _post(worker: ThreadPoolExecutor, action: Action) -> None:
    with suppress(RuntimeError):  # the worker is gone: so is every stream that it served
        worker.submit(action)


def _added(priority: int, extra_priority: int) -> int:
    return max(-_MOST, min(_MOST, priority + extra_priority)) if extra_priority else priority


def new_root(num: int) -> ForkHint:
    """A hint for `num` calls that share a new, unnamed prefix."""
    return ForkHint(uuid4().hex, num)
