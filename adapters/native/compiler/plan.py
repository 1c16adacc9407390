"""What the passes make of a graph, for the executor and for `explain`: each can be switched off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....core.api.protocol import Prompt
from ..interpreter.transcript import Transcript
from ..language import expressions as language
from .graph.graph import Graph
from .graph.nodes import CALLS, Node
from .lowering import expression_of
from .passes.folding import Folded, folded
from .passes.lengths import Lengths, lengths_of
from .passes.liveness import without_dead
from .passes.names import checked_passes
from .passes.prefixes import constant_prefix
from .passes.roots import Root, roots_of


@dataclass(frozen=True, slots=True)
class Plan:
    """How a graph is run.

    passes: that are on. source: the graph before them. graph: the one that is run. live: the same
    without merged texts, for runs that speculate. prefix: nodes that every run begins with, where
    these are planted.
    """

    passes: frozenset[str]
    source: Graph
    graph: Graph
    live: Graph
    folding: Folded
    lengths: Lengths
    prefix: tuple[Node, ...]

    @property
    def is_ahead(self) -> bool:
        """Whether no read of a variable waits."""
        return "ahead" in self.passes

    @property
    def roots(self) -> tuple[Root, ...]:
        """The prompts that branches share, and when each is used; computed at each call."""
        return roots_of(self.graph) if "hints" in self.passes else ()

    @property
    def num_dead(self) -> int:
        """Calls that were left out."""
        return _num_calls(self.source) - _num_calls(self.graph)


def planned(graph: Graph, passes: Iterable[str] | None = None) -> Plan:
    """The plan of a graph. passes: names in `PASSES`; None: all. Raises InvalidCall."""
    names = checked_passes(passes)
    live = without_dead(graph) if "dead" in names else graph
    found = folded(live)
    used = found.graph if "fold" in names else live
    return Plan(
        names,
        graph,
        used,
        live,
        found,
        lengths_of(used, is_ahead="ahead" in names),
        constant_prefix(used) if "prefixes" in names else (),
    )


def prompt_of(prefix: Iterable[Node]) -> Prompt:
    """The prompt that a prefix is."""
    transcript = Transcript()
    for node in prefix:
        match expression_of(node):
            case language.Constant(text=text):
                transcript.add_text(text)
            case language.Media(segment=segment):
                transcript.add_media(segment)
            case language.RoleBegin() | language.RoleEnd() as mark:
                transcript.extend((mark,))
    return transcript.prompt()


def _num_calls(graph: Graph) -> int:
    return sum(isinstance(node, CALLS) for node in graph.nodes)
