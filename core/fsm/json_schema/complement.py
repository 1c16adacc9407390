"""The values that do not meet a schema's facts, as far as that can be expressed.

Every complement here is a part of the true one: inexpressible ones are left out, so that no value
in it meets the original. Knows nothing of references or of how facts become a pattern.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ..regex.errors import derived
from .facts import All, Arrays, Contains, Facts, Literal, Node, Numbers, Objects, Strings
from .patterns.intervals import Interval

PLAIN_TYPES = ("object", "array", "string", "number", "boolean", "null")
MAX_POINTS = 64  # numbers that are excluded one by one
INTEGERS = Numbers(unlike=(Fraction(1),))


def complement(facts: Facts, path: str) -> list[Facts]:
    """Facts of values that do not meet these facts, one for each way.

    path: of the schema that the facts were read from.
    """
    found: list[Facts] = []
    if facts.types is not None:
        found += _without_types(facts.types)
    if facts.values is not None:
        found += _without_values(facts.values, path)
    if facts.numbers is not None:
        found += [Facts(types=("number",), numbers=n) for n in _numbers(facts.numbers)]
    if facts.strings is not None:
        found += [Facts(types=("string",), strings=s) for s in _strings(facts.strings)]
    if facts.arrays is not None:
        found += [Facts(types=("array",), arrays=a) for a in _arrays(facts.arrays)]
    if facts.objects is not None:
        found += [Facts(types=("object",), objects=o) for o in _objects(facts.objects, path)]
    return found


def absent(name: str, path: str) -> Objects:
    """The objects without a property. path: of the schema that says so."""
    never = Node(False, derived(path, f"absent {name}"))
    return Objects(properties={name: (never,)}, unseen=frozenset((name,)))


def const_node(value: Any, path: str) -> Node:
    """The node of one object or array, keyword by keyword, so that it has a complement."""
    if isinstance(value, Mapping):
        properties = {name: {"const": part} for name, part in value.items()}
        schema = {"required": [*value], "properties": properties, "maxProperties": len(value)}
        return Node({"type": "object", **schema}, path)
    items = [{"const": part} for part in value]
    schema = {"minItems": len(items), "maxItems": len(items)}
    return Node({"type": "array", **schema, **({"prefixItems": items} if items else {})}, path)


def _without_types(types: tuple[str, ...]) -> list[Facts]:
    rest = tuple(name for name in PLAIN_TYPES if name not in types)
    if "integer" not in types:
        return [Facts(types=rest)] if rest else []
    others = tuple(name for name in rest if name != "number")
    found = [Facts(types=others)] if others else []
    return [*found, Facts(types=("number",), numbers=INTEGERS)] if "number" in rest else found


def _without_values(values: Sequence[Literal], path: str) -> list[Facts]:
    """All kinds of values that are not listed, and of those that are, what is left."""
    by_kind: dict[str, list[Literal]] = {}
    for value in values:
        kind = "number" if value.kind == "integer" else value.kind
        by_kind.setdefault(kind, []).append(value)
    rest = tuple(name for name in PLAIN_TYPES if name not in by_kind)
    found = [Facts(types=rest)] if rest else []
    texts = tuple(value.value for value in by_kind.get("string", ()))
    if texts:
        found.append(Facts(types=("string",), strings=Strings(others=texts)))
    flags = {value.value for value in by_kind.get("boolean", ())}
    if len(flags) == 1:
        other = not next(iter(flags))
        literal = Literal("boolean", "true" if other else "false", other)
        found.append(Facts(values=(literal,)))
    points = sorted({Decimal(value.text) for value in by_kind.get("number", ())})
    if points and len(points) <= MAX_POINTS:
        found += [Facts(types=("number",), numbers=Numbers(gap)) for gap in _gaps(points)]
    return found


def _gaps(points: Sequence[Decimal]) -> list[Interval]:
    """The numbers between these."""
    lows, highs = (None, *points), (*points, None)
    return [
        Interval(low, high, low is not None, high is not None)
        for low, high in zip(lows, highs, strict=True)
    ]


def _numbers(numbers: Numbers) -> list[Numbers]:
    """Formats are left out: one reader checks them, another does not."""
    bounds, found = numbers.interval, list[Numbers]()
    if bounds.low is not None:
        found.append(Numbers(Interval(high=bounds.low, is_high_open=not bounds.is_low_open)))
    if bounds.high is not None:
        found.append(Numbers(Interval(low=bounds.high, is_low_open=not bounds.is_high_open)))
    if numbers.multiple is not None:
        found.append(Numbers(unlike=(numbers.multiple,)))
    return found


def _strings(strings: Strings) -> list[Strings]:
    found = [Strings(high=strings.low - 1)] if strings.low else []
    found += [Strings(low=strings.high + 1)] if strings.high is not None else []
    found += [Strings(unlike=(source,)) for source in strings.patterns]
    return [*found, *(Strings(patterns=(source,)) for source in strings.unlike)]


def _arrays(arrays: Arrays) -> list[Arrays]:
    found = [Arrays(high=arrays.low - 1)] if arrays.low else []
    found += [Arrays(low=arrays.high + 1)] if arrays.high is not None else []
    for i, nodes in enumerate(arrays.prefix):
        found += [Arrays(((),) * i + ((node,),), low=i + 1) for node in _negated(nodes)]
    if arrays.rest and not arrays.prefix:
        found += [Arrays(contains=(Contains((node,)),)) for node in _negated(arrays.rest)]
    for nodes, low, high in arrays.contains:
        if low == 1 and len(nodes) == 1:
            found.append(Arrays(rest=tuple(_negated(nodes))))
        elif low > 1:
            found.append(Arrays(contains=(Contains(nodes, 0, low - 1),)))
        if high is not None:
            found.append(Arrays(contains=(Contains(nodes, high + 1),)))
    return found


def _objects(objects: Objects, path: str) -> list[Objects]:
    """Patterns, other properties and names are left out: which names to write is not said."""
    found: list[Objects] = []
    for name in dict.fromkeys((*objects.required, *objects.properties)):
        nodes = _negated(objects.properties.get(name, ()))
        is_required = name in objects.required
        unseen = frozenset((name,))
        if is_required and len(nodes) == 1:  # absent, or there with another value
            found.append(Objects({name: (nodes[0],)}, unseen=unseen))
            continue
        found += [absent(name, path)] if is_required else []
        found += [Objects({name: (node,)}, required=(name,), unseen=unseen) for node in nodes]
    found += [Objects(high=objects.low - 1)] if objects.low else []
    found += [Objects(low=objects.high + 1)] if objects.high is not None else []
    return found


def _negated(nodes: All) -> list[Node]:
    """For each of the nodes, that of all values that do not meet it, where there are any."""
    return [it.negated() for it in nodes if it.is_not or not (it.schema is True or it.schema == {})]
