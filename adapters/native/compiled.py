"""Compiled programs: a graph and how it is run, without the function that it was traced from."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from inspect import Parameter as Entry
from inspect import Signature
from pathlib import Path
from typing import Any, Literal

from ...core.api.prompts import check_media
from ...core.api.protocol import Backend, Call, Chat, ForkHint, InvalidCall, Prompt, Sampling
from ...core.common.harmless import hint_errors
from .batch import most_threads
from .compiler.executor import Execution, Surroundings
from .compiler.explain import Explanation, Worth
from .compiler.graph.blocks import Parameter
from .compiler.graph.graph import MAX_BYTES, Graph
from .compiler.picture import picture_of
from .compiler.plan import Plan, planned, prompt_of
from .compiler.sharing.moves import Moved
from .compiler.svg import svg_of
from .compiler.terminal import text_of
from .compiler.variants import Variants
from .interpreter.interpreter import Interpreter
from .language.expressions import Expression
from .language.settings import Settings
from .movement.rules import Reorderer
from .moving import move_graph
from .placing import Placing
from .primitives import image, video
from .room import Room
from .run import AnyRun
from .runnable import Runnable
from .state import ProgramState

_log = logging.getLogger(__name__)


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
        self._room = Room(self.plan.graph)
        self._digest = graph.digest()
        super().__init__(Body(self.plan, state_type, self._room), speculate=graph.speculate)
        self._new_run = Placing(graph, self.plan.passes).new_run

    def __repr__(self) -> str:
        return f"<compiled program {self.name} of {len(self.graph.nodes)} nodes>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.graph.to_json(), tuple(sorted(self.plan.passes)))

    def new_run(self, settings: Settings, arguments: Mapping[str, Any]) -> AnyRun:
        """One run that has not begun."""
        return self._new_run(self.body, settings, (), arguments, self._state_type)

    @property
    def hint(self) -> ForkHint:
        """A hint of what all runs begin with, for the first call of each."""
        return self._root(None)

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

    def explain(self, backend: Backend | str | None = None) -> Explanation:
        """What each pass is worth, as a table where it is printed. backend: counts tokens, and
        says what room it has for runs; without one tokens are estimated."""
        found = None if backend is None else Settings(backend=backend).find()
        explanation = self._room.explained(self.plan, found)
        if self.movement is None:
            return explanation
        return replace(explanation, worths=(*explanation.worths, _worth(self.movement)))

    def draw(self, path: str | os.PathLike[str] | None = None) -> str:
        """A picture of the graph, streams as columns: as text for a terminal, and as an SVG file
        where a path is given. Raises InvalidCall for a graph of more than 2,000 nodes."""
        picture = picture_of(self.graph)
        if path is not None:
            _write(path, svg_of(picture))
        return text_of(picture)

    def plant(self, **keywords: Any) -> bool:
        """Compute what every run begins with ahead of the runs, on the backend of these settings;
        whether there is anything to compute, and a use for it. `run_batch` does so itself."""
        settings, _ = self._split(keywords)
        return self._planted(settings, None)

    def _announced(self, settings: Settings, num_runs: int) -> ForkHint:
        """A hint of the constant prefix, which is sent first; of an unknown one, where there is
        none."""
        is_known = settings.hints and self._planted(settings, num_runs)
        return self._root(num_runs) if is_known else super()._announced(settings, num_runs)

    def _root(self, num_runs: int | None) -> ForkHint:
        return ForkHint(f"program {self._digest[:32]}", num_runs, kind=self.name)

    def _planted(self, settings: Settings, num_runs: int | None) -> bool:
        with hint_errors.suppress(_log, "planting the prefix of a program"):
            prompt = prompt_of(self.plan.prefix)
            backend = settings.find()
            info = backend.info()
            if not _is_any(prompt) or "hints" not in info.features:
                return False
            check_media(prompt, info.features, info.model)
            hint, namespace = self._root(num_runs), settings.namespace
            call = Call(prompt, Sampling(max_tokens=0), hint=hint, namespace=namespace)
            backend.submit(call)
            return True
        return False

    def _num_threads(
        self,
        wanted: int | Literal["auto"],
        items: Sequence[Mapping[str, Any]],
        settings: Settings,
    ) -> int | Literal["auto"]:
        """As many runs at once as fit the backend's memory, unless the caller sets a number."""
        are_known = all(isinstance(item, Mapping) for item in items)
        is_limited = "memory" in self.plan.passes
        if wanted != "auto" or not is_limited or not are_known:
            return wanted
        found = self._room.num_programs(settings.find(), items)
        return wanted if found is None else min(found, most_threads())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a file, which `load` reads. Raises InvalidCall where it cannot."""
        _write(path, self.graph.to_json() + "\n")


def _worth(movement: Moved) -> Worth:
    """Of code movement; by how much is told in full by `movement.explain`."""
    grown = movement.num_characters
    text = f"constant prefix longer by {grown} characters (see movement.explain())"
    return Worth("move", True, text, grown, "characters")


def load(path: str | os.PathLike[str], passes: Iterable[str] | None = None) -> CompiledProgram:
    """The program that `save` wrote. Runs no code of the file; raises InvalidCall (InvalidGraph for
    what is no graph), within time and memory that the file's length bounds."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, TypeError, ValueError) as error:
        shown = str(path) if isinstance(path, os.PathLike) else path
        raise InvalidCall("path", shown, f"a file that can be read ({error})") from error
    return CompiledProgram(Graph.from_json(content), passes)


def _write(path: str | os.PathLike[str], text: str) -> None:
    try:
        Path(path).write_text(text, "utf-8")
    except (OSError, TypeError, ValueError) as error:
        raise InvalidCall("path", path, f"a file that can be written ({error})") from error


class Body:
    """The function of a compiled program, whose first argument is a state."""

    def __init__(self, plan: Plan, state_type: type[ProgramState], room: Room) -> None:
        graph = plan.source
        self.__name__ = self.__qualname__ = graph.name
        self.__signature__ = _signature(graph.parameters)
        self._plan, self._room, self._variants = plan, room, Variants(plan)
        self._fixed = {it.name: it.value for it in graph.parameters if it.is_fixed}
        self._surroundings = Surroundings(_media, partial(_state, state_type))

    @property
    def source_text(self) -> str:
        """What it is, for those who compare programs."""
        return self._plan.source.to_json()

    def __call__(self, state: ProgramState, *args: Any, **kwargs: Any) -> Any:
        bound = self.__signature__.bind(state, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        del arguments["state"]
        self._check_fixed(arguments)
        main = state._interpreter
        settings = main.context.settings
        is_ahead = self._plan.is_ahead and not settings.speculate
        has_limits = is_ahead and "memory" in self._plan.passes
        most = self._room.most(settings.find(), arguments) if has_limits else {}
        program = (
            self._variants.plain()
            if settings.speculate
            else self._variants.program(settings.sampling, most)
        )
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


def _is_any(prompt: Prompt) -> bool:
    return bool(prompt.messages) if isinstance(prompt, Chat) else bool(prompt)


def _state(state_type: type[ProgramState], interpreter: Interpreter) -> ProgramState:
    return state_type(interpreter)


def _restored(text: str, passes: tuple[str, ...]) -> CompiledProgram:
    return CompiledProgram(Graph.from_json(text), passes)
