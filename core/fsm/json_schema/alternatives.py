"""The alternatives of a schema object: anyOf, oneOf, if, dependencies, and what `not` leaves.

Each is a list of options, of which a value meets at least one. Knows nothing of how an option is
read or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import combinations
from typing import Any, NamedTuple

from ...api.dialects import ANNOTATIONS, DRAFT_3, KNOWN
from ..regex.errors import derived
from .complement import absent, complement, const_node
from .facts import All, Facts, Literal, Node, Objects
from .keywords import Subschema, applied
from .patterns.spelling import value_key

MAX_PAIRED = 6  # options of a negated oneOf
RESTRICTIONS = (KNOWN | DRAFT_3) - ANNOTATIONS
DEPENDENCIES = ("dependencies", "dependentRequired", "dependentSchemas")


class Option(NamedTuple):
    """What a value meets that takes this option."""

    facts: Facts
    nodes: All = ()


class Group(NamedTuple):
    """Options of which a value meets at least one; where `is_one` is set, exactly one.

    key: identifies the group; `errors.shown` gives its JSON pointer.
    is_silent: no option evaluates properties or items.
    stricter: the option that requires more, of those where something holds only under a condition.
    """

    key: str
    options: tuple[Option, ...]
    is_one: bool = False
    is_silent: bool = False
    stricter: int | None = None


def groups_of(node: Node, is_wide: bool, has_const: bool = True) -> list[Group]:
    """The alternatives that a schema object applies to a value.

    is_wide: no value that the schema allows may be missing from them. has_const: whether the draft
    knows `const`.
    """
    assert isinstance(node.schema, Mapping)
    found: list[Group] = []
    for word, is_one in (("anyOf", False), ("oneOf", True)):
        if word in node.schema:
            nodes = _merged(applied(node, word), is_one, has_const)
            options = tuple(Option(Facts(), (option,)) for option in nodes)
            found.append(Group(f"{node.path}/{word}", options, is_one))
    sub = Subschema(node.schema, node.path)
    return [*found, *_conditions(sub, is_wide), *_dependencies(sub)]


def _merged(options: list[Node], is_one: bool, has_const: bool) -> list[Node]:
    """The options, those that only list values as one, which is read once instead of each."""
    words = ({"enum"}, {"const"}) if has_const else ({"enum"},)
    listing = [node for node in options if _words(node) in words]
    values = [value for node in listing for value in _listed(node)]
    if len(listing) < 2 or (is_one and len({*map(value_key, values)}) < len(values)):
        return options
    merged = Node({"enum": values}, derived(listing[0].path, "listed"))
    paths = {node.path for node in listing[1:]}
    kept = [node for node in options if node.path not in paths]
    return [merged if node.path == listing[0].path else node for node in kept]


def _words(node: Node) -> Set[str]:
    """The keywords of an option that only lists values; none of any other."""
    if not isinstance(node.schema, Mapping):
        return frozenset()
    words = node.schema.keys() & RESTRICTIONS
    has_texts = node.schema.get("type") == "string" and all(
        isinstance(value, str) for value in _listed(node)
    )
    words = words - {"type"} if has_texts else words
    is_plain = all(value is None or isinstance(value, str | int | float) for value in _listed(node))
    is_listed = words == {"const"} or isinstance(node.schema.get("enum"), list | tuple)
    return words if is_listed and is_plain else frozenset()


def _listed(node: Node) -> list[Any]:
    assert isinstance(node.schema, Mapping)
    values = node.schema.get("enum", ())
    found = list(values) if isinstance(values, list | tuple) else []
    return [*found, node.schema["const"]] if "const" in node.schema else found


def exclusive(group: Group) -> str:
    """What is expected of oneOf where every value that meets one option may meet another."""
    schemas = [node.schema for option in group.options for node in option.nodes]
    if all(isinstance(it, Mapping) and it.keys() & RESTRICTIONS == {"required"} for it in schemas):
        return (
            "options of which a value can meet exactly one: names that are not all required beside"
            " oneOf; or anyOf"
        )
    return "options of which a value can meet exactly one, such as by a constant; or anyOf"


def is_misjudged(ways: tuple[Facts, ...], found: list[list[Facts]]) -> bool:
    """Whether types are known of all ways, and all options are of other ones: perhaps these were
    inferred from keywords."""
    kinds = {kind for way in ways for kind in way.types or ("",)}
    options = [facts for option in found for facts in option]
    if not options or "" in kinds or not kinds:
        return False
    kinds |= {"number", "integer"} if kinds & {"number", "integer"} else set()
    return all(facts.types is not None and kinds.isdisjoint(facts.types) for facts in options)


def typed(ways: tuple[Facts, ...], group: Group) -> list[Option]:
    """The options of a group for values of the types of these ways."""
    kinds = [*dict.fromkeys(kind for way in ways for kind in way.types or ())]
    node = Node({"type": kinds}, derived(group.key, " ".join(kinds)))
    return [Option(it.facts, (node, *it.nodes) if it.nodes else ()) for it in group.options]


def negation(node: Node, facts: Facts, targets: list[Node]) -> Group:
    """The values that do not meet a schema object, as far as that can be expressed.

    facts: of its own keywords. targets: where its references lead.
    """
    assert isinstance(node.schema, Mapping)
    key = derived(node.path, "not")
    if targets:  # some drafts ignore what stands beside a reference
        return Group(
            key, tuple(Option(Facts(), (target.negated(),)) for target in targets), is_silent=True
        )
    schema, sub = node.schema, Subschema(node.schema, node.path)
    found = [Option(facts) for facts in complement(facts, node.path)]
    found += _other_containers(facts.values or (), node.path)
    found += [Option(Facts(), (part.negated(),)) for part in applied(node, "allOf")]
    options = applied(node, "anyOf")
    found += [Option(Facts(), tuple(n.negated() for n in options))] if options else []
    if "oneOf" in schema:
        found += _not_one(applied(node, "oneOf"))
    if "not" in schema:
        found.append(Option(Facts(), (sub.node("not"),)))
    if "if" in schema:
        test = sub.node("if")
        found += [
            Option(Facts(), (test if is_met else test.negated(), sub.node(word).negated()))
            for word, is_met in (("then", True), ("else", False))
            if word in schema
        ]
    return Group(key, tuple(found), is_silent=True)


def _conditions(sub: Subschema, is_wide: bool) -> Iterator[Group]:
    schema = sub.schema
    if "if" not in schema or not schema.keys() & {"then", "else"}:
        return
    test = sub.node("if")
    kind = _kind(sub)
    then = (*kind, test, *((sub.node("then"),) if "then" in schema else ()))
    other = (sub.node("else"),) if "else" in schema else ()
    refused = () if is_wide else (test.negated(),)
    options = (Option(Facts(), then), Option(Facts(), (*kind, *refused, *other)))
    yield Group(sub.at("if"), options, stricter=0)


def _kind(sub: Subschema) -> All:
    """The type that is stated beside a condition, so that none is inferred from keywords inside."""
    if "type" not in sub.schema:
        return ()
    return (Node({"type": sub.schema["type"]}, derived(sub.path, "type")),)


def _dependencies(sub: Subschema) -> Iterator[Group]:
    """A property is absent, or there with what depends on it."""
    for word in DEPENDENCIES:
        for name in sub.named_parts(word):
            value = sub.schema[word][name]
            path = sub.at(word, name)
            names: tuple[str, ...] = ()
            nodes: All = ()
            if isinstance(value, list | tuple) and word != "dependentSchemas":
                names = sub.names(word, name)
            else:
                nodes = (sub.node(word, name),)
            if not names and value in ([], (), True, {}):
                continue
            present = Objects(required=tuple(dict.fromkeys((name, *names))))
            without = Option(Facts(objects=absent(name, path)))
            yield Group(path, (without, Option(Facts(objects=present), nodes)), stricter=1)


def _not_one(options: list[Node]) -> Iterator[Option]:
    """None of the options, or two of them."""
    yield Option(Facts(), tuple(node.negated() for node in options))
    if len(options) <= MAX_PAIRED:
        yield from (Option(Facts(), pair) for pair in combinations(options, 2))


def _other_containers(values: tuple[Literal, ...], path: str) -> Iterator[Option]:
    """Objects and arrays that are none of those listed."""
    for kind in ("array", "object"):
        listed: list[Any] = [value.value for value in values if value.kind == kind]
        nodes = [const_node(value, derived(path, f"{kind} {i}")) for i, value in enumerate(listed)]
        if nodes:
            yield Option(Facts(types=(kind,)), tuple(node.negated() for node in nodes))
