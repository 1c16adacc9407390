"""Many runs of one program: in threads, in order, each with its own errors. Those that a checkpoint
file has are not run again."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import Signature, signature
from itertools import count
from typing import Any, Literal

from ...core.api.protocol import ForkHint, InvalidCall, ProgramError
from ..common.retries import is_passing, pause_before
from .checkpoint import Checkpoint, header_of
from .interpreter.context import new_root
from .interruption import interrupted, print_without_traceback
from .language.settings import Settings
from .run import AnyRun, Run, restored
from .state import ProgramState
from .summary import usage

_log = logging.getLogger(__name__)
_MAX_RETRIES = 8  # with a checkpoint: an engine has 90 seconds to start


@dataclass(frozen=True, slots=True)
class Survival:
    """How a batch gets over what ends its calls. checkpoint: the file of the items that have ended.
    max_retries: of one item, after errors that pass by themselves; None: 8 with a checkpoint, else
    0. Raises InvalidCall."""

    checkpoint: str | os.PathLike[str] | None = None
    max_retries: int | None = None

    def __post_init__(self) -> None:
        if not (self.checkpoint is None or isinstance(self.checkpoint, str | os.PathLike)):
            raise InvalidCall("checkpoint", self.checkpoint, "the path of a file, or None")
        retries = self.max_retries
        if not (retries is None or (type(retries) is int and retries >= 0)):
            raise InvalidCall("max_retries", retries, "an integer >= 0, or None")

    @property
    def num_retries(self) -> int:
        """The most retries of one item."""
        if self.max_retries is None:
            return 0 if self.checkpoint is None else _MAX_RETRIES
        return self.max_retries


class Batch:
    """One run of `body` for each of `items`, which are its keyword arguments.

    The first call of each run carries the same hint: what the runs have in common is a root.
    announce: makes it, for the number of runs. new_run: makes each, as `Run` does. Raises
    InvalidCall for items, a number of threads or a checkpoint that are not allowed, or if no
    backend is known.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        items: Sequence[Mapping[str, Any]],
        settings: Settings,
        num_threads: int | Literal["auto"],
        state_type: type[ProgramState],
        survival: Survival = Survival(),
        announce: Callable[[int], ForkHint] = new_root,
        new_run: Callable[..., AnyRun] = Run,
    ) -> None:
        for item in items:
            if not isinstance(item, Mapping):
                raise InvalidCall("items", item, "mappings of the program's keyword arguments")
        self._num_threads = _num_threads(num_threads, len(items))
        self._body, self._items, self._settings = body, items, settings
        self._parameters, self._state_type = signature(body), state_type
        self._new_run = new_run
        self._max_retries = survival.num_retries
        self._worker = ThreadPoolExecutor(1, "forkroot-batch")
        self._error: BaseException | None = None
        self._is_aborted = threading.Event()
        self._checkpoint, self._path = None, survival.checkpoint
        self._ended = set[int]()  # well, in this process
        if survival.checkpoint is not None:
            header = header_of(body, items, settings)
            self._checkpoint = Checkpoint(survival.checkpoint, header)
        self._done = {} if self._checkpoint is None else self._checkpoint.done
        left = [index for index in range(len(items)) if index not in self._done]
        hint = announce(len(left)) if len(left) > 1 else None
        self._runs = {index: self._run(index, hint) for index in left}

    def execute(self, progress_bar: bool | None, raise_errors: bool) -> list[ProgramState]:
        """The ended states, in the order of the items; as `Program.run_batch`."""
        try:
            with self._submitted(progress_bar) as (futures, advance):
                for _ in as_completed(futures):
                    advance()
        except KeyboardInterrupt:
            ended = len(self._ended | self._done.keys())
            error = interrupted(ended, len(self._items), self._path)
            print_without_traceback(error)
            raise error from None
        if raise_errors:
            for run in self._runs.values():
                run.raise_error()
        return [future.result() for future in futures]

    def iterate(self, progress_bar: bool | None) -> Iterator[ProgramState]:
        """The ended states, in the order of the items, each as soon as it and those before it have
        ended. If the caller stops reading, the other runs end."""
        with self._submitted(progress_bar) as (futures, advance):
            for future in futures:
                state = future.result()
                advance()
                yield state

    @contextmanager
    def _submitted(
        self, progress_bar: bool | None
    ) -> Iterator[tuple[list[Future[ProgramState]], Callable[[], object]]]:
        """The runs of all items, submitted in order, and what counts an ended one. They end with
        an error that is raised within."""
        with ExitStack() as at_end:
            if self._checkpoint is not None:
                at_end.callback(self._checkpoint.close)
            at_end.enter_context(self._worker)
            threads = ThreadPoolExecutor(self._num_threads, "forkroot-program")
            at_end.enter_context(threads)
            futures = [threads.submit(self._state, index) for index in range(len(self._items))]
            try:
                with _progress(progress_bar, futures) as advance:
                    yield futures, advance
            except BaseException as error:
                for future in futures:
                    future.cancel()
                is_left = isinstance(error, GeneratorExit)
                self.abort(ProgramError("the batch was not read to its end") if is_left else error)
                raise

    def abort(self, error: BaseException) -> None:
        """End every run, also those that have not started; thread-safe."""
        self._error = error
        self._is_aborted.set()
        for run in tuple(self._runs.values()):
            run.abort(error)

    def _run(self, index: int, hint: ForkHint | None = None) -> AnyRun:
        item = self._items[index]
        body = _checked_body(self._body, self._parameters, item, index)
        settings, worker = self._settings, self._worker
        return self._new_run(body, settings, (), item, self._state_type, worker, hint)

    def _state(self, index: int) -> ProgramState:
        """The ended state of an item: the saved one, or that of its last run."""
        if index in self._done:
            return restored(self._done[index], self._settings, self._state_type, self._worker)
        for num_retries in count():
            run = self._runs[index]
            state = run.execute()
            error = run.failure()
            if num_retries == self._max_retries or error is None or not is_passing(error):
                break
            pause = pause_before(num_retries, error)
            text = "item %d ended in %s: retry %d of %d in %.1f s"
            _log.warning(text, index, error, num_retries + 1, self._max_retries, pause)
            if self._is_aborted.wait(pause):
                break
            run = self._runs[index] = self._run(index)
            if self._error is not None:
                run.abort(self._error)
        self._save(index, run, num_retries)
        return state

    def _save(self, index: int, run: AnyRun, num_retries: int) -> None:
        saved = run.saved(num_retries)
        if run.failure() is not None:
            return
        if self._checkpoint is None:
            self._ended.add(index)
            return
        try:
            self._checkpoint.add(index, saved)
            self._ended.add(index)
        except InvalidCall as error:
            if error.field != "checkpoint":
                run.abort(error)
                return
            self.abort(error)
            raise


