"""The streams of a graph on the way through its nodes: which are open, and what set each variable.

The same rules hold while a program is traced and when a graph is read from a file.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NoReturn

from .errors import InvalidGraph
from .nodes import (
    SETTERS,
    Begin,
    End,
    Fork,
    ForkItem,
    Join,
    Node,
    Read,
    ScopeBegin,
    ScopeEnd,
)

MAX_DEPTH = 64  # of branches of branches


@dataclass(slots=True)
class Known:
    """What is known of one stream. parent: from which it was forked, by the node `opened_by`.

    setters: of each variable that was set here, in order. scopes: that are open here, and the
    number of them by name.
    """

    parent: int | None = None
    opened_by: int = -1
    depth: int = 0
    is_open: bool = True
    setters: dict[str, list[int]] = field(default_factory=dict)
    scopes: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Known:
        """The same, to go on from in another block."""
        setters = {name: list(found) for name, found in self.setters.items()}
        scopes = dict(self.scopes)
        return Known(self.parent, self.opened_by, self.depth, self.is_open, setters, scopes)


class Streams:
    """All streams of the nodes added so far. Mutable; `copy` for each way from a switch on."""

    def __init__(self) -> None:
        self.known: dict[int, Known] = {0: Known()}
        self._forks: dict[int, tuple[Fork, list[int]]] = {}
        self._nodes: dict[int, Node] = {}

    def copy(self) -> Streams:
        """The same, to go on from in another block."""
        found = Streams()
        found.known = {stream: known.copy() for stream, known in self.known.items()}
        found._forks = {fork: (node, list(items)) for fork, (node, items) in self._forks.items()}
        found._nodes = dict(self._nodes)
        return found

    def add(self, position: int, node: Node) -> None:
        """Go past the node at `position`. Raises InvalidGraph where it may not be there."""
        if isinstance(node, ForkItem | Begin):
            self._open(position, node)
        elif not self.is_open(node.stream):
            allowed = "a stream that is open there: opened by a node before, and not ended"
            refuse(position, "stream", node.stream, allowed)
        match node:
            case Fork():
                self._forks[position] = node, []
            case Join():
                self._join(position, node)
            case End():
                self.known[node.stream].is_open = False
            case ScopeBegin(stream=stream, name=name):
                self._scope(position, stream, name, 1)
            case ScopeEnd(stream=stream, name=name):
                self._scope(position, stream, name, -1)
        if isinstance(node, SETTERS) and node.name is not None:
            self.known[node.stream].setters.setdefault(node.name, []).append(position)
            self._nodes[position] = node

    def is_open(self, stream: int) -> bool:
        """Whether the stream takes a node now."""
        return stream in self.known and self.known[stream].is_open

    def setter(self, stream: int, name: str) -> int | None:
        """The node that a read of the variable in this stream's state reads now; None: there is
        none."""
        before, current = None, self.known.get(stream)
        while current is not None:
            found = current.setters.get(name, [])
            index = len(found) if before is None else bisect_left(found, before)
            if index:
                return found[index - 1]
            before, current = current.opened_by, self.known.get(_parent(current))
        return None

    def names(self, stream: int) -> tuple[str, ...]:
        """The variables that a state has or is about to get."""
        found: dict[str, None] = {}
        current: Known | None = self.known[stream]
        while current is not None:
            found.update(dict.fromkeys(current.setters))
            current = self.known.get(_parent(current))
        return tuple(name for name in found if self.setter(stream, name) is not None)

    def own_names(self, stream: int) -> tuple[str, ...]:
        """The variables that were set in this stream itself."""
        return tuple(self.known[stream].setters)

    def items(self, fork: int) -> tuple[int, ...]:
        """The streams that a fork has opened."""
        return tuple(self._forks[fork][1])

    def check_read(self, field: str, read: Read) -> None:
        """Raise InvalidGraph for a variable that the stream has not had so far."""
        if read.stream not in self.known:
            raise InvalidGraph(f"{field}.stream", read.stream, "a stream opened before")
        node = self._nodes.get(read.source)
        is_set = node is not None and getattr(node, "name", None) == read.name
        if not is_set or not self._is_seen(read.stream, read.source):
            allowed = f"the position of a node before it that sets {read.name!r} in this stream"
            raise InvalidGraph(f"{field}.source", read.source, allowed)

    def is_latest(self, read: Read) -> bool:
        """Whether the variable still has this value."""
        return self.setter(read.stream, read.name) == read.source

    def _is_seen(self, stream: int, source: int) -> bool:
        """Whether a stream has, or had, what a node set."""
        before, current = source + 1, stream
        while current >= 0:
            if self._nodes[source].stream == current:
                return source < before
            before = self.known[current].opened_by
            current = _parent(self.known[current])
        return False

    def source(self, read: Read) -> Node:
        """The node that sets a variable which `check_read` allows."""
        return self._nodes[read.source]

    def _open(self, position: int, node: ForkItem | Begin) -> None:
        if node.stream in self.known:
            refuse(position, "stream", node.stream, "a stream that no node before has opened")
        if isinstance(node, Begin):
            self.known[node.stream] = Known(None, position)
            return
        fork, items = self._forks.get(node.fork, (None, []))
        if fork is None:
            refuse(position, "fork", node.fork, "the position of a fork before it")
        if node.fork + 1 + node.index != position or not 0 <= node.index < fork.num:
            allowed = f"that of one of the {fork.num} nodes behind the fork, in order"
            refuse(position, "index", node.index, allowed)
        depth = self.known[fork.stream].depth + 1
        if depth > MAX_DEPTH:
            refuse(position, "stream", node.stream, f"at most {MAX_DEPTH} forks in each other")
        items.append(node.stream)
        self.known[node.stream] = Known(fork.stream, node.fork, depth)

    def _join(self, position: int, node: Join) -> None:
        fork, items = self._forks.get(node.fork, (None, []))
        if fork is None or fork.stream != node.stream:
            refuse(position, "fork", node.fork, "the position of a fork of the same stream")
        if not all(self.known[item].is_open for item in items):
            refuse(position, "fork", node.fork, "a fork whose branches have not ended yet")
        for item in items:
            self.known[item].is_open = False
        if node.mode == "gather_variable":
            for name in {name: None for item in items for name in self.own_names(item)}:
                self.known[node.stream].setters.setdefault(name, []).append(position)

    def _scope(self, position: int, stream: int, name: str, change: int) -> None:
        scopes = self.known[stream].scopes
        scopes[name] = scopes.get(name, 0) + change
        if scopes[name] < 0:
            refuse(position, "name", name, "a scope that was opened in this stream before")


def refuse(position: int, name: str, value: object, allowed: str) -> NoReturn:
    """Raise InvalidGraph for a field of a node."""
    raise InvalidGraph(f"nodes[{position}].{name}", value, allowed)


def _parent(known: Known) -> int:
    return -1 if known.parent is None else known.parent
