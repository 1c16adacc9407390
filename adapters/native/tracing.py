"""From a program to its graph: the program runs on states that record, with unknown arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from inspect import Parameter as Entry
from inspect import signature, unwrap
from typing import Any, NoReturn

from ...core.api.keywords import UnknownKeyword
from ...core.api.protocol import InvalidCall
from .compiler.errors import Location, NotTraceable, error_location
from .compiler.graph.blocks import Parameter
from .compiler.graph.graph import Graph
from .compiler.graph.validation import is_name
from .compiler.graph.values import Value
from .compiler.markers import EDGES
from .compiler.paths import Layout, explore
from .compiler.recorder import Recorded, Recorder
from .language.plain import encoded
from .state import ProgramState

_recorder: ContextVar[Recorder | None] = ContextVar("forkroot_recorder", default=None)
_NAME_INSTEAD = "give the text that is read a name: with s.var_scope(NAME)"
_RAISED = "see the cause; what depends on a value that is not known cannot be traced"


class Traced(ProgramState):
    """A state that records. Reading it gives unknown values; what has none raises NotTraceable."""

    _interpreter: Any

    def get_var(self, name: str) -> Any:
        """As `ProgramState.get_var`: an unknown, or a list of them."""
        return self._interpreter.read(name)

    __getitem__ = get_var

    def __contains__(self, name: str) -> bool:
        return name in self._interpreter.names()

    def sync(self) -> None:
        """Nothing: a graph waits where a value is needed."""

    def __setitem__(self, name: str, value: object) -> None:
        self._refuse("sets a variable by hand", "append its text inside with s.var_scope(NAME)")

    def set_var(self, name: str, value: object) -> None:
        """Not traceable."""
        self.__setitem__(name, value)

    def get_meta_info(self, name: str | None = None) -> NoReturn:
        """Not traceable."""
        self._refuse("reads meta information", "read it from the state that run() returns")

    def text(self) -> NoReturn:
        """Not traceable."""
        self._refuse("reads the text of a state", _NAME_INSTEAD)

    def messages(self) -> NoReturn:
        """Not traceable."""
        self._refuse("reads the messages of a state", _NAME_INSTEAD)

    def error(self) -> NoReturn:
        """Not traceable."""
        self._refuse("reads the error of a state", "handle errors around run()")

    def text_iter(self, name: str | None = None) -> NoReturn:
        """Not traceable."""
        self._refuse("reads a text while it comes in", "read it from the state of stream()")

    def text_async_iter(self, name: str | None = None, *others: Any) -> NoReturn:
        """Not traceable."""
        self.text_iter(name)

    async def aget_var(self, name: str) -> Any:
        """As `get_var`."""
        return self.get_var(name)

    @property
    def ret_value(self) -> NoReturn:
        """Not traceable."""
        self._refuse("reads what a program returned", "return it from the function itself")

    def __repr__(self) -> str:
        return f"<state {self._interpreter.index} of a traced program>"

    def _refuse(self, operation: str, instead: str) -> NoReturn:
        recorder: Recorder = self._interpreter.recorder
        recorder.refuse(operation, instead)


@cache
def traced(state_type: type[ProgramState]) -> type[Traced]:
    """The same kind of state, but one that records."""
    return type(f"Traced{state_type.__name__}", (Traced, state_type), {})


def trace(
    body: Callable[..., Any],
    state_type: type[ProgramState],
    name: str,
    fixed: Mapping[str, Any],
    unknown: Iterable[str] = (),
    outputs: Sequence[str] | None = None,
    speculate: int | bool = False,
) -> Graph:
    """The graph of a program.

    fixed: arguments that have these values in every run. unknown: arguments that each run gives,
    though they have defaults; others are fixed at a default that is no text. outputs: as in
    `Graph`. Raises NotTraceable, and what the program raises otherwise where it would do so in any
    run.
    """
    parameters = _parameters(body, fixed, tuple(unknown))
    where = _definition_location(body)

    def run(recorder: Recorder) -> Value:
        given = {it.name: recorder.argument(it.name) for it in parameters if not it.is_fixed}
        values = {it.name: it.value for it in parameters if it.is_fixed} | dict(fixed)
        return _run(recorder, body, state_type, {**values, **given})

    def refuse(operation: str, instead: str) -> NoReturn:
        raise NotTraceable(operation, instead, where)

    plain = tuple(map(_as_plain, parameters))
    graphs = []
    for edge in EDGES:
        layout = Layout(explore(run, edge, refuse))
        nodes, blocks = tuple(layout.nodes), layout.blocks
        graphs.append(Graph(_named(name), nodes, blocks, plain, _checked(outputs), speculate))
    if any(graph != graphs[0] for graph in graphs):
        refuse(
            "does something else for another value of an unknown text, or each time",
            "do not depend on its length or parts; give times and random numbers as arguments",
        )
    return graphs[0]


def recorder_of_part() -> Recorder | None:
    """That of the program that is traced in this thread."""
    return _recorder.get()


def trace_part(
    recorder: Recorder,
    body: Callable[..., Any],
    state_type: type[ProgramState],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> ProgramState:
    """A program with a state of its own is a part of the traced one."""
    part = recorder.begin()
    state = traced(state_type)(part)  # type: ignore[arg-type]
    body(state, *args, **kwargs)
    part.close()
    return state


def refuse_in_trace(operation: str) -> None:
    """Raise NotTraceable if a program is traced in this thread."""
    recorder = _recorder.get()
    if recorder is not None:
        instead = "call it as a part: program(s, ...)"
        recorder.refuse(f"{operation} of another program, which would run now", instead)


def _run(
    recorder: Recorder,
    body: Callable[..., Any],
    state_type: type[ProgramState],
    arguments: Mapping[str, Any],
) -> Value:
    token = _recorder.set(recorder)
    main: Recorded = recorder.main
    try:
        value = body(traced(state_type)(main), **arguments)  # type: ignore[arg-type]
        if recorder.refused is not None:
            raise recorder.refused
        return recorder.returned(value, _definition_location(body))
    except NotTraceable:
        raise
    except Exception as error:
        if recorder.refused is not None:
            raise recorder.refused from error
        operation, instead = recorder.explained(error)
        raise NotTraceable(operation, instead or _RAISED, error_location(error)) from error
    finally:
        _recorder.reset(token)


def _parameters(
    body: Callable[..., Any], fixed: Mapping[str, Any], unknown: Sequence[str]
) -> tuple[Parameter, ...]:
    entries = list(signature(body).parameters.values())[1:]
    many = (Entry.VAR_POSITIONAL, Entry.VAR_KEYWORD)
    known = {entry.name: entry for entry in entries if entry.kind not in many}
    for name in (*fixed, *unknown):
        if name not in known:
            raise UnknownKeyword(name, fixed.get(name), known)
    both = next((name for name in unknown if name in fixed), None)
    if both is not None:
        raise InvalidCall("unknown", both, "arguments that are not given to compile too")
    return tuple(_parameter(entry, fixed, unknown) for entry in known.values())


def _parameter(entry: Entry, fixed: Mapping[str, Any], unknown: Sequence[str]) -> Parameter:
    name, default = entry.name, entry.default
    if name in fixed:
        return Parameter(name, False, fixed[name], True)
    if default is Entry.empty:
        return Parameter(name)
    return Parameter(name, False, default, name not in unknown and not isinstance(default, str))


def _as_plain(parameter: Parameter) -> Parameter:
    """The parameter without a live object: a fixed one that is no plain data has none."""
    if parameter.is_required:
        return parameter
    try:
        encoded(parameter.value, parameter.name)
    except InvalidCall:
        if not parameter.is_fixed:
            raise
        return Parameter(parameter.name, False, None, True)
    return parameter


def _named(name: str) -> str:
    return name if is_name(name) else "program"


def _checked(outputs: Sequence[str] | None) -> tuple[str, ...] | None:
    if outputs is None:
        return None
    is_list = isinstance(outputs, Sequence) and not isinstance(outputs, str)
    if not is_list or not all(isinstance(name, str) for name in outputs):
        raise InvalidCall("outputs", outputs, "a list of names of variables, or None")
    return tuple(outputs)


def _definition_location(body: Callable[..., Any]) -> Location:
    code = getattr(unwrap(body), "__code__", None)
    return (
        Location("<unknown>", 0)
        if code is None
        else Location(code.co_filename, code.co_firstlineno)
    )
