"""Objects of which it is plain that there are none: a property that they need can have no value,
by its constants and lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .facts import All, Facts
from .patterns.spelling import value_key

SILENT = frozenset(("title", "description", "$comment", "default", "examples"))


def without_contradictions(
    ways: Iterable[Facts], known: dict[tuple[str, ...], bool]
) -> list[Facts]:
    """The ways of which it is not plain that no value meets them. known: a cache; grows."""
    return [facts for facts in ways if not _is_plain(facts, known)]


def excludes_texts(schema: Mapping[str, Any]) -> bool:
    """Whether a schema lists texts and says nothing else, so that its complement is exact."""
    words = schema.keys() - SILENT
    if words not in ({"enum"}, {"const"}):
        return False
    listed = [schema["const"]] if "const" in words else schema["enum"]
    return isinstance(listed, list | tuple) and all(isinstance(value, str) for value in listed)


def _is_plain(facts: Facts, known: dict[tuple[str, ...], bool]) -> bool:
    objects = facts.objects
    if objects is None or facts.types != ("object",):
        return False
    for name in objects.required:
        nodes = objects.properties.get(name, ())
        key = tuple(node.key for node in nodes)
        if len(nodes) > 1 and key not in known:
            known[key] = _is_never(nodes)
        if len(nodes) > 1 and known[key]:
            return True
    return False


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
