"""Programs: Python functions whose first argument is a state, and the ways to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import update_wrapper
from importlib import import_module
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from operator import attrgetter
from os import PathLike
from typing import Any, Literal, overload

from ...core.api.keywords import Parameters
from ...core.api.owner import NonCopyable
from ...core.api.protocol import InvalidCall, NotPicklable
from .batch import Batch, Survival
from .language.settings import Settings, split_settings
from .run import Run, in_thread
from .state import ProgramState

_BATCH_KEYWORDS = ("num_threads", "progress_bar", "raise_errors", "checkpoint", "max_retries")


class Program(NonCopyable):
    """A function of the language; made by `@function`.

    Keywords of `run` and similar methods that the function does not declare itself are settings of
    the run: `backend`, `backends`, `hints`, `stream`, `namespace`, `priority`, `deadline`,
    `speculate` and the fields of `Sampling` (`temperature`, `max_tokens`, ...), which each `gen`
    may override. Any other raises UnknownKeyword, an InvalidCall.

    It is pickled as functions are, by the name that it has in its module.

    _state_type: what its function gets as its first argument; for subclasses.
    """

    _state_type: type[ProgramState] = ProgramState

    def __init__(
        self,
        body: Callable[..., Any],
        name: str | None = None,
        bound: Mapping[str, Any] | None = None,
        speculate: int | bool = False,
    ) -> None:
        if iscoroutinefunction(body) or isasyncgenfunction(body) or isgeneratorfunction(body):
            allowed = "a plain function, without async and yield; run it with `arun` for asyncio"
            raise InvalidCall("function", body, allowed)
        update_wrapper(self, body)
        self.body = body
        self.name = name or getattr(body, "__name__", "program")
        self.bound = dict(bound or {})
        self.speculate = Settings(speculate=speculate).speculate
        self._parameters = Parameters.of(body, skip=1)

    def __repr__(self) -> str:
        return f"<program {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        where = self.__module__, str(getattr(self.body, "__qualname__", self.name))
        with suppress(ImportError, AttributeError):
            if _found(*where).body is self.body:  # but for what is bound
                return _found, (*where, self.bound)
        allowed = "a program that its module has by this name, as with functions"
        raise NotPicklable(f"{self!r} is not {'.'.join(where)}; expected {allowed}")

    def __call__(self, state: ProgramState, *args: Any, **kwargs: Any) -> Any:
        """Run as a part of another program, on its state; returns what the function returns."""
        if not isinstance(state, ProgramState):
            raise TypeError(f"{self.name}(...) takes a state first; use {self.name}.run(...)")
        return self.body(state, *args, **{**self.bound, **kwargs})

    def bind(self, **kwargs: Any) -> Program:
        """The same program with some arguments given; a run's own go before them. Raises
        UnknownKeyword for what is not an argument of the program."""
        self._parameters.check(kwargs)
        return type(self)(self.body, self.name, {**self.bound, **kwargs}, self.speculate)

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Run to the end and return the state. Raises what the program raised, or the error of a
        state that was not read. With stream=True as `stream`."""
        settings, arguments = self._split(kwargs)
        run = Run(self.body, settings, args, arguments, self._state_type)
        return run.start() if settings.stream else run.result()

    def stream(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Run in the background; the state can be read meanwhile, and raises the run's error."""
        return self.run(*args, **{**kwargs, "stream": True})

    async def arun(self, *args: Any, **kwargs: Any) -> ProgramState:
        """As `run`, for asyncio. A cancelled task cancels the run."""
        settings, arguments = self._split(kwargs)
        run = Run(self.body, settings, args, arguments, self._state_type)
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
        return Batch(
            self.body,
            [{**bound, **item} if isinstance(item, Mapping) else item for item in items],
            settings,
            num_threads,
            self._state_type,
            survival or Survival(),
        )

    def _split(self, keywords: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
        settings, arguments = split_settings(self._with_own(keywords), self._parameters)
        return settings, {**self.bound, **arguments}

    def _with_own(self, keywords: Mapping[str, Any]) -> Mapping[str, Any]:
        """The keywords of a run, with the settings that the program has itself."""
        if not self.speculate or "speculate" in self._parameters.names:
            return keywords
        return {"speculate": self.speculate, **keywords}


def _found(module: str, name: str, bound: Mapping[str, Any] | None = None) -> Program:
    program: Program = attrgetter(name)(import_module(module))
    return program.bind(**bound) if bound else program


@overload
def function(body: Callable[..., Any], /) -> Program: ...


@overload
def function(
    *, name: str | None = None, speculate: int | bool = False
) -> Callable[[Callable[..., Any]], Program]: ...


def function(
    body: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    speculate: int | bool = False,
) -> Program | Callable[[Callable[..., Any]], Program]:
    """Make a program of a function whose first argument is a state. Use as `@function`, or as
    `@function(name="...")`. speculate: one call for several gens, as in `Settings`. Raises
    InvalidCall."""
    if body is not None:
        return Program(body)
    return lambda body: Program(body, name, speculate=speculate)