def _checked_body(
    body: Callable[..., Any], parameters: Signature, item: Mapping[str, Any], index: int
) -> Callable[..., Any]:
    """`body`; or, where the item is not its arguments, what raises a TypeError that names both."""
    try:
        parameters.bind(None, **item)
    except TypeError as error:
        name = getattr(body, "__name__", "program")
        expected = ", ".join(list(parameters.parameters)[1:]) or "no arguments"
        message = f"items[{index}]={dict(item)!r}: {error}; expected the arguments of {name}"
        raised = TypeError(f"{message}: {expected}")

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise raised

        return refuse
    return body


def most_threads() -> int:
    """Those of a batch that sets no number."""
    return max(64, 16 * (os.cpu_count() or 1))


def _num_threads(wanted: int | Literal["auto"], num_items: int) -> int:
    if wanted == "auto":
        wanted = most_threads()
    if type(wanted) is not int or wanted < 1:
        raise InvalidCall("num_threads", wanted, 'an integer >= 1, or "auto"')
    return max(1, min(wanted, num_items))


@contextmanager
def _progress(
    is_wanted: bool | None, futures: Sequence[Future[ProgramState]]
) -> Iterator[Callable[[], object]]:
    """Counts ended runs; shows a bar, and at the end what all runs used."""
    if not (sys.stderr.isatty() if is_wanted is None else is_wanted):
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(total=len(futures)) as bar:
        yield bar.update
    print(usage(future.result() for future in futures), file=sys.stderr)
