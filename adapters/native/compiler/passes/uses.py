"""Which calls have prompts that begin with the text of an earlier call, whatever the texts are.

The prompts on one way through a graph are a tree of parts: constants, arguments, answers. A state
that repeats what a branch of it wrote goes through the same parts as the branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ..graph.graph import Graph
from ..graph.nodes import (
    CALLS,
    Argument,
    Begin,
    ConstantText,
    Fork,
    ForkItem,
    Gen,
    Join,
    Media,
    Node,
    RoleBegin,
    RoleEnd,
    Variable,
)

Part: TypeAlias = tuple[Any, ...]
Order: TypeAlias = Callable[[int], tuple[float, int]]


class _Text:
    """What a stream has written: a node of the tree, and a constant that is not ended behind it.
    parts: since the stream was opened. Mutable."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.constant = ""
        self.parts: list[Part] = []


class Uses:
    """The uses of texts on one way. order: when a call begins."""

    def __init__(self, graph: Graph, nodes: Iterable[tuple[int, Node]], order: Order) -> None:
        self._graph, self._order = graph, order
        self._children: list[dict[Part, int]] = [{}]
        self._parents = [0]
        self._texts = {0: _Text(0)}
        self._prompts: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        for position, node in nodes:
            self._add(position, node)
        self._firsts = self._found_firsts()

    def next_of(self, position: int) -> int | None:
        """The first call on the same backend whose prompt begins with the text of a call."""
        call = self._graph.nodes[position]
        assert isinstance(call, CALLS)
        return self._firsts.get((self._ends[position], call.backend))

    def _add(self, position: int, node: Node) -> None:
        match node:
            case ConstantText(stream=stream, text=constant):
                self._texts[stream].constant += constant
            case Begin(stream=stream):
                self._texts[stream] = _Text(0)
            case ForkItem(stream=stream, fork=fork):
                self._texts[stream] = _Text(self._node_of(self._graph.nodes[fork].stream))
            case Fork(stream=stream):
                self._node_of(stream)
            case Join(stream=stream, fork=fork, mode="concate_and_append"):
                for item in self._graph.nodes[fork + 1 : fork + 1 + self._num(fork)]:
                    self._node_of(item.stream)
                    for part in self._texts[item.stream].parts:
                        self._append(stream, part)
            case _ if isinstance(node, CALLS):
                self._prompts[position] = self._node_of(node.stream)
                self._append(node.stream, ("answer", position))
                self._ends[position] = self._texts[node.stream].node
            case _:
                found = self._part(node)
                if found is not None:
                    self._append(node.stream, found)

    def _num(self, fork: int) -> int:
        node = self._graph.nodes[fork]
        assert isinstance(node, Fork)
        return node.num

    def _part(self, node: Node) -> Part | None:
        """What a node appends beside constants and answers; None: nothing."""
        match node:
            case Argument(name=name, form=form, spec=spec):
                return "argument", name, form == "repr", spec
            case Variable(read=read, form=form, spec=spec):
                source = self._graph.nodes[read.source]
                has_list = isinstance(source, Gen) and source.sampling.get("n", 1) > 1
                is_answer = isinstance(source, CALLS) and read.item == (0 if has_list else None)
                if is_answer and form != "repr" and not spec:
                    return "answer", read.source
                return "variable", read.source, read.item, form, spec
            case Media(data=data, argument=argument, num_frames=num_frames):
                return "media", data, argument, num_frames
            case RoleBegin(role=role):
                return "role", role
            case RoleEnd():
                return ("end of a role",)
        return None

    def _node_of(self, stream: int) -> int:
        """The node of all that a stream has written."""
        text = self._texts[stream]
        constant, text.constant = text.constant, ""
        if constant:
            self._append(stream, ("constant", constant))
        return text.node

    def _append(self, stream: int, part: Part) -> None:
        if part[0] != "constant":
            self._node_of(stream)
        text = self._texts[stream]
        children = self._children[text.node]
        if part not in children:
            children[part] = len(self._children)
            self._children.append({})
            self._parents.append(text.node)
        text.node = children[part]
        text.parts.append(part)

    def _found_firsts(self) -> dict[tuple[int, str | None], int]:
        """Of each node of the tree, and each backend, the first call whose prompt goes through."""
        found: dict[tuple[int, str | None], int] = {}
        for position, at in self._prompts.items():
            call = self._graph.nodes[position]
            assert isinstance(call, CALLS)
            self._put(found, (at, call.backend), position)
        backends = {backend for _, backend in found}
        for at in range(len(self._parents) - 1, 0, -1):  # a node is behind its parent
            for backend in backends:
                if (at, backend) in found:
                    self._put(found, (self._parents[at], backend), found[at, backend])
        return found

    def _put(
        self, found: dict[tuple[int, str | None], int], key: tuple[int, str | None], position: int
    ) -> None:
        had = found.get(key)
        if had is None or self._order(position) < self._order(had):
            found[key] = position
