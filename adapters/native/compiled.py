"""Compiled programs: a graph and how it is run, without the function that it was traced from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import partial
from inspect import Parameter as Entry
from inspect import Signature
from pathlib import Path
from typing import Any

from ...core.api.protocol import InvalidCall
from .compiler.executor import Execution, Surroundings
from .compiler.graph.blocks import Parameter
from .compiler.graph.graph import MAX_BYTES, Graph
from .compiler.plan import Plan, planned
from .compiler.sharing.moves import Moved
from .interpreter.interpreter import Interpreter
from .language.expressions import Expression
from .movement.rules import Reorderer
from .moving import move_graph
from .primitives import image, video
from .runnable import Runnable
from .state import ProgramState


class CompiledProgram(Runnable):
    """A graph that runs as the program that it was traced from: with the same tokens, variables and
    meta information. See `Runnable` for its keywords.

    passes: names in `PASSES`; None: all. A backend that a node names is one of the run's
    `backends`. movement: what code movement did to the graph; None: it was not asked for. It is
    pickled as the graph's JSON. Raises InvalidCall.
    """

    def __init__(
        self,
        graph: Graph,
        passes: Iterable[str] | None = None,
        *,
        state_type: type[ProgramState] = ProgramState,
        movement: Moved | None = None,
    ) -> None:
        self.graph = graph
        self.name = graph.name
        self.plan = planned(graph, passes)
        self.movement = movement
        self._state_type = state_type
        super().__init__(Body(graph, self.plan, state_type), speculate=graph.speculate)

    def __repr__(self) -> str:
        return f"<compiled program {self.name} of {len(self.graph.nodes)} nodes>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.graph.to_json(), tuple(sorted(self.plan.passes)))

    def move_for_sharing(
        self,
        reorderer: Reorderer | bool = True,
        *,
        samples: Iterable[Mapping[str, Any]] = (),
        **settings: Any,
    ) -> CompiledProgram:
        """The program with constant texts moved ahead of its arguments, so that its runs share
        more. It may answer otherwise than this one: what moved is in `movement.explain()`.

        reorderer: proposes orders, which are all checked; True: `Rules()`. samples: arguments on
        which both programs must give the same values; settings: of these runs (their backend).
        Raises InvalidCall, and what the reorderer or these runs raise.
        """
        passes = self.plan.passes

        def program_of(graph: Graph) -> CompiledProgram:
            return CompiledProgram(graph, passes, state_type=self._state_type)

        movement = move_graph(self.graph, program_of, reorderer, samples, settings)
        return CompiledProgram(
            movement.graph, passes, state_type=self._state_type, movement=movement
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a file, which `load` reads. Raises InvalidCall where it cannot."""
        try:
            Path(path).write_text(self.graph.to_json() + "\n", "utf-8")
        except OSError as error:
            raise InvalidCall("path", path, f"a file that can be written ({error})") from error


def load(path: str | os.PathLike[str], passes: Iterable[str] | None = None) -> CompiledProgram:
    """The program that `save` wrote. Runs no code of the file; raises InvalidCall (InvalidGraph for
    what is no graph), within time and memory that the file's length bounds."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, TypeError, ValueError) as error:
        raise InvalidCall("path", path, f"a file that can be read ({error})") from error
    return CompiledProgram(Graph.from_json(content), passes)


class Body:
    """The function of a compiled program, whose first argument is a state."""

    def __init__(self, graph: Graph, plan: Plan, state_type: type[ProgramState]) -> None:
        self.__name__ = self.__qualname__ = graph.name
        self.__signature__ = _signature(graph.parameters)
        self._graph, self._plan = graph, plan
        self._fixed = {it.name: it.value for it in graph.parameters if it.is_fixed}
        self._surroundings = Surroundings(_media, partial(_state, state_type))

    @property
    def source_text(self) -> str:
        """What it is, for those who compare programs."""
        return self._graph.to_json()

    def __call__(self, state: ProgramState, *args: Any, **kwargs: Any) -> Any:
        bound = self.__signature__.bind(state, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        del arguments["state"]
        self._check_fixed(arguments)
        main = state._interpreter
        is_ahead = self._plan.is_ahead and not main.context.settings.speculate
        program = self._plan.program if is_ahead else self._plan.plain
        return Execution(program, main, arguments, self._surroundings, is_ahead).run()

    def _check_fixed(self, arguments: Mapping[str, Any]) -> None:
        for name, value in self._fixed.items():
            if arguments[name] is not value and arguments[name] != value:
                allowed = f"{value!r:.60}: the program was compiled for it"
                raise InvalidCall(name, arguments[name], allowed)


def _signature(parameters: Iterable[Parameter]) -> Signature:
    entries = [Entry("state", Entry.POSITIONAL_ONLY)]
    for it in sorted(parameters, key=lambda it: not it.is_required):
        default = Entry.empty if it.is_required else deepcopy(it.value)
        entries.append(Entry(it.name, Entry.POSITIONAL_OR_KEYWORD, default=default))
    return Signature(entries)


def _media(source: Any, num_frames: int | None) -> Expression:
    return image(source) if num_frames is None else video(source, num_frames)


def _state(state_type: type[ProgramState], interpreter: Interpreter) -> ProgramState:
    return state_type(interpreter)


def _restored(text: str, passes: tuple[str, ...]) -> CompiledProgram:
    return CompiledProgram(Graph.from_json(text), passes)
