"""One run of a program: from its first line until all its streams have ended."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from inspect import unwrap
from traceback import walk_tb
from typing import Any, Protocol, TypeVar

from ...core.api.protocol import ForkHint, InvalidCall, ProgramError, Shown
from ..hints.courses import Course
from .interpreter.context import Context, free
from .interpreter.interpreter import Interpreter
from .interpreter.saved import Saved
from .language.settings import Settings
from .state import ProgramState
from .tracing import recorder_of_part, refuse_in_trace, trace_part

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")
_JOINED = re.compile(r'can only concatenate str \(not "(.+)"\) to str')
_running: ContextVar[Context | None] = ContextVar("forkroot_running", default=None)


class InvalidSum(InvalidCall, TypeError):
    """In a program, something was added to a text that is neither text nor an expression."""


class AnyRun(Protocol):
    """A `Run`, here or on a server."""

    @property
    def state(self) -> ProgramState:
        """As `Run.state`."""

    def execute(self) -> ProgramState:
        """As `Run.execute`."""

    def result(self) -> ProgramState:
        """As `Run.result`."""

    def start(self) -> ProgramState:
        """As `Run.start`."""

    def raise_error(self) -> None:
        """As `Run.raise_error`."""

    def failure(self) -> BaseException | None:
        """As `Run.failure`."""

    def saved(self, num_retries: int) -> Saved:
        """As `Run.saved`."""

    def abort(self, error: BaseException) -> None:
        """As `Run.abort`."""


class Run:
    """One run of `body`, a function whose first argument is a state, with these arguments.

    state_type: what `body` gets. worker: as in `Context`; None: one that ends with the run. hint:
    goes with the run's first call. spend, course: as in `Context`. Raises InvalidCall if no backend
    is known.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        settings: Settings,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        state_type: type[ProgramState],
        worker: ThreadPoolExecutor | None = None,
        hint: ForkHint | None = None,
        spend: Callable[[int], object] = free,
        course: Course | None = None,
    ) -> None:
        refuse_in_trace("run(...)")
        self._body, self._args, self._kwargs = body, args, kwargs
        self._at_end = ExitStack()
        if worker is None:
            worker = self._at_end.enter_context(ThreadPoolExecutor(1, "forkroot-run"))
        kind = str(getattr(body, "__name__", ""))
        self._context = Context(settings, worker, spend=spend, course=course, kind=kind)
        self._interpreter = Interpreter(self._context, hint)
        self._state_type = state_type
        self._raised: Exception | None = None

    @property
    def interpreter(self) -> Interpreter:
        """That of the program's own state."""
        return self._interpreter

    @property
    def state(self) -> ProgramState:
        """The state, to be read while the program runs or after its end."""
        return self._state_type(self._interpreter, is_outside=True)

    def execute(self) -> ProgramState:
        """Run to the end, in this thread. An error stays with the state that is returned."""
        state = self._state_type(self._interpreter)
        token = _running.set(self._context)
        with self._at_end:
            try:
                self._context.check_open()
                self._interpreter.ret_value = self._body(state, *self._args, **self._kwargs)
                self._context.finish(self._interpreter.stream)
            except BaseException as error:
                explained = _explained(error, self._body)
                self._context.abort(explained)
                if not isinstance(explained, Exception):
                    raise
                self._raised = explained
            finally:
                _running.reset(token)
                if self._context.course is not None:
                    self._context.course.end()
        return self.state

    def result(self) -> ProgramState:
        """Run to the end, in this thread. Raises the program's error."""
        state = self.execute()
        self.raise_error()
        return state

    def start(self) -> ProgramState:
        """Run in a thread of its own; the state that is returned can be read meanwhile."""
        threading.Thread(target=self.execute, name="forkroot-program", daemon=True).start()
        return self.state

    def raise_error(self) -> None:
        """Raise what the program raised, or the error that ended one of its states."""
        if self._raised is not None:
            raise self._raised
        self.state.sync()

    def failure(self) -> BaseException | None:
        """What `raise_error` would raise, as it was; None: the run ended well."""
        return self._raised or self._interpreter.stream.error

    def saved(self, num_retries: int) -> Saved:
        """What can be read of the state, which has ended; as `Reader.num_retries`."""
        self._interpreter.num_retries = num_retries
        return Saved.of(self._interpreter)

    def abort(self, error: BaseException) -> None:
        """End the run from another thread: every state of it gets `error`."""
        self._context.abort(error)


def restored(
    saved: Saved,
    settings: Settings,
    state_type: type[ProgramState],
    worker: ThreadPoolExecutor,
) -> ProgramState:
    """The ended state of a run of before. Raises InvalidCall if no backend is known."""
    interpreter = Interpreter(Context(settings, worker))
    saved.restore(interpreter)
    return state_type(interpreter, is_outside=True)


def run_part(
    body: Callable[..., Any],
    settings: Settings,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    state_type: type[ProgramState],
) -> ProgramState | None:
    """Run `body` on a state of its own inside the program that runs in this thread; None where
    none does. Its calls go on when this returns; the outer run ends when they have ended.

    Without a backend it uses that of the outer run. Raises what `body` raised.
    """
    recorder = recorder_of_part()
    if recorder is not None:
        if settings != Settings():
            recorder.refuse("runs a part with settings of its own", "give the settings to run()")
        return trace_part(recorder, body, state_type, args, kwargs)
    outer = _running.get()
    if outer is None:
        return None
    if settings.backend is None and not settings.backends:
        found = outer.settings
        settings = replace(settings, backend=found.backend, backends=found.backends)
    interpreter = Interpreter(outer.part(settings))
    state = state_type(interpreter)
    try:
        interpreter.ret_value = body(state, *args, **kwargs)
    except BaseException as error:
        explained = _explained(error, body)
        interpreter.stream.fail(explained)
        interpreter.stream.is_error_seen = True
        if explained is not error:
            raise explained from error
        raise
    finally:
        interpreter.stream.close()
    return state


async def in_thread(work: Callable[[], T], abort: Callable[[BaseException], object]) -> T:
    """The result of `work()` in a thread of its own, so that no pool's size limits it. If the
    waiting task is cancelled, calls `abort` with an error that shall end the work."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # a cancelled task leaves it to the work to end it

    def body() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=body, name="forkroot-program", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        abort(ProgramError("the run was cancelled"))
        raise


def _explained(error: E, body: Callable[..., Any]) -> E | InvalidSum:
    """The error; for Python's own of `"text" + 5` in the program's file, one that says what may be
    added."""
    found = _JOINED.fullmatch(str(error)) if type(error) is TypeError else None
    code = getattr(unwrap(body), "__code__", None)
    *_, (frame, _) = walk_tb(error.__traceback__)
    if found is None or code is None or frame.f_code.co_filename != code.co_filename:
        return error
    allowed = "text + text, or + an expression such as gen(...); str(...) makes a text of a value"
    explained = InvalidSum("expression", Shown(f"text + {found[1]}"), allowed)
    explained.__cause__ = error
    return explained
