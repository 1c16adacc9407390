"""JSON Schema, as Pydantic writes it, as a pattern of the values in one spelling.

Everything becomes regular: what refers to itself is unfolded a few times, and "any value" is one
that is nested a little. All fields are written, those with a default too. A branch that cannot be
said is left out where there is another; else the schema is refused with `UnsupportedSchema`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from ....core.api.protocol import InvalidCall
from ....core.fsm.json_schema.facts import All, Arrays, Facts, Node, Numbers, Objects, Strings
from ....core.fsm.json_schema.keywords import applied, read
from ....core.fsm.json_schema.patterns.formats import FREE
from ....core.fsm.json_schema.references import References
from ....core.fsm.regex.errors import InvalidSchema
from .scalars import FORMATS, FREE_NUMBER, integers, multiples, numbers
from .spelling import MOST_ITEMS, Json, UnsupportedSchema

MOST_UNFOLDED = 2  # times that a definition is written inside of itself
ANY_DEPTH = 2
_LINE = Json()
_SAFE = re.compile(r"(?:[A-Za-z0-9 _@:;,/#%=~-]|\\[dw.+*?()|^$-]|[()|?*+]|\{\d+(?:,\d*)?\}|"
                   r"\[(?:[A-Za-z0-9 _@:;,./#%=~+*-]|\\[dw.-])+\])*")  # fmt: skip


class Writer:
    """Writes the schemas of one document. Methods give None where no value can be written.

    spelling: JSON on one line unless another one is given.
    """

    def __init__(self, document: Mapping[str, Any], spelling: Json = _LINE) -> None:
        self.root = Node(document, "#")
        self._references = References(self.root)
        self._spelling = spelling
        self._open: list[str] = []

    def pattern(self, depth: int = 0) -> str:
        """The values of the document. Raises UnsupportedSchema."""
        found = self.write(self.root, depth)
        if found is None:
            raise UnsupportedSchema("a schema that no value of bounded depth meets")
        return found

    def write(self, node: Node, depth: int) -> str | None:
        """The values of a schema that is part of the document."""
        if isinstance(node.schema, bool):
            return self.anything(depth) if node.schema else None
        target, facts = self.target(node), self.facts(node)
        if target is not node:
            return self._referred(target, depth)
        if facts.values is not None:
            return _any([self._spelling.constant(it.value, depth) for it in facts.values])
        if branches := applied(node, "anyOf") or applied(node, "oneOf"):
            return self._either([partial(self.write, it, depth) for it in branches])
        if parts := applied(node, "allOf"):
            if len(parts) > 1:
                raise UnsupportedSchema("allOf of several schemas")
            return self.write(parts[0], depth)
        if facts.types is None:
            return self.anything(depth)
        return self._either([partial(self._typed, it, facts, node, depth) for it in facts.types])

    def target(self, node: Node) -> Node:
        """Where the reference of a schema leads; the schema itself where it has none."""
        if isinstance(node.schema, bool) or "$ref" not in node.schema:
            return node
        try:
            return self._references.target(node, "$ref")
        except InvalidSchema:
            raise UnsupportedSchema(f"the reference {node.schema['$ref']}") from None

    def facts(self, node: Node) -> Facts:
        """What the keywords of a schema say."""
        try:
            return Facts() if isinstance(node.schema, bool) else read(node)
        except InvalidCall as error:
            raise UnsupportedSchema(str(error)) from None

    def anything(self, depth: int, rest: int = ANY_DEPTH) -> str:
        """Any value, nested at most so deep."""
        spelling = self._spelling
        ways = [spelling.text(0, None), FREE_NUMBER, spelling.true, spelling.false, spelling.null]
        if rest:
            inner = self.anything(depth + 1, rest - 1)
            ways.append(spelling.repeated(inner, depth, 0, None))
            ways.append(spelling.mapping(inner, depth, True))
        return f"(?:{'|'.join(ways)})"

    def _referred(self, target: Node, depth: int) -> str | None:
        if self._open.count(target.path) > MOST_UNFOLDED:
            return None
        self._open.append(target.path)
        found = self.write(target, depth)
        self._open.pop()
        return found

    def _either(self, branches: Sequence[Callable[[], str | None]]) -> str | None:
        ways, refused = list[str | None](), list[UnsupportedSchema]()
        for branch in branches:
            num_open = len(self._open)
            try:
                ways.append(branch())
            except UnsupportedSchema as error:
                del self._open[num_open:]
                refused.append(error)
        if refused and not any(way is not None for way in ways):
            raise refused[0]
        return _any(ways)

    def _typed(self, kind: str, facts: Facts, node: Node, depth: int) -> str | None:
        match kind:
            case "object":
                return self._object(facts.objects or Objects(), depth)
            case "array":
                return self._array(facts.arrays or Arrays(), depth)
            case "string":
                return self.string(node, facts)
            case "boolean":
                return f"(?:{self._spelling.true}|{self._spelling.false})"
            case "null":
                return self._spelling.null
        return _number(kind, facts.numbers or Numbers())

    def _object(self, objects: Objects, depth: int) -> str | None:
        if not objects.properties:
            return self._mapping(objects, depth)
        fields = list[tuple[str, str]]()
        for name, nodes in objects.properties.items():
            written = self.write(nodes[0], depth + 1)
            if written is None and name in objects.required:
                return None
            if written is not None:
                fields.append((name, written))
        return self._spelling.record(fields, depth)

    def _mapping(self, objects: Objects, depth: int) -> str | None:
        inner = self._rest(objects.rest, depth)
        if objects.low > 1 or objects.high is not None:
            raise UnsupportedSchema("numbers of properties")
        if inner is None:
            return self._spelling.record([], depth) if objects.low == 0 else None
        return self._spelling.mapping(inner, depth, objects.low == 0)

    def _array(self, arrays: Arrays, depth: int) -> str | None:
        if arrays.prefix:
            items = [self.write(nodes[0], depth + 1) for nodes in arrays.prefix]
            patterns = [item for item in items if item is not None]
            return self._spelling.array(patterns, depth) if len(patterns) == len(items) else None
        if arrays.low > MOST_ITEMS:
            raise UnsupportedSchema(f"lists of more than {MOST_ITEMS} items")
        if arrays.is_unique and arrays.low > 1:
            raise UnsupportedSchema("several items that differ")
        item = self._rest(arrays.rest, depth)
        if item is None:
            return self._spelling.array([], depth) if arrays.low == 0 else None
        return self._spelling.repeated(item, depth, arrays.low, arrays.high)

    def _rest(self, nodes: All | None, depth: int) -> str | None:
        return self.write(nodes[0], depth + 1) if nodes else self.anything(depth + 1)

    def string(self, node: Node, facts: Facts) -> str:
        """The strings of which a schema says this."""
        assert isinstance(node.schema, Mapping)
        if "pattern" in node.schema:
            return self._spelling.quoted(_decoded(node.schema["pattern"]))
        if (name := node.schema.get("format")) in FORMATS:
            return self._spelling.quoted(FORMATS[name])
        if name is not None and name not in FREE:
            raise UnsupportedSchema(f"the format {name!r}")
        strings = facts.strings or Strings()
        return self._spelling.text(strings.low, strings.high)


def _number(kind: str, said: Numbers) -> str | None:
    if said.multiple is not None:
        step = Decimal(said.multiple.numerator) / said.multiple.denominator
        return multiples(said.interval, step)
    return integers(said.interval) if kind == "integer" else numbers(said.interval)


def _decoded(pattern: str) -> str:
    """A pattern of whole texts without a character that a spelling would have to escape."""
    inner = pattern.removeprefix("^").removesuffix("$")
    if len(inner) + 2 != len(pattern) or not _SAFE.fullmatch(inner):
        raise UnsupportedSchema(f"the pattern {pattern!r}")
    return inner


def _any(ways: Sequence[str | None]) -> str | None:
    patterns = list(dict.fromkeys(way for way in ways if way is not None))
    return f"(?:{'|'.join(patterns)})" if patterns else None
