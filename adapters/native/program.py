"""Programs: Python functions whose first argument is a state, and the ways to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial, update_wrapper
from importlib import import_module
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from operator import attrgetter
from typing import Any, overload

from ...core.api.protocol import InvalidCall, NotPicklable
from ..hints.courses import Courses
from .compiled import CompiledProgram
from .movement.rules import Reorderer
from .run import Run
from .runnable import Runnable
from .state import ProgramState
from .tracing import trace


class Program(Runnable):
    """A function of the language; made by `@function`. See `Runnable` for its keywords.

    It is pickled as functions are, by the name that it has in its module. courses: what its runs
    did, which hints of later ones say; None: nothing yet.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        name: str | None = None,
        bound: Mapping[str, Any] | None = None,
        speculate: int | bool = False,
        courses: Courses | None = None,
    ) -> None:
        if iscoroutinefunction(body) or isasyncgenfunction(body) or isgeneratorfunction(body):
            allowed = "a plain function, without async and yield; run it with `arun` for asyncio"
            raise InvalidCall("function", body, allowed)
        update_wrapper(self, body)
        super().__init__(body, bound, speculate)
        self.name: str = name or str(getattr(body, "__name__", "program"))
        self.courses = Courses() if courses is None else courses
        self._new_run = self._followed

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
        bound = {**self.bound, **kwargs}
        return type(self)(self.body, self.name, bound, self.speculate, self.courses)

    def _followed(self, *args: Any) -> Run:
        new_run: Callable[..., Run] = partial(Run, course=self.courses.begin(self.name))
        return new_run(*args)

    def compile(
        self,
        *,
        unknown: Iterable[str] = (),
        outputs: Sequence[str] | None = None,
        passes: Iterable[str] | None = None,
        move: Reorderer | bool = False,
        **arguments: Any,
    ) -> CompiledProgram:
        """The program as a graph that runs without its function.

        arguments: fixed for all runs of it, beside those that are bound; the others are given by
        each run. Those with a default that is no text are fixed at it, but for the `unknown` ones.
        outputs: the variables that runs are for; what only others need is left out. passes: names
        in `PASSES`; None: all. move: as in `CompiledProgram.move_for_sharing`. Raises NotTraceable,
        which names the line, for what a graph cannot say.
        """
        fixed = {**self.bound, **arguments}
        settings = unknown, outputs, self.speculate
        graph = trace(self.body, self._state_type, self.name, fixed, *settings)
        compiled = CompiledProgram(graph, passes, state_type=self._state_type)
        return compiled if move is False else compiled.move_for_sharing(move)


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
