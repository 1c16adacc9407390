"""The ways to run a program: once, in the background, for asyncio, and for many items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, Literal

from ...core.api.keywords import Parameters
from ...core.api.owner import NonCopyable
from ...core.api.protocol import ForkHint, InvalidCall
from .batch import Batch, Survival
from .interpreter.context import new_root
from .language.settings import Settings, split_settings
from .run import AnyRun, Run, in_thread
from .state import ProgramState

_BATCH_KEYWORDS = ("num_threads", "progress_bar", "raise_errors", "checkpoint", "max_retries")


class Runnable(NonCopyable):
    """What runs `body`, a function whose first argument is a state.

    Keywords of `run` and similar methods that the function does not declare itself are settings of
    the run: `backend`, `backends`, `hints`, `stream`, `namespace`, `priority`, `deadline`,
    `speculate` and the fields of `Sampling` (`temperature`, `max_tokens`, ...), which each `gen`
    may override. Any other raises UnknownKeyword, an InvalidCall.

    bound: arguments that runs need not give. _state_type: what the function gets as its first
    argument; for subclasses.
    """

    _state_type: type[ProgramState] = ProgramState
    _new_run: Callable[..., AnyRun] = staticmethod(Run)

    def __init__(
        self,
        body: Callable[..., Any],
        bound: Mapping[str, Any] | None = None,
        speculate: int | bool = False,
    ) -> None:
        self.body = body
        self.bound = dict(bound or {})
        self.speculate = Settings(speculate=speculate).speculate
        self._parameters = Parameters.of(body, skip=1)

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Run to the end and return the state. Raises what the program raised, or the error of a
        state that was not read. With stream=True as `stream`."""
        settings, arguments = self._split(kwargs)
        run = self._new_run(self.body, settings, args, arguments, self._state_type)
        return run.start() if settings.stream else run.result()

    def stream(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Run in the background; the state can be read meanwhile, and raises the run's error."""
        return self.run(*args, **{**kwargs, "stream": True})

    async def arun(self, *args: Any, **kwargs: Any) -> ProgramState:
        """As `run`, for asyncio. A cancelled task cancels the run."""
        settings, arguments = self._split(kwargs)
        run = self._new_run(self.body, settings, args, arguments, self._state_type)
        return run.start() if settings.stream else await in_thread(run.result, run.abort)

    def run_batch(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool | None = None,
        raise_errors: bool = False,
        checkpoint: str | PathLike[str] | None = None,
        max_retries: int | None = None,
        **settings: Any,
    ) -> list[ProgramState]:
        """Run once for each item (its keyword arguments); the ended states in the same order.

        An error stays with its item and is raised where the state is read, or, with raise_errors,
        here once all have ended. progress_bar: None shows one on a terminal only.

        checkpoint: a file to which each item that ends well is written; with the file of an earlier
        run of the same batch, only the other items are run. max_retries: how often an item is run
        again that ended in Overloaded, or in EngineDied where another engine is started; None: 8
        times with a checkpoint, else never. Raises InvalidCall for a checkpoint that is another
        batch's.
        """
        survival = Survival(checkpoint, max_retries)
        batch = self._batch(items, num_threads, settings, survival)
        return batch.execute(progress_bar, raise_errors)

    async def arun_batch(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool | None = None,
        raise_errors: bool = False,
        checkpoint: str | PathLike[str] | None = None,
        max_retries: int | None = None,
        **settings: Any,
    ) -> list[ProgramState]:
        """As `run_batch`, for asyncio. A cancelled task cancels the runs."""
        survival = Survival(checkpoint, max_retries)
        batch = self._batch(items, num_threads, settings, survival)
        return await in_thread(lambda: batch.execute(progress_bar, raise_errors), batch.abort)

    def _batch(
        self,
        items: Sequence[Mapping[str, Any]],
        num_threads: int | Literal["auto"],
        keywords: Mapping[str, Any],
        survival: Survival | None = None,
    ) -> Batch:
        keywords = self._with_own(keywords)
        settings, common = split_settings(keywords, self._parameters, _BATCH_KEYWORDS)
        if not isinstance(items, Iterable) or isinstance(items, str | Mapping):
            raise InvalidCall("items", items, "a list of mappings, the program's keyword arguments")
        bound = {**self.bound, **common}
        given = [{**bound, **item} if isinstance(item, Mapping) else item for item in items]
        return Batch(
            self.body,
            given,
            settings,
            self._num_threads(num_threads, given, settings),
            self._state_type,
            survival or Survival(),
            partial(self._announced, settings),
            self._new_run,
        )

    def _num_threads(
        self,
        wanted: int | Literal["auto"],
        items: Sequence[Mapping[str, Any]],
        settings: Settings,
    ) -> int | Literal["auto"]:
        """How many runs of a batch go on at once."""
        return wanted

    def _announced(self, settings: Settings, num_runs: int) -> ForkHint:
        """The hint of the first calls of a batch."""
        return new_root(num_runs)

    def _split(self, keywords: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
        settings, arguments = split_settings(self._with_own(keywords), self._parameters)
        return settings, {**self.bound, **arguments}

    def _with_own(self, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """The keywords of a run, with the settings that the program has itself."""
        if not self.speculate or "speculate" in self._parameters.names:
            return keywords
        return {"speculate": self.speculate, **keywords}
