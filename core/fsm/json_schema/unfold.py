"""References and alternatives of a schema: a place in it becomes facts, one set for each way.

Only places that can be reached are read, and no more of them than a budget; references lead to
places in the same document. Of what a document says that is not available, nothing is known: no
value is known to meet it, and none not to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import thread_time
from typing import Any

from ...api.dialects import SINCE, draft_of, normalized
from ...api.protocol import InvalidCall
from ..regex.errors import (
    FIELD,
    InvalidSchema,
    NotRegular,
    UnsupportedSchema,
    derived,
    refuse,
)
from ..regex.limits import TooSlow
from .alternatives import Group, Option, exclusive, groups_of, is_misjudged, negation, typed
from .contradictions import excludes_texts, without_contradictions
from .facts import All, Facts, Node
from .keywords import UNEVALUATED, applied, excluded, read, sealed
from .members import parted
from .reasons import Reasons, without_complement
from .references import References, Unavailable

MAX_STEPS = 1_000_000
CHECK_EVERY = 16  # calls between two looks at the clock, which cost as much as a step
MAX_SECONDS = 8.0
MAX_WAYS = 2_000
MAX_PRODUCT = 40_000
MAX_COMPLEMENT = 500  # ways not to meet a schema, of more
FEW_CONDITIONS = 7  # of which all combinations are written
MAX_CONDITIONED = 64  # ways to meet more conditions
MAX_NESTED = 64
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


@contextmanager
def located(path: str) -> Iterator[None]:
    """Give the errors of deep rooms their place in the document."""
    try:
        yield
    except UnsupportedSchema as error:
        raise NotRegular(path, str(error)) from None
    except InvalidSchema as error:
        raise refuse(path, str(error)) from None


class Document:
    """A schema document and what was read of it.

    leaves_out: whether values that need a document that is not available are left out; otherwise
      they are refused. unavailable: the references that lead there, with what is expected.
      reasons: why no value meets a place, where that is known.
    """

    def __init__(
        self,
        schema: Mapping[str, Any] | bool,
        seconds: float = MAX_SECONDS,
        leaves_out: bool = False,
    ) -> None:
        if not isinstance(schema, Mapping | bool):
            raise refuse("#", "a schema: a mapping, or true or false")
        self.root = Node(schema, "#")
        self._num_steps = 0
        self._num_calls = 0
        self._ends_at = thread_time() + seconds
        self._seconds = seconds
        self._leaves_out = leaves_out
        self.unavailable: dict[str, str] = {}
        self.reasons = Reasons(schema)
        self._references = References(self.root)
        self._draft = draft_of(schema)
        self._contradictions: dict[tuple[str, ...], bool] = {}
        self._facts: dict[tuple[str, bool], Facts] = {}
        self._groups: dict[tuple[str, bool, bool], list[Group]] = {}
        self._open: set[tuple[str, ...]] = set()
        self._ways: dict[tuple[str, ...], tuple[Facts, ...]] = {}

    def unfold(self, nodes: All, *, is_wide: bool = False) -> tuple[Facts, ...]:
        """Facts of a value that meets all of these, one for each way to meet them.

        is_wide: options of oneOf may overlap; otherwise each is made smaller until they do not.
        """
        key = _key(nodes, is_wide)
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

    def _unfold(
        self, nodes: All, above: tuple[str, ...], is_wide: bool, unsealed: str = ""
    ) -> tuple[Facts, ...]:
        """Meet what all say; `above` are groups whose options are being unfolded.

        unsealed: the place whose unevaluatedProperties and unevaluatedItems are not read.
        """
        facts, groups, seen = Facts(), list[Group](), set[str]()
        todo = list(nodes)
        while todo:
            node = todo.pop(0)
            self.step(node.path)
            if isinstance(node.schema, bool):
                if node.schema == node.is_not:
                    return ()
                continue
            if node.key in seen or (node.is_not and is_wide and not excludes_texts(node.schema)):
                continue
            if node.negated().key in seen:
                return ()
            seen.add(node.key)
            is_strict = is_wide or node.is_not
            node = self._current(node, is_strict)
            if node.is_not:
                groups.append(self._negation(node))
                continue
            assert isinstance(node.schema, Mapping)
            if UNEVALUATED & node.schema.keys() and not is_wide and node.path != unsealed:
                groups.append(self._sealed(node, above))
                continue
            with located(node.path):
                facts = facts.intersect(self._read(node, is_strict))
                groups += self._groups_of(node, is_strict, is_wide)
            self.step(node.path, _size(facts) // 10)
            targets = self._targets(node)
            if targets is None and not is_wide:
                return ()
            todo = [*(targets or ()), *applied(node, "allOf"), *excluded(node), *todo]
        return self._spread(facts, groups, above, is_wide)

    def _spread(
        self, facts: Facts, groups: list[Group], above: tuple[str, ...], is_wide: bool
    ) -> tuple[Facts, ...]:
        ways: tuple[Facts, ...] = (facts,)
        conditions = [group for group in groups if group.stricter is not None]
        is_few = len(conditions) <= FEW_CONDITIONS
        for group in groups:
            if is_few or group.stricter is None:
                ways = self._spread_one(ways, group, above, is_wide)
        return ways if is_few else self._conditioned(ways, conditions, above, is_wide)

    def _conditioned(
        self, ways: tuple[Facts, ...], groups: list[Group], above: tuple[str, ...], is_wide: bool
    ) -> tuple[Facts, ...]:
        """The ways that meet all of many conditions. Where they would be too many, those that meet
        the fewest are kept; read wide, what more conditions ask for is left out."""
        by_weight = {0: ways}
        for group in groups:
            if is_wide and sum(map(len, by_weight.values())) > MAX_CONDITIONED:
                break
            found: dict[int, tuple[Facts, ...]] = {}
            for weight, some in by_weight.items():
                for i, option in enumerate(group.options):
                    single = group._replace(options=(option,))
                    more = weight + (i == group.stricter)
                    kept = self._spread_one(some, single, above, is_wide)
                    found[more] = (*found.get(more, ()), *kept)
            by_weight = found if is_wide else _smallest(found)
        return tuple(way for some in by_weight.values() for way in some)

    def _spread_one(
        self, ways: tuple[Facts, ...], group: Group, above: tuple[str, ...], is_wide: bool
    ) -> tuple[Facts, ...]:
        """Each way with each option of a group."""
        if group.key in above:
            raise NotRegular(group.key, "schemas whose recursion has something between")
        if len(above) >= MAX_NESTED:
            raise refuse(group.key, f"at most {MAX_NESTED} alternatives inside alternatives")
        inside = (*above, group.key)
        found = [self._option(option, inside, is_wide) for option in group.options]
        if not group.is_silent and is_misjudged(ways, found):
            options = typed(ways, group)
            found = [self._option(option, inside, is_wide) for option in options]
        if group.is_silent:
            found = [[facts.silent() for facts in option] for option in found]
            ways = tuple(way.narrowed() for way in ways)
            found = _fewer(ways, found)
        if len(ways) * sum(map(len, found)) > MAX_PRODUCT:
            raise refuse(group.key, f"at most {MAX_WAYS} combinations of alternatives")
        with located(group.key):
            chosen = [_satisfied(ways, option) for option in found]
            if not is_wide:
                chosen = [without_contradictions(option, self._contradictions) for option in chosen]
            if group.is_one and not is_wide:
                chosen = self._apart(group, chosen, inside)
        ways = tuple(way for option in chosen for way in option)
        ways = ways[:MAX_COMPLEMENT] if group.is_silent else ways
        self.step(group.key, len(ways))
        if len(ways) > MAX_WAYS:
            raise refuse(group.key, f"at most {MAX_WAYS} combinations of alternatives")
        return ways

    def _option(self, option: Option, above: tuple[str, ...], is_wide: bool) -> list[Facts]:
        if not option.nodes:
            return [option.facts]
        return _satisfied((option.facts,), self._inner(option.nodes, above, is_wide))

    def _inner(self, nodes: All, above: tuple[str, ...], is_wide: bool) -> tuple[Facts, ...]:
        """As `_unfold`, once for all places that have these nodes as an option: what is above
        them tells only whether they lead back there."""
        key = _key(nodes, is_wide)
        if key not in self._ways:
            self._ways[key] = self._unfold(nodes, above, is_wide)
        return self._ways[key]

    def _apart(
        self, group: Group, chosen: list[list[Facts]], inside: tuple[str, ...]
    ) -> list[list[Facts]]:
        """The ways that take each option of a group, made smaller so that no other one holds."""
        if not any(chosen):
            return chosen
        wide = [self._option(option, inside, True) for option in group.options]
        for i in range(len(chosen)):
            for j, other in enumerate(wide):
                if i != j and chosen[i]:
                    chosen[i] = self._without(chosen[i], group.options[j], other, inside)
        if not any(chosen):
            raise refuse(group.key, exclusive(group))
        return chosen

    def _without(
        self, ways: list[Facts], option: Option, others: list[Facts], inside: tuple[str, ...]
    ) -> list[Facts]:
        """The ways, made smaller so that no value takes this option. others: its ways, read
        wide."""
        kept: list[Facts] = []
        negated: tuple[Facts, ...] | None = None
        for way in ways:
            smaller: Facts | None = way
            for other in others:
                self.step(inside[-1])
                smaller = None if smaller is None else parted(smaller, other, self.unfold)
            if smaller is not None:
                kept.append(smaller)
                continue
            if negated is None:
                nodes = tuple(node.negated() for node in option.nodes)
                negated = tuple(f.silent() for f in self._inner(nodes, inside, False))
            kept += _satisfied((way.narrowed(),), negated)
        return [way for way in kept if not way.is_empty()]

    def _negation(self, node: Node) -> Group:
        with located(node.path):
            facts = self._read(node._replace(is_not=False), True)
            targets = self._targets(node)
            if not targets and (words := without_complement(node)):
                allowed = (
                    f"a schema without {', '.join(words)}: values that do not meet it are not"
                    " supported (list the allowed values in an enum, or leave it out)"
                )
                self.reasons.leave_out(node.path, allowed)
            return Group(node.key, ()) if targets is None else negation(node, facts, targets)

    def _sealed(self, node: Node, above: tuple[str, ...]) -> Group:
        """The ways to meet a node, with its facts of what it does not evaluate."""
        key = derived(node.path, "unevaluated")
        if key in above:
            raise NotRegular(key, "schemas whose recursion has something between")
        ways = self._unfold((node,), (*above, key), False, node.path)
        if any(facts.arrays and facts.arrays.contains for facts in ways):
            allowed = "items in place of unevaluatedItems: beside contains it is not supported"
            self.reasons.leave_out(f"{node.path}/unevaluatedItems", allowed)
        with located(node.path):
            return Group(key, tuple(Option(sealed(facts, node)) for facts in ways))

    def _targets(self, node: Node) -> list[Node] | None:
        """Where the references of a schema object lead; None: to what is not available."""
        assert isinstance(node.schema, Mapping)
        found: list[Node] = []
        words = [word for word in REFERENCES if word in node.schema]
        for word in words:
            try:
                found.append(self._references.target(node, word))
            except InvalidSchema as error:
                if not (self._leaves_out and isinstance(error, Unavailable)):
                    raise refuse(f"{node.path}/{word}", str(error)) from None
                self.unavailable[f"{node.path}/{word}"] = str(error)
        return None if any(f"{node.path}/{word}" in self.unavailable for word in words) else found

    def _read(self, node: Node, is_strict: bool) -> Facts:
        key = (node.path, is_strict)
        if key not in self._facts:
            self._facts[key] = read(node)
        return self._facts[key]

    def refuse_empty(self, pointers: Iterable[str]) -> InvalidCall:
        """The error for a document that no value is known to meet. pointers: of all places of which
        that is so, outer last."""
        if self.unavailable:
            pointer, allowed = next(iter(self.unavailable.items()))
            return refuse(pointer, allowed)
        return self.reasons.refusal(pointers)

    def _groups_of(self, node: Node, is_strict: bool, is_wide: bool) -> list[Group]:
        key = (node.path, is_strict, is_wide)
        if key not in self._groups:
            has_const = self._draft is None or self._draft >= SINCE["const"]
            self._groups[key] = groups_of(node, is_wide, has_const)
        return self._groups[key]

    def step(self, path: str, cost: int = 1) -> None:
        """Count what is done. Raises InvalidCall where it is too much."""
        self._num_steps += cost
        if self._num_steps > MAX_STEPS:
            raise refuse(path, f"schemas that are read in {MAX_STEPS} steps")
        self._num_calls += 1
        if self._num_calls % CHECK_EVERY == 1 and thread_time() > self._ends_at:
            allowed = f"schemas that are read in {self._seconds} s of processor time"
            raise TooSlow(FIELD, path, allowed)

    def _current(self, node: Node, is_strict: bool) -> Node:
        """The node in the keywords of later drafts; is_strict: without those that its own draft
        ignores, so that no value is missing that it allows."""
        assert isinstance(node.schema, Mapping)
        has_ref = "$ref" in node.schema
        draft = self._references.draft(node.path) if has_ref else self._draft
        return node._replace(schema=normalized(node.schema, draft, is_strict))


def _key(nodes: All, is_wide: bool) -> tuple[str, ...]:
    """Identifies nodes that are read in one of two ways."""
    return (*(node.key for node in nodes), "wide" if is_wide else "")


def _fewer(ways: tuple[Facts, ...], found: list[list[Facts]]) -> list[list[Facts]]:
    """Some of those of each option of a complement, where there are many: what is left of a
    complement is a part of it in any case."""
    if len(ways) * sum(map(len, found)) <= MAX_PRODUCT:
        return found
    most = max(1, MAX_PRODUCT // (len(ways) * len(found)))
    return [option[:most] for option in found]


def _smallest(found: dict[int, tuple[Facts, ...]]) -> dict[int, tuple[Facts, ...]]:
    """The ways that meet the fewest conditions, by how many these are, where there are many."""
    kept: dict[int, tuple[Facts, ...]] = {}
    room = MAX_CONDITIONED
    for weight in sorted(found):
        kept[weight] = found[weight][:room]
        room -= len(kept[weight])
    return kept


def _satisfied(ways: Iterable[Facts], others: Iterable[Facts]) -> list[Facts]:
    """Each way with each other one, without those of which it is plain that no value meets them."""
    pairs = (way.intersect(other).pruned() for other in others for way in ways)
    return [facts for facts in pairs if not facts.is_empty()]


def _size(facts: Facts) -> int:
    """How much was copied to say this."""
    properties = () if facts.objects is None else facts.objects.properties
    return len(properties) + len(facts.values or ())
