"""Code movement of compiled programs: the samples on which old and new must agree, and tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...core.api.protocol import Backend, Call, InvalidCall, Sampling, Text
from .compiler.graph.graph import Graph
from .compiler.graph.nodes import SETTERS
from .compiler.sharing.moves import Moved, move
from .movement.checks import Refusal
from .movement.rules import Reorderer, Rules
from .runnable import Runnable
from .state import ProgramState

_SAMPLES = "a list of mappings, the program's keyword arguments"


def move_graph(
    graph: Graph,
    program_of: Callable[[Graph], Runnable],
    reorderer: Reorderer | bool,
    samples: Iterable[Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> Moved:
    """The graph after code movement. program_of: what runs a graph. reorderer: True for Rules().
    settings: of the runs of the samples. Raises InvalidCall, and what these runs raise."""
    items = list(samples) if isinstance(samples, Iterable) else samples
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise InvalidCall("samples", samples, _SAMPLES)
    if settings and not items:
        raise InvalidCall("samples", samples, f"{_SAMPLES}: settings are of their runs")

    def agree(moved: Graph) -> Refusal | None:
        if not items:
            return None
        programs = program_of(graph), program_of(moved)
        batches = [_answers(program, items, settings) for program in programs]
        return _disagreement(graph, batches)

    chosen: Any = Rules() if reorderer is True else reorderer  # `move` refuses what is none
    return move(graph, chosen, agree)


def tokens_by(backend: Backend) -> Callable[[str], int]:
    """Counts the tokens of a text by a call that only caches it."""

    def count(text: str) -> int:
        reply = backend.submit(Call((Text(text),), Sampling(max_tokens=0)))
        return reply.result().usage.prompt_tokens

    return count


def _answers(
    program: Runnable, items: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> list[ProgramState]:
    return program.run_batch(
        items, progress_bar=False, raise_errors=True, **{"temperature": 0, **settings}
    )


def _disagreement(graph: Graph, batches: Sequence[Sequence[ProgramState]]) -> Refusal | None:
    """The first variable that is another one in the moved program."""
    named = [node for node in graph.nodes if isinstance(node, SETTERS) and node.stream == 0]
    names = dict.fromkeys(node.name for node in named if node.name is not None)
    for number, (old, new) in enumerate(zip(*batches, strict=True)):
        for name in names:
            values = [_value(state, name) for state in (old, new)]
            if values[0] != values[1]:
                shown = ", then ".join(f"{value!r:.60}" for value in values)
                return Refusal("samples", f"in sample {number}, {name!r} was {shown}")
    return None


def _value(state: ProgramState, name: str) -> Any:
    if name in state:
        return state[name]
    return None
