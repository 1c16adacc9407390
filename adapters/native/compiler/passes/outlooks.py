"""What a graph knows of each call before it runs: what follows it, and when its text is used again.

A program may branch on its selects. Where the ways that are open at a call differ, the most that is
left on one of them is told, and when the text is used again is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...language.outlook import Outlook, RootOutlook
from ..graph.graph import Graph
from ..graph.nodes import CALLS, Fork, ForkItem
from .lengths import MOST_WORK, calling_branches
from .timeline import Timeline, Timing
from .uses import Uses
from .ways import Ways


@dataclass(frozen=True, slots=True)
class Outlooks:
    """By position: of calls, and of the forks whose roots are sent ahead."""

    calls: Mapping[int, Outlook] = field(default_factory=dict)
    roots: Mapping[int, RootOutlook] = field(default_factory=dict)


def outlooks_of(graph: Graph, timing: Timing) -> Outlooks:
    """What is known of a graph; nothing of one with very many paths."""
    ends = [index for index, block in enumerate(graph.blocks) if block.switch is None]
    if len(ends) * len(graph.nodes) > MOST_WORK:
        return Outlooks()
    ways, found = Ways(graph), _Found()
    planted = planted_forks(graph)
    for end in ends:
        _Way(ways, end, timing, planted).tell(found)
    return Outlooks(found.calls, found.roots)


def planted_forks(graph: Graph) -> frozenset[int]:
    """The forks whose roots are sent ahead: at least two of their branches may make a call."""
    calling = calling_branches(graph)
    forks = ((at, node) for at, node in enumerate(graph.nodes) if isinstance(node, Fork))
    return frozenset(at for at, node in forks if calling.get(at, node.num) > 1)


class _Found:
    """Outlooks of all ways. Mutable."""

    def __init__(self) -> None:
        self.calls: dict[int, Outlook] = {}
        self.roots: dict[int, RootOutlook] = {}

    def add_call(self, position: int, found: Outlook) -> None:
        """A call on one way, with what follows it there."""
        had = self.calls.get(position)
        self.calls[position] = found if had is None else _joined(had, found)

    def add_root(self, fork: int, found: RootOutlook) -> None:
        """A root on one way, with the calls that name it there."""
        had = self.roots.get(fork)
        if had is not None:
            outlook = _joined(had.outlook, found.outlook)
            num = _least(had.num_calls, found.num_calls)
            found = RootOutlook(outlook, num, _least(had.num_others, found.num_others))
        self.roots[fork] = found


def _joined(one: Outlook, other: Outlook) -> Outlook:
    """The most that is left on two ways."""
    return replace(
        other,
        root=one.root,
        calls_left=max(one.calls_left, other.calls_left),
        tokens_left=max(one.tokens_left, other.tokens_left),
        next_use=one.next_use if one.next_use == other.next_use else None,
    )


def _least(one: int, other: int) -> int:
    """The calls that are certain, of ways that have any."""
    return min(one, other) or max(one, other)


class _Way:
    """The way to one end: when its calls run, which use what, and which roots they name."""

    def __init__(self, ways: Ways, end: int, timing: Timing, planted: frozenset[int]) -> None:
        self._ways, self._planted = ways, planted
        self._nodes = list(ways.nodes(end))
        self._timeline = Timeline(ways, end, timing)
        self._root_of: dict[int, int | None] = {}
        self._first = self._find_roots()
        self._uses = Uses(ways.graph, self._nodes, self._begin)

    def tell(self, found: _Found) -> None:
        """Add what is known on this way."""
        naming: dict[int, list[int]] = {}
        for position, root in self._root_of.items():
            if root is not None:
                naming.setdefault(root, []).append(position)
            time = self._timeline.ends[position]
            outlook = self._outlook(position, time, self._uses.next_of(position), root)
            found.add_call(position, replace(outlook, is_first=position == self._first))
        users = self._users_of_roots()
        for position, node in self._nodes:
            if isinstance(node, Fork) and position in self._planted:
                time, calls = self._timeline.starts[position], naming.get(position, [])
                outlook = self._outlook(position, time, users.get(position), position)
                num_others = len(calls) - (self._first in calls)
                found.add_root(position, RootOutlook(outlook, len(calls), num_others))

    def _outlook(self, position: int, time: float, user: int | None, root: int | None) -> Outlook:
        """What follows a node from a time on, and the call that uses its text next."""
        return Outlook(
            self._timeline.calls_left(time),
            self._timeline.tokens_left(position),
            0 if user is None else self._timeline.steps_until(time, user),
            root,
        )

    def _find_roots(self) -> int | None:
        """Find for each call the latest fork that its prompt goes through, and return the first
        call whose prompt begins as the program does. A root is sent to the backend of the run
        only."""
        latest: dict[int, int | None] = {0: None}
        first = None
        for position, node in self._nodes:
            if isinstance(node, Fork) and position in self._planted:
                latest[node.stream] = position
            elif isinstance(node, ForkItem):
                parent = self._ways.graph.nodes[node.fork].stream
                if parent in latest:
                    latest[node.stream] = latest[parent]
            elif isinstance(node, CALLS):
                is_own = node.backend is None
                self._root_of[position] = latest.get(node.stream) if is_own else None
                first = position if first is None and node.stream in latest else first
        return first

    def _users_of_roots(self) -> dict[int, int]:
        """For each fork the first call whose prompt begins with its root, as those of its branches
        do and those of its own state behind it."""
        found: dict[int, int] = {}
        following: dict[int, int] = {}  # of each stream, the first call from here on
        for position, node in reversed(self._nodes):
            if isinstance(node, CALLS) and node.backend is None:
                following[node.stream] = position
            elif isinstance(node, Fork):
                streams = [node.stream, *self._ways.items(position)]
                users = [following[stream] for stream in streams if stream in following]
                if users:
                    found[position] = following[node.stream] = min(users, key=self._begin)
        return found

    def _begin(self, position: int) -> tuple[float, int]:
        return self._timeline.starts[position], position
