"""What the passes make of a graph, for the executor: each can be switched off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .graph.graph import Graph
from .lowering import Lowered, lowered
from .passes.names import checked_passes


@dataclass(frozen=True, slots=True)
class Plan:
    """How a graph is run.

    passes: that are on. graph: after them. program: what is submitted. plain: the same without what
    speculation could notice, whose calls are for several nodes. is_ahead: no read waits.
    """

    passes: frozenset[str]
    graph: Graph
    program: Lowered
    plain: Lowered
    is_ahead: bool


def planned(graph: Graph, passes: Iterable[str] | None = None) -> Plan:
    """The plan of a graph. passes: names in `PASSES`; None: all. Raises InvalidCall."""
    names = checked_passes(passes)
    program = lowered(graph, {}, {}, {})
    return Plan(names, graph, program, program, "ahead" in names)
