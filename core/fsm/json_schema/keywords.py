"""One schema object, read keyword by keyword. Unsupported keywords are refused by name and place.

Knows nothing of references or of how facts become a pattern: parts of the schema are left as nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from ...api.dialects import TYPES, type_suggestion
from ..regex.errors import InvalidSchema, refuse
from .facts import (
    All,
    Arrays,
    Contains,
    Facts,
    Literal,
    Node,
    Numbers,
    Objects,
    Strings,
    check_matches,
    distinct,
    is_found,
)
from .patterns.formats import NUMBERS, is_known
from .patterns.intervals import Interval
from .patterns.lookaround import Parts, check_pattern, parts_of
from .patterns.spelling import kind_of, value_text

UNEVALUATED = frozenset(("unevaluatedProperties", "unevaluatedItems"))
NUMBER_WORDS = frozenset(
    ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
)
STRING_WORDS = frozenset(("minLength", "maxLength", "pattern"))
ARRAY_WORDS = frozenset(
    (
        *("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"),
        *("contains", "minContains", "maxContains"),
    )
)
OBJECT_WORDS = frozenset(
    (
        *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
        *("minProperties", "maxProperties"),
    )
)
MAX_COUNT = 10**9
UNREACHED = 10**8  # no answer is as long: an upper limit above it limits nothing


class Subschema(NamedTuple):
    """A schema object and its path."""

    schema: Mapping[str, Any]
    path: str

    def at(self, *keys: str | int) -> str:
        """The pointer to something below."""
        steps = (str(key).replace("~", "~0").replace("/", "~1") for key in keys)
        return "/".join((self.path, *steps))

    def refuse(self, keyword: str, allowed: str) -> Exception:
        """The error for this keyword."""
        return refuse(self.at(keyword), allowed)

    def node(self, *keys: str | int) -> Node:
        """The schema below these keys. Raises InvalidCall where there is none."""
        schema: Any = self.schema
        for key in keys:
            schema = schema[key]
        if not isinstance(schema, Mapping | bool):
            raise refuse(self.at(*keys), "a schema: a mapping, or true or false")
        return Node(schema, self.at(*keys))

    def nodes(self, keyword: str) -> list[Node]:
        """The schemas of a list that is not empty."""
        value = self.schema[keyword]
        if not isinstance(value, list | tuple) or not value:
            raise self.refuse(keyword, "a list of at least one schema")
        return [self.node(keyword, i) for i in range(len(value))]

    def named(self, keyword: str) -> dict[str, All]:
        """The schemas of a mapping, by name."""
        names = self.named_parts(keyword, "a mapping of names to schemas")
        return {name: (self.node(keyword, name),) for name in names}

    def named_parts(self, keyword: str, expected: str = "a mapping of names") -> list[str]:
        """The names in a mapping; none where it is absent."""
        value = self.schema.get(keyword, {})
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise self.refuse(keyword, expected)
        return [*value]

    def names(self, *keys: str) -> tuple[str, ...]:
        """The names in a list, each once."""
        value: Any = self.schema
        for key in keys:
            value = value[key]
        if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
            raise refuse(self.at(*keys), "a list of names")
        return tuple(dict.fromkeys(value))

    def least(self, keyword: str, default: int) -> int:
        """The least number of things, as an integer."""
        value = self.schema.get(keyword, default)
        if kind_of(value) != "integer" or not 0 <= value <= MAX_COUNT:
            raise self.refuse(keyword, f"an integer from 0 to {MAX_COUNT}")
        return int(value)

    def most(self, keyword: str) -> int | None:
        """The largest number of things; None: no limit, or one above all that is ever written."""
        value: Any = self.schema.get(keyword)
        if value is None:
            return None
        if kind_of(value) != "integer" or value < 0:
            raise self.refuse(keyword, "an integer of at least 0")
        return None if value > UNREACHED else int(value)


def read(node: Node) -> Facts:
    """What the keywords of a schema object say, those aside that apply other schemas to the value.

    Raises InvalidCall for a keyword that is ill-formed or not supported.
    """
    assert isinstance(node.schema, Mapping)
    sub = Subschema(node.schema, node.path)
    if not all(isinstance(keyword, str) for keyword in sub.schema):
        raise refuse(sub.path, "keywords that are texts")
    words = sub.schema.keys() - ({"required"} if _is_flag(sub.schema) else ())
    return Facts(
        _types(sub) if "type" in words else None,
        _values(sub) if words & {"enum", "const"} else None,
        _numbers(sub) if words & NUMBER_WORDS or _format(sub) in NUMBERS else None,
        _strings(sub) if words & STRING_WORDS or _format(sub) not in (*NUMBERS, None) else None,
        _arrays(sub) if words & ARRAY_WORDS else None,
        _objects(sub) if words & OBJECT_WORDS else None,
    )


def applied(node: Node, keyword: str) -> list[Node]:
    """The schemas that allOf, anyOf or oneOf lists; none where it is absent."""
    if isinstance(node.schema, bool) or keyword not in node.schema:
        return []
    return Subschema(node.schema, node.path).nodes(keyword)


def excluded(node: Node) -> list[Node]:
    """The schema that `not` excludes, as a node that is negated."""
    assert isinstance(node.schema, Mapping)
    return [Subschema(node.schema, node.path).node("not").negated()] if "not" in node.schema else []


def sealed(facts: Facts, node: Node) -> Facts:
    """One way to meet a node, with the node's facts of properties and items that nothing in this
    way evaluates."""
    assert isinstance(node.schema, Mapping)
    sub = Subschema(node.schema, node.path)
    if "unevaluatedProperties" in node.schema:
        rest = (sub.node("unevaluatedProperties"),)
        facts = replace(facts, objects=_sealed_objects(facts.objects or Objects(), rest))
    if "unevaluatedItems" in node.schema:
        rest = (sub.node("unevaluatedItems"),)
        facts = replace(facts, arrays=_sealed_arrays(facts.arrays or Arrays(), rest))
    return facts


def _sealed_objects(objects: Objects, rest: All) -> Objects:
    if objects.is_derived:
        return objects.intersect(Objects(rest=rest))
    return replace(objects, rest=rest) if objects.rest is None else objects


def _sealed_arrays(arrays: Arrays, rest: All) -> Arrays:
    if arrays.is_derived:
        return arrays.intersect(Arrays(rest=rest))
    if arrays.rest is not None:
        return arrays
    seen, unseen = arrays.prefix[: arrays.num_seen], arrays.prefix[arrays.num_seen :]
    return replace(arrays, prefix=(*seen, *(distinct((*n, *rest)) for n in unseen)), rest=rest)


def _types(sub: Subschema) -> tuple[str, ...]:
    value = sub.schema["type"]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(name in TYPES for name in names):
        allowed = f"one of {', '.join(TYPES)}, or a list of these"
        raise sub.refuse("type", allowed + type_suggestion(value))
    return tuple(dict.fromkeys(names))


def _values(sub: Subschema) -> tuple[Literal, ...]:
    """The values of enum, or that of const where the two agree."""
    found = []
    if "enum" in sub.schema:
        values = sub.schema["enum"]
        if not isinstance(values, list | tuple):
            raise sub.refuse("enum", "a list of values")
        found.append(Facts(values=tuple(_literal(sub, "enum", value) for value in values)))
    if "const" in sub.schema:
        found.append(Facts(values=(_literal(sub, "const", sub.schema["const"]),)))
    values = found[0].intersect(found[-1]).values
    assert values is not None
    return tuple({literal.key: literal for literal in values}.values())


def _literal(sub: Subschema, keyword: str, value: Any) -> Literal:
    try:
        return Literal(kind_of(value), value_text(value), value)
    except InvalidSchema as error:
        raise sub.refuse(keyword, str(error)) from None


def _numbers(sub: Subschema) -> Numbers:
    name, numbers = _format(sub), Interval()
    for keyword in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        if keyword in sub.schema and not isinstance(sub.schema[keyword], bool):
            numbers = numbers.intersect(_bound(sub, keyword))
    return Numbers(numbers, _multiple(sub), (name,) if name and name in NUMBERS else ())


def _bound(sub: Subschema, keyword: str) -> Interval:
    """One bound; of draft 4 are those that a flag beside them leaves out."""
    limit = _number(sub, keyword)
    is_open = keyword.startswith("exclusive")
    is_low = keyword.endswith("inimum")
    is_open |= sub.schema.get("exclusiveMinimum" if is_low else "exclusiveMaximum") is True
    if is_low:
        return Interval(low=limit, is_low_open=is_open)
    return Interval(high=limit, is_high_open=is_open)


def _number(sub: Subschema, keyword: str) -> Decimal:
    value = sub.schema[keyword]
    is_float = isinstance(value, float)
    if kind_of(value) not in ("integer", "number") or (is_float and not math.isfinite(value)):
        raise sub.refuse(keyword, "a finite number")
    return Decimal(repr(value)) if is_float else Decimal(value)


def _multiple(sub: Subschema) -> Fraction | None:
    if "multipleOf" not in sub.schema:
        return None
    number = _number(sub, "multipleOf")
    if number <= 0:
        raise sub.refuse("multipleOf", "a number above 0")
    return Fraction(number)


def _format(sub: Subschema) -> str | None:
    name = sub.schema.get("format")
    return name if isinstance(name, str) and is_known(name) else None


def _check_pattern(pattern: object, pointer: str) -> None:
    if not isinstance(pattern, str):
        raise refuse(pointer, "a regular expression")
    try:
        check_pattern(pattern)
    except InvalidSchema as error:
        raise refuse(pointer, str(error)) from None


def _strings(sub: Subschema) -> Strings:
    pattern, name = sub.schema.get("pattern"), _format(sub)
    if pattern is not None:
        _check_pattern(pattern, sub.at("pattern"))
    found = Parts() if pattern is None else parts_of(pattern)
    return Strings(
        sub.least("minLength", 0),
        sub.most("maxLength"),
        found.found,
        () if name is None or name in NUMBERS else (name,),
        found.unlike,
    )


def _arrays(sub: Subschema) -> Arrays:
    schema = sub.schema
    has_list = isinstance(schema.get("items"), list | tuple)
    prefix = sub.nodes("prefixItems") if "prefixItems" in schema else []
    prefix = prefix or (sub.nodes("items") if has_list and schema["items"] else [])
    rest = "additionalItems" if has_list else "items"
    return Arrays(
        tuple((node,) for node in prefix),
        (sub.node(rest),) if rest in schema else None,
        sub.least("minItems", 0),
        sub.most("maxItems"),
        schema.get("uniqueItems") is True,
        _contains(sub),
    )


def _contains(sub: Subschema) -> tuple[Contains, ...]:
    """minContains and maxContains say nothing without `contains`."""
    if "contains" not in sub.schema:
        return ()
    low, high = sub.least("minContains", 1), sub.most("maxContains")
    return (Contains((sub.node("contains"),), low, high),)


def _is_flag(schema: Any, is_set: bool = False) -> bool:
    """Whether `required` says of a property whether the object that holds it needs it, as in draft
    3. is_set: whether it says so."""
    value = schema.get("required") if isinstance(schema, Mapping) else None
    return isinstance(value, bool) and (value or not is_set)


def _objects(sub: Subschema) -> Objects:
    schema = sub.schema
    is_listed = "required" in schema and not _is_flag(schema)
    required = sub.names("required") if is_listed else ()
    properties, patterns = sub.named("properties"), sub.named("patternProperties")
    flagged = [name for name in properties if _is_flag(schema["properties"][name], is_set=True)]
    check_matches(len(properties), len(patterns))
    for pattern, nodes in patterns.items():
        _check_pattern(pattern, sub.at("patternProperties", pattern))
        for name in properties:
            if is_found(pattern, name):
                properties[name] += nodes
    return Objects(
        properties,
        tuple(dict.fromkeys((*required, *flagged))),
        patterns,
        (sub.node("additionalProperties"),) if "additionalProperties" in schema else None,
        (sub.node("propertyNames"),) if "propertyNames" in schema else (),
        sub.least("minProperties", 0),
        sub.most("maxProperties"),
    )
