"""Objects of which it is plain that there are none: a property that they need can have no value,
by its constants and lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .facts import All, Facts
from .patterns.spelling import value_key

SILENT = frozenset(("title", "description", "$comment", "default", "examples"))


class Contradictions:
    """Finds them, with a cache."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], bool] = {}

    def kept(self, ways: Iterable[Facts]) -> list[Facts]:
        """The ways of which it is not plain that no value meets them."""
        return [facts for facts in ways if not self._is_plain(facts)]

    def _is_plain(self, facts: Facts) -> bool:
        objects = facts.objects
        if objects is None or facts.types != ("object",):
            return False
        required_nodes = (objects.properties.get(name, ()) for name in objects.required)
        return any(len(nodes) > 1 and self._is_never(nodes) for nodes in required_nodes)

    def _is_never(self, nodes: All) -> bool:
        key = tuple(node.key for node in nodes)
        if key not in self._known:
            self._known[key] = _is_never(nodes)
        return self._known[key]


def _is_never(nodes: All) -> bool:
    """Whether no value is in all lists of allowed values and in none of those excluded."""
    allowed: set[str] | None = None
    excluded = set[str]()
    for node in nodes:
        values = _values(node.schema, node.is_not)
        if values is None:
            continue
        if node.is_not:
            excluded |= values
        else:
            allowed = values if allowed is None else allowed & values
    return allowed is not None and not allowed - excluded


def _values(schema: Any, is_not: bool) -> set[str] | None:
    """The values that a schema lists; None where it lists none or, to be excluded, says more."""
    if not isinstance(schema, Mapping) or "$ref" in schema:
        return None
    if is_not and len(schema.keys() - SILENT) != 1:
        return None
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list | tuple):
        return None
    try:
        return {value_key(value) for value in listed}
    except (TypeError, ValueError, RecursionError):
        return None
