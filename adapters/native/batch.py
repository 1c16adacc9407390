"""Many runs of one program: in threads, in order, each with its own errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from inspect import Signature, signature
from typing import Any, Literal

from ...core.api.protocol import InvalidCall, ProgramError
from .interpreter.context import new_root
from .language.settings import Settings
from .run import Run
from .state import ProgramState


class Batch:
    """One run of `body` for each of `items`, which are its keyword arguments.

    The first call of each run carries the same hint: what the runs have in common is a root. Raises
    InvalidCall for items or a number of threads that are not allowed, or if no backend is known.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        items: Sequence[Mapping[str, Any]],
        settings: Settings,
        num_threads: int | Literal["auto"],
        state_type: type[ProgramState],
    ) -> None:
        for item in items:
            if not isinstance(item, Mapping):
                raise InvalidCall("items", item, "mappings of the program's keyword arguments")
        self._num_threads = _num_threads(num_threads, len(items))
        self._worker = ThreadPoolExecutor(1, "forkroot-batch")
        hint = new_root(len(items)) if len(items) > 1 else None
        parameters = signature(body)
        self._runs = list[Run]()
        for index, item in enumerate(items):
            checked = _checked_body(body, parameters, item, index)
            self._runs.append(Run(checked, settings, (), item, state_type, self._worker, hint))

    def execute(self, progress_bar: bool | None, raise_errors: bool) -> list[ProgramState]:
        """The ended states, in the order of the items; as `Program.run_batch`."""
        with self._submitted(progress_bar) as (futures, advance):
            for _ in as_completed(futures):
                advance()
        if raise_errors:
            for run in self._runs:
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
        with self._worker, ThreadPoolExecutor(self._num_threads, "forkroot-program") as threads:
            futures = [threads.submit(run.execute) for run in self._runs]
            try:
                with _progress(progress_bar, len(futures)) as advance:
                    yield futures, advance
            except BaseException as error:
                for future in futures:
                    future.cancel()
                is_left = isinstance(error, GeneratorExit)
                self.abort(ProgramError("the batch was not read to its end") if is_left else error)
                raise

    def abort(self, error: BaseException) -> None:
        """End every run, also those that have not started; thread-safe."""
        for run in self._runs:
            run.abort(error)


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


def _num_threads(wanted: int | Literal["auto"], num_items: int) -> int:
    if wanted == "auto":
        wanted = max(64, 16 * (os.cpu_count() or 1))
    if type(wanted) is not int or wanted < 1:
        raise InvalidCall("num_threads", wanted, 'an integer >= 1, or "auto"')
    return max(1, min(wanted, num_items))


@contextmanager
def _progress(is_wanted: bool | None, num: int) -> Iterator[Callable[[], object]]:
    if not (sys.stderr.isatty() if is_wanted is None else is_wanted):
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(total=num) as bar:
        yield bar.update
