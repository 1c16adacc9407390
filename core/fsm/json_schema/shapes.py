"""Where in the values of a schema the arrays are whose items must differ.

The answer is a table of plain data: each row says of one place whether it is such an array, and
which rows its properties and items have. A place that may be met in several ways counts as such an
array where any of them says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from ..regex.errors import refuse
from .facts import All
from .unfold import MAX_SECONDS, Document

NOWHERE = -1
MAX_SHAPES = 2_000
Key: TypeAlias = frozenset[tuple[str, ...]]


class Shape(NamedTuple):
    """One place. Numbers are rows of the table; NOWHERE: there is no such array below.

    properties: by name. others: of every other property. prefix, rest: of the items.
    """

    is_unique: bool
    properties: dict[str, int]
    others: int
    prefix: tuple[int, ...]
    rest: int

    def value(self, name: str) -> int:
        """The row of a property."""
        return self.properties.get(name, self.others)

    def item(self, i: int) -> int:
        """The row of an item."""
        return self.prefix[i] if i < len(self.prefix) else self.rest


Shapes: TypeAlias = tuple[Shape, ...]


def unique_shapes(schema: Mapping[str, Any] | bool, seconds: float = MAX_SECONDS) -> Shapes:
    """The table of a schema, its root first; empty where no array's items must differ. Raises as
    the reading of a schema does."""
    return _Table(Document(schema, seconds)).rows() if _mentions_unique(schema) else ()


def _mentions_unique(schema: object) -> bool:
    """Whether uniqueItems occurs anywhere in a schema."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, Mapping):
            if part.get("uniqueItems") is True:
                return True
            todo += part.values()
        elif isinstance(part, list | tuple):
            todo += part
    return False


class _Table:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._numbers: dict[Key, int] = {}
        self._node_sets: list[tuple[All, ...]] = []

    def rows(self) -> Shapes:
        self._number([(self._document.root,)])
        found: list[Shape] = []
        while len(found) < len(self._node_sets):
            found.append(self._row(self._node_sets[len(found)]))
            if len(found) > MAX_SHAPES:
                allowed = f"uniqueItems in schemas of at most {MAX_SHAPES} places"
                raise refuse(self._node_sets[-1][0][0].path, allowed)
        return _pruned(found)

    def _number(self, options: Iterable[All]) -> int:
        """The row of a value that meets one of these."""
        kept = [nodes for nodes in options if nodes]
        key = frozenset(tuple(node.key for node in nodes) for nodes in kept)
        if not key:
            return NOWHERE
        if key not in self._numbers:
            self._numbers[key] = len(self._node_sets)
            self._node_sets.append(tuple(kept))
        return self._numbers[key]

    def _row(self, options: tuple[All, ...]) -> Shape:
        ways = [facts for nodes in options for facts in self._document.unfold(nodes)]
        objects = [facts.objects for facts in ways if facts.objects is not None]
        arrays = [facts.arrays for facts in ways if facts.arrays is not None]
        names = dict.fromkeys(name for it in objects for name in it.properties)
        length = max((len(it.prefix) for it in arrays), default=0)
        others = [it.rest or () for it in objects]
        others += [nodes for it in objects for nodes in it.patterns.values()]
        return Shape(
            any(it.is_unique and it.high != 1 for it in arrays),
            {name: self._number(it.value(name) for it in objects) for name in names},
            self._number(others),
            tuple(self._number(it.item(i) for it in arrays) for i in range(length)),
            self._number(it.rest or () for it in arrays),
        )


def _pruned(rows: list[Shape]) -> Shapes:
    """The table with NOWHERE for rows from which no array is reached; empty where none is."""
    above: dict[int, set[int]] = {}
    for i, row in enumerate(rows):
        for below in (*row.properties.values(), row.others, *row.prefix, row.rest):
            above.setdefault(below, set()).add(i)
    todo = [i for i, row in enumerate(rows) if row.is_unique]
    kept = set(todo)
    while todo:
        new = above.get(todo.pop(), set()) - kept
        kept |= new
        todo += new
    if not kept:
        return ()

    def of(i: int) -> int:
        return i if i in kept else NOWHERE

    return tuple(
        Shape(
            row.is_unique,
            {name: of(i) for name, i in row.properties.items()},
            of(row.others),
            tuple(map(of, row.prefix)),
            of(row.rest),
        )
        for row in rows
    )
