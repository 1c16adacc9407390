"""References and alternatives of a schema: a place in it becomes facts, one set for each way.

Only places that can be reached are read, and no more of them than a budget; references lead to
places in the same document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import thread_time
from typing import Any

from ..dialects import has_lone_ref
from .facts import All, Facts, Node
from .keywords import applied, read
from .limits import TooSlow
from .members import parted
from .references import References
from .refusals import FIELD, NotRegular, Unreadable, Unsayable, refuse

MAX_STEPS = 50_000
MAX_SECONDS = 3.0
MAX_WAYS = 2_000
MAX_NESTED = 64
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


@contextmanager
def located(path: str) -> Iterator[None]:
    """Give the errors of deep rooms their place in the document."""
    try:
        yield
    except Unsayable as error:
        raise NotRegular(path, str(error)) from None
    except Unreadable as error:
        raise refuse(path, str(error)) from None


class Document:
    """A schema document and what was read of it."""

    def __init__(self, schema: Mapping[str, Any] | bool, seconds: float = MAX_SECONDS) -> None:
        if not isinstance(schema, Mapping | bool):
            raise refuse("#", "a schema: a mapping, or true or false")
        self.root = Node(schema, "#")
        self._num_steps = 0
        self._ends_at = thread_time() + seconds
        self._seconds = seconds
        self._references = References(self.root)
        self._facts: dict[str, Facts] = {}
        self._open: set[tuple[str, ...]] = set()
        self._ways: dict[tuple[str, ...], tuple[Facts, ...]] = {}

    def unfold(self, nodes: All, *, is_wide: bool = False) -> tuple[Facts, ...]:
        """What is said of a value that meets all of these, one for each way to meet them.

        is_wide: options of oneOf may overlap; otherwise each is made smaller until they do not.
        """
        key = (*(node.path for node in nodes), "wide" if is_wide else "")
        if key in self._ways:
            return self._ways[key]
        if key in self._open:
            raise NotRegular(key[0], "schemas whose recursion has something between")
        if len(self._open) >= MAX_NESTED:
            raise refuse(key[0], f"at most {MAX_NESTED} alternatives inside alternatives")
        self._open.add(key)
        try:
            self._ways[key] = self._unfold(nodes, (), is_wide)
        finally:
            self._open.discard(key)
        return self._ways[key]

    def _unfold(self, nodes: All, above: tuple[str, ...], is_wide: bool) -> tuple[Facts, ...]:
        """Meet what all say; `above` are places whose alternatives are being unfolded."""
        facts, groups, seen = Facts(), list[tuple[Node, str]](), set[str]()
        todo = list(nodes)
        while todo:
            node = todo.pop(0)
            self.step(node.path)
            if node.path in seen or node.schema is True:
                continue
            if isinstance(node.schema, bool):
                return ()
            seen.add(node.path)
            if "$ref" in node.schema and self._is_lone_ref(node):
                todo.insert(0, self._target(node, "$ref"))
                continue
            with located(node.path):
                facts = facts.meet(self._read(node))
            self.step(node.path, _size(facts) // 10)
            targets = [self._target(node, word) for word in REFERENCES if word in node.schema]
            todo = [*targets, *applied(node, "allOf"), *todo]
            groups += [(node, word) for word in ("anyOf", "oneOf") if word in node.schema]
        return self._spread(facts, groups, above, is_wide)

    def _spread(
        self, facts: Facts, groups: list[tuple[Node, str]], above: tuple[str, ...], is_wide: bool
    ) -> tuple[Facts, ...]:
        ways: tuple[Facts, ...] = (facts,)
        for node, word in groups:
            path = f"{node.path}/{word}"
            if path in above:
                raise NotRegular(path, "schemas whose recursion has something between")
            if len(above) >= MAX_NESTED:
                raise refuse(path, f"at most {MAX_NESTED} alternatives inside alternatives")
            nodes, inside = applied(node, word), (*above, path)
            found = [self._unfold((option,), inside, is_wide) for option in nodes]
            if len(ways) * sum(map(len, found)) > MAX_WAYS:
                raise refuse(path, f"at most {MAX_WAYS} combinations of alternatives")
            with located(path):
                chosen = [[way.meet(facts) for way in ways for facts in option] for option in found]
                if word == "oneOf" and not is_wide:
                    others = [self._unfold((option,), inside, True) for option in nodes]
                    chosen = [self._alone(chosen[i], i, others, path) for i in range(len(nodes))]
            ways = tuple(way for option in chosen for way in option if way.types != ())
        return ways

    def _alone(
        self, ways: list[Facts], i: int, options: list[tuple[Facts, ...]], path: str
    ) -> list[Facts]:
        """The ways that take option `i`, made smaller so that no other option holds too."""
        for other in (facts for j, option in enumerate(options) if j != i for facts in option):
            self.step(path, 1 + len(ways))
            smaller = [parted(way, other, self.unfold) for way in ways]
            if None in smaller:
                raise refuse(path, "options of which it is plain that no value meets two; or anyOf")
            ways = [way for way in smaller if way is not None]
        return ways

    def _read(self, node: Node) -> Facts:
        if node.path not in self._facts:
            self._facts[node.path] = read(node)
        return self._facts[node.path]

    def step(self, path: str, cost: int = 1) -> None:
        """Count what is done. Raises InvalidCall where it is too much."""
        self._num_steps += cost
        if self._num_steps > MAX_STEPS:
            raise refuse(path, f"schemas that are read in {MAX_STEPS} steps")
        if thread_time() > self._ends_at:
            allowed = f"schemas that are read in {self._seconds} s of processor time"
            raise TooSlow(FIELD, path, allowed)

    def _is_lone_ref(self, node: Node) -> bool:
        assert isinstance(node.schema, Mapping)
        return has_lone_ref(node.schema, self._references.draft(node.path))

    def _target(self, node: Node, keyword: str) -> Node:
        """The place to which a reference leads."""
        try:
            return self._references.target(node, keyword)
        except Unreadable as error:
            raise refuse(f"{node.path}/{keyword}", str(error)) from None


def _size(facts: Facts) -> int:
    """How much was copied to say this."""
    properties = () if facts.objects is None else facts.objects.properties
    return len(properties) + len(facts.values or ())
