"""Where in the values of a schema items, or the names of open properties, must differ.

The answer is a table of plain data: each row says of one place whether it is such an array, or an
object that needs several properties of which not all are named, and which rows its properties and
items have. A place that may be met in several ways counts as one where any of them says so.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from ..regex.errors import refuse
from .facts import All, Arrays, Facts, Numbers, Objects, Strings, distinct
from .unfold import Document, located

NOWHERE = -1
MAX_SHAPES = 20_000
COUNTS = frozenset(("minProperties", "maxProperties"))  # the second inside of `not`
Key: TypeAlias = frozenset[tuple[str, ...]]


class Shape(NamedTuple):
    """One place. Numbers are rows of the table; NOWHERE: there is no such place below.

    is_unique: whether the items of an array must differ. is_counted: whether an object needs
    several names, so that none may come twice; or is part of what must differ.
    properties: by name. others: of every other property. prefix, rest: of the items.
    num_tight: of how many first items one may take a value that a later one needs.
    """

    is_unique: bool
    properties: dict[str, int]
    others: int
    prefix: tuple[int, ...]
    rest: int
    is_counted: bool = False
    num_tight: int = 0

    def value(self, name: str) -> int:
        """The row of a property."""
        return self.properties.get(name, self.others)

    def item(self, i: int) -> int:
        """The row of an item."""
        return self.prefix[i] if i < len(self.prefix) else self.rest


Shapes: TypeAlias = tuple[Shape, ...]


def unique_shapes(document: Document) -> Shapes:
    """The table of a schema, its root first; empty where nothing must differ. Raises as the reading
    of a schema does."""
    return _Table(document).rows() if _is_mentioned(document.root.schema) else ()


def _is_mentioned(schema: object) -> bool:
    """Whether a schema anywhere counts properties, or has uniqueItems."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, Mapping):
            if part.get("uniqueItems") is True or part.keys() & COUNTS:
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
        self._open: set[int] = set()  # rows of objects that may have names that are not known

    def rows(self) -> Shapes:
        self._number([(self._document.root,)])
        found: list[Shape] = []
        while len(found) < len(self._node_sets):
            row = len(found)
            with located(self._node_sets[row][0][0].path):
                found.append(self._row(row, self._node_sets[row]))
            if len(found) > MAX_SHAPES:
                allowed = f"uniqueItems in schemas of at most {MAX_SHAPES} places"
                raise refuse(self._node_sets[-1][0][0].path, allowed)
        return _pruned(found, self._open)

    def _number(self, options: Iterable[All]) -> int:
        """The row of a value that meets one of these."""
        kept = {tuple(node.key for node in nodes): nodes for nodes in options if nodes}
        key = frozenset(kept)
        if not key:
            return NOWHERE
        if key not in self._numbers:
            self._numbers[key] = len(self._node_sets)
            self._node_sets.append(tuple(kept.values()))
        return self._numbers[key]

    def _row(self, row: int, options: tuple[All, ...]) -> Shape:
        ways = [facts for nodes in options for facts in self._document.unfold(nodes)]
        objects = [facts.objects for facts in ways if facts.objects is not None]
        arrays = [facts.arrays for facts in ways if facts.arrays is not None]
        values: dict[str, list[All]] = {}
        for it in objects:
            for name in it.properties:
                values.setdefault(name, []).append(it.value(name))
        is_open = [it for it in objects if it.patterns or not _is_plain(it.rest)]
        if any(_is_open(it) for it in objects):
            self._open.add(row)
        length = max((len(it.prefix) for it in arrays), default=0)
        others = [it.rest or () for it in objects]
        others += [nodes for it in objects for nodes in it.patterns.values()]
        return Shape(
            any(it.is_unique and it.high != 1 for it in arrays),
            {
                name: self._number((*found, *(it.value(name) for it in is_open)))
                for name, found in values.items()
            },
            self._number(others),
            tuple(
                self._number(nodes for it in arrays for nodes in _items(it.item(i), it))
                for i in range(length)
            ),
            self._number(nodes for it in arrays for nodes in _items(it.rest or (), it)),
            any(map(_is_counted, objects)),
            max((self._num_tight(it) for it in arrays if it.is_unique and it.prefix), default=0),
        )

    def _num_tight(self, arrays: Arrays) -> int:
        """Of how many first items one may take a value that a later one needs."""
        length = len(arrays.prefix)
        if arrays.rest is not None and arrays.high != length and not self._is_wide(arrays.rest):
            return length
        tight = (i for i, nodes in enumerate(arrays.prefix) if not self._is_wide(nodes))
        return max(tight, default=0)

    def _is_wide(self, nodes: All, depth: int = 3) -> bool:
        """Whether it is plain that more values meet these nodes than are ever written."""
        return any(self._has_many(facts, depth) for facts in self._document.unfold(nodes))

    def _has_many(self, facts: Facts, depth: int) -> bool:
        if facts.values is not None:
            return False
        kinds = facts.kinds()
        strings, numbers = facts.strings or Strings(), facts.numbers or Numbers()
        if facts.types is None and not kinds:
            return True
        if "string" in kinds and replace(strings, low=0) == Strings():
            return True
        if "integer" in kinds and None in (numbers.interval.low, numbers.interval.high):
            return True
        objects = facts.objects
        if "object" not in kinds or objects is None or not depth:
            return False
        return any(self._is_wide(it, depth - 1) for it in objects.properties.values() if it)


