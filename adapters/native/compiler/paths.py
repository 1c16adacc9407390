"""All paths through a program that branches on selects, joined to the blocks of one graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .graph.blocks import Block, Case, Switch
from .graph.moving import moved, moved_read, moved_value
from .graph.nodes import OPENERS, Node, Read
from .graph.validation import MAX_PATHS
from .graph.values import Value
from .markers import markers_of
from .recorder import FEWER_PATHS, MANY_PATHS, Decision, Recorder

Body: TypeAlias = Callable[[Recorder], Value]


@dataclass(frozen=True, slots=True)
class Path:
    """One path. nodes: refer to each other by their positions on it."""

    nodes: tuple[Node, ...]
    decisions: tuple[Decision, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes up to a decision, and the trees of its options that differ; or, without cases, to
    the end of the program, which returns `value`."""

    nodes: tuple[Node, ...]
    read: Read | None = None
    cases: tuple[tuple[tuple[str, ...], Tree], ...] = ()
    value: Value | None = None


def explore(run: Body, edge: str, refuse: Callable[[str, str], Any]) -> Tree:
    """Run a program once for each path. refuse: raises NotTraceable for an operation and what to
    write instead. edge: of the markers."""
    paths: list[Path] = []
    script: Sequence[int] | None = ()
    while script is not None:
        recorder = Recorder(markers_of(edge), script)
        value = run(recorder)
        paths.append(Path(tuple(recorder.nodes), tuple(recorder.decisions), value))
        script = _next_script(recorder.decisions)
        if script is not None and len(paths) == MAX_PATHS:
            refuse(MANY_PATHS, FEWER_PATHS)
    try:
        return _joined(paths, 0, 0)
    except _NotDeterministic:
        operation = "does something else each time it is traced"
        refuse(operation, "give random numbers, the time and the like as arguments")
        raise


class _NotDeterministic(Exception):
    """Two paths differ before the first decision that they take differently."""


def _next_script(decisions: Sequence[Decision]) -> Sequence[int] | None:
    for number in range(len(decisions) - 1, -1, -1):
        if decisions[number].index + 1 < len(decisions[number].options):
            return [*(it.index for it in decisions[:number]), decisions[number].index + 1]
    return None


def _joined(paths: Sequence[Path], num_decided: int, start: int) -> Tree:
    first = paths[0]
    if len(first.decisions) == num_decided:
        if len(paths) > 1:
            raise _NotDeterministic
        return Tree(first.nodes[start:], value=first.value)
    if any(len(path.decisions) <= num_decided for path in paths):
        raise _NotDeterministic
    found = first.decisions[num_decided]
    head = first.nodes[start : found.position]
    for path in paths:
        decision = path.decisions[num_decided]
        is_same = (decision.position, decision.read) == (found.position, found.read)
        if not is_same or path.nodes[start : found.position] != head:
            raise _NotDeterministic
    cases: list[tuple[tuple[str, ...], Tree]] = []
    for index, option in enumerate(found.options):
        chosen = [path for path in paths if path.decisions[num_decided].index == index]
        if not chosen:
            raise _NotDeterministic
        _add_case(cases, option, _joined(chosen, num_decided + 1, found.position))
    if len(cases) == 1:  # the program does the same for each option
        only = cases[0][1]
        return Tree(head + only.nodes, only.read, only.cases, only.value)
    return Tree(head, found.read, tuple(cases))


def _add_case(cases: list[tuple[tuple[str, ...], Tree]], option: str, tree: Tree) -> None:
    for number, (options, known) in enumerate(cases):
        if known == tree:
            cases[number] = (*options, option), known
            return
    cases.append(((option,), tree))


class Layout:
    """Nodes and blocks of a tree, with the positions and streams that they have in a graph."""

    def __init__(self, tree: Tree) -> None:
        self.nodes: list[Node] = []
        self._blocks: dict[int, Block] = {}
        self._num_blocks = 1
        self._num_streams = 1
        self._add(0, tree, [], {0: 0})

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, in order."""
        return tuple(self._blocks[index] for index in range(len(self._blocks)))

    def _add(self, index: int, tree: Tree, positions: list[int], streams: dict[int, int]) -> None:
        start = len(self.nodes)
        for node in tree.nodes:
            if isinstance(node, OPENERS):
                streams[node.stream] = self._num_streams
                self._num_streams += 1
            self.nodes.append(moved(node, positions, streams))
            positions.append(len(self.nodes) - 1)
        end = len(self.nodes)
        if tree.read is None:
            assert tree.value is not None
            value = moved_value(tree.value, positions, streams)
            self._blocks[index] = Block(start, end, value=value)
            return
        cases = []
        for options, following in tree.cases:
            number, self._num_blocks = self._num_blocks, self._num_blocks + 1
            cases.append(Case(options, number))
            self._add(number, following, list(positions), dict(streams))
        switch = Switch(moved_read(tree.read, positions, streams), tuple(cases))
        self._blocks[index] = Block(start, end, switch)
