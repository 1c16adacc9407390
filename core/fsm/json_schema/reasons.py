"""Why no value is known to meet a schema: the place of the error, and what is expected there.

Knows nothing of how a schema is read: whoever finds a reason adds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...api.protocol import InvalidCall
from ..regex.errors import refuse, shown, value_at
from .facts import Node, Objects

MAX_VISITED = 1_000
LISTS = ("allOf", "anyOf", "oneOf")
SINGLE = ("if", "then", "else")
CLOSING = ("/additionalProperties", "/unevaluatedProperties")
_NO_COMPLEMENT = (
    *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"),
    *("dependencies", "dependentRequired", "dependentSchemas", "unevaluatedItems", "format"),
)
_APPLIED = re.compile(r"(?:/(?:not|if|then|else|unevaluated\w+|(?:all|any|one)Of/\d+))+$")


class Reason(NamedTuple):
    """What is expected at a pointer. needs: or where `required` has this name, in the schemas at
    these pointers."""

    pointer: str
    allowed: str
    needs: tuple[str, Sequence[str]] | None = None


class Reasons:
    """The known reasons of one document. root: its schema."""

    def __init__(self, root: Mapping[str, Any] | bool) -> None:
        self._root = root
        self._certain: dict[str, Reason] = {}
        self._possible: dict[str, Reason] = {}

    def add(self, pointer: str, allowed: str) -> None:
        """No value meets the schema at `pointer`, for this reason."""
        self._certain[pointer] = Reason(pointer, allowed)

    def add_closed(self, pointers: Sequence[str], objects: Objects) -> None:
        """No value meets the schemas at `pointers`, which say this of objects: perhaps because a
        name is required that no keyword allows."""
        for name in objects.required:
            for node in objects.properties.get(name, objects.rest or ()):
                closing = shown(node.path)
                if closing.endswith(CLOSING) and node.schema is False and not node.is_not:
                    allowed = f"required names that {closing} allows ({name!r} is not in properties"
                    reason = Reason(pointers[0], f"{allowed} beside it)", (name, pointers))
                    self._certain[pointers[0]] = reason
                    return

    def leave_out(self, pointer: str, allowed: str) -> None:
        """Values may be missing because of what is at `pointer`."""
        pointer = shown(pointer)
        self._possible.setdefault(_APPLIED.sub("", pointer), Reason(pointer, allowed))

    def refusal(self, pointers: Iterable[str]) -> InvalidCall:
        """The error for a schema that no value meets. pointers: all such ones, outer last."""
        found, reason = "#", None
        for pointer in reversed([*pointers]):
            place = shown(pointer)
            is_inside = place == found or place.startswith(f"{found}/")
            if is_inside and (reason is None or pointer in self._certain):
                found, reason = place, self._certain.get(pointer)
        for place in self._referred(found) if reason is None else ():
            reason = reason or self._possible.get(_APPLIED.sub("", place))
        if reason is None:
            return refuse(found, "a schema that at least one value satisfies")
        if reason.needs is None:
            return refuse(reason.pointer, reason.allowed)
        name, inside = reason.needs
        return refuse(self._pointer_to_required(inside, name) or reason.pointer, reason.allowed)

    def _pointer_to_required(self, pointers: Iterable[str], name: str) -> str | None:
        """Where `required` lists a name, in the schemas at these pointers or in what they apply."""
        for pointer in pointers:
            for place in self._applied(shown(pointer)):
                schema = self._at(place)
                names = schema.get("required") if schema is not None else None
                if isinstance(names, list | tuple) and name in names:
                    return f"{place}/required"
        return None

    def _applied(self, pointer: str) -> Iterator[str]:
        """A schema's pointer, and those of all that it applies to the same value."""
        found = [pointer]
        for place in found:  # grows
            yield place
            schema = self._at(place)
            if schema is None or len(found) > MAX_VISITED:
                continue
            more = [f"{place}/{word}" for word in SINGLE if word in schema]
            for word in LISTS:
                options = schema.get(word)
                length = len(options) if isinstance(options, list | tuple) else 0
                more += [f"{place}/{word}/{i}" for i in range(length)]
            more += [*self._referred(place)][1:]
            found += [it for it in dict.fromkeys(more) if it not in found]

    def _referred(self, pointer: str) -> Iterator[str]:
        """A schema's pointer, and the one that it refers to, and so on."""
        seen = set[str]()
        while pointer not in seen:
            yield pointer
            seen.add(pointer)
            schema = self._at(pointer)
            target = None if schema is None else schema.get("$ref")
            if isinstance(target, str) and target.startswith("#"):
                pointer = target

    def _at(self, pointer: str) -> Mapping[str, Any] | None:
        try:
            schema = value_at(self._root, pointer)
        except (LookupError, ValueError):
            return None
        return schema if isinstance(schema, Mapping) else None


def without_complement(node: Node) -> list[str]:
    """The keywords of a schema object whose complement is not expressed."""
    schema = node.schema
    assert isinstance(schema, Mapping)
    found = [word for word in _NO_COMPLEMENT if schema.get(word) not in (None, True, {}, ())]
    found += ["uniqueItems"] if schema.get("uniqueItems") is True else []
    return found + (["items"] if "prefixItems" in schema and "items" in schema else [])