def _items(nodes: All, arrays: Arrays) -> Iterator[All]:
    """What an item may have to meet: these nodes, and what is contained as well."""
    yield nodes
    yield from (distinct((*nodes, *part.nodes)) for part in arrays.contains)


def _is_plain(rest: All | None) -> bool:
    """Whether nothing is said of other properties, but whether there are any."""
    return all(isinstance(node.schema, bool) for node in rest or ())


def _is_counted(objects: Objects) -> bool:
    """Whether these objects need several properties, and may have some that are not named."""
    is_closed = objects.rest is not None and any(node.schema is False for node in objects.rest)
    is_closed = is_closed and not objects.patterns
    return objects.low > 1 and objects.high != 1 and not is_closed


def _is_open(objects: Objects) -> bool:
    """Whether names may be written that are not known."""
    return bool(objects.patterns) or not all(it.schema is False for it in objects.rest or ())


def _pruned(rows: list[Shape], is_open: Container[int]) -> Shapes:
    """The table with NOWHERE for rows from which nothing is reached that must differ, and which are
    no part of what must; empty where that is so of all."""
    above: dict[int, set[int]] = {}
    for i, row in enumerate(rows):
        for below in _below(row):
            above.setdefault(below, set()).add(i)
    differing = [i for i, row in enumerate(rows) if row.is_unique or row.is_counted]
    if not differing:
        return ()
    kept = _reached(differing, lambda i: above.get(i, set()))
    items = (i for row in rows if row.is_unique for i in (*row.prefix, row.rest))
    inside = _reached(items, lambda i: _below(rows[i]))
    kept |= inside

    def of(i: int) -> int:
        return i if i in kept else NOWHERE

    return tuple(
        Shape(
            row.is_unique,
            {name: of(i) for name, i in row.properties.items()},
            of(row.others),
            tuple(map(of, row.prefix)),
            of(row.rest),
            row.is_counted or (i in inside and i in is_open),
            row.num_tight,
        )
        for i, row in enumerate(rows)
    )


def _below(row: Shape) -> tuple[int, ...]:
    return tuple(
        i for i in (*row.properties.values(), row.others, *row.prefix, row.rest) if i != NOWHERE
    )


def _reached(start: Iterable[int], near: Callable[[int], Iterable[int]]) -> set[int]:
    """These rows, and all that are reached from them."""
    found = {i for i in start if i != NOWHERE}
    todo = list(found)
    while todo:
        new = set(near(todo.pop())) - found
        found |= new
        todo += new
    return found
