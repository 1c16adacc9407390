"""JSON Schema as a grammar, for what no pattern expresses: recursion, open objects, untyped values.

The schema is read as for a pattern, keyword by keyword, and means the same; each place in it
becomes a rule of Lark. Every terminal is one token of JSON, so that reading the longest one is
always right. Rules from which no value can be derived are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...api.protocol import COMPACT
from ..json_schema.facts import All, Arrays, Objects, Strings
from ..json_schema.facts import Literal as Value
from ..json_schema.patterns.ecma import read_pattern
from ..json_schema.patterns.machines import without_machines
from ..json_schema.patterns.numbers import FREE_NUMBER
from ..json_schema.patterns.spelling import FREE_CHAR, alternatives, literal, value_text
from ..json_schema.patterns.strings import ANYTHING, pattern, repeated
from ..json_schema.schema import Writer
from ..json_schema.unfold import MAX_SECONDS, Document
from ..regex.errors import NotRegular, UnsupportedSchema, refuse
from ..regex.tree import Net, Tree

MAX_POSITIONS = 20_000
MAX_RULES = 10_000
MAX_COUNT = 100_000
MAX_ROUNDS = 100
FEW_STATES, MAX_STATES = 100, 400  # of an automaton that becomes rules
_NAME = re.compile(r"[\w-]+")
_SPACED_NAME = re.compile(r"(?<= )[\w-]+(?= )")
_MARKS = {"(?:": "(", "\\{": ' "{" ', "\\}": ' "}" ', "\\[": ' "[" ', "\\]": ' "]" '}
_MARK = re.compile(r"\(\?:|\\[{}\[\]]")

Key = tuple[str, ...]


def schema_grammar(
    schema: Mapping[str, Any] | bool,
    separators: tuple[str, str] = COMPACT,
    seconds: float = MAX_SECONDS,
    is_tracked: bool = False,
) -> str:
    """A grammar, in Lark, whose every text is JSON that the schema accepts. separators, seconds,
    is_tracked: as in `schema_pattern`.

    Raises InvalidCall as `schema_pattern` does, but supports more.
    """
    return document_grammar(Document(schema, seconds), separators, is_tracked)


def document_grammar(
    document: Document, separators: tuple[str, str], is_tracked: bool = False
) -> str:
    """As `schema_grammar`, of a document that may have been read in part."""
    name, rules = _rules(document, "", separators, is_tracked)
    return f"start: {name}\n{rules}"


def schema_rules(
    schema: Mapping[str, Any] | bool,
    prefix: str,
    separators: tuple[str, str] = COMPACT,
    seconds: float = MAX_SECONDS,
    is_tracked: bool = False,
) -> tuple[str, str]:
    """The name of the rule of the schema, and the rules, whose names have a prefix."""
    return _rules(Document(schema, seconds), prefix, separators, is_tracked)


def _rules(
    document: Document, prefix: str, separators: tuple[str, str], is_tracked: bool
) -> tuple[str, str]:
    try:
        return RuleWriter(document, prefix, separators, is_tracked).all_rules((document.root,))
    except RecursionError:
        raise refuse("#", "schemas less deep, for callers this deep in calls") from None


class RuleWriter(Writer):
    """Writes the places of one document, each as a rule.

    Tree are expressions over names of rules and terminals, with spaces around each name. Once all
    places are found, one counts as empty until it is known to have a value.
    """

    def __init__(
        self,
        document: Document,
        prefix: str,
        separators: tuple[str, str],
        is_tracked: bool = False,
    ) -> None:
        super().__init__(document, separators, is_tracked)
        self._prefix = prefix
        self._keys: list[Key] = []
        self._rule_of: dict[Key, tuple[str, All]] = {}
        self._has_value: set[Key] | None = None
        self._terminals: dict[str, str] = {}
        self._names: dict[Strings, str | None] = {}
        self._texts: dict[Strings, str | None] = {}
        self._states: dict[str, str] = {}
        self._shared: dict[str, str] = {}  # the names of rules, by body
        self._body_of: dict[str, str] = {}  # and the other way

    def all_rules(self, root: All) -> tuple[str, str]:
        """As `schema_rules`."""
        self.write(root)
        full = dict[Key, str | None]()
        for key in self._keys:  # grows
            if len(self._keys) > MAX_POSITIONS:
                raise NotRegular(key[0], f"schemas of at most {MAX_POSITIONS} places")
            full[key] = self._body(key)
        self._has_value = found = self._plainly_filled(full)
        num_known = -1
        while num_known < len(found):
            num_known = len(found)
            for key in reversed(self._keys):
                if key not in found and full.get(key, "") is not None and self._body(key):
                    found.add(key)
        start = self.write(root)
        if start is None:
            empty = (key[0] for key in reversed(self._keys) if key not in found)
            raise self.document.refuse_empty(empty)
        unfilled = {name for key, (name, _) in self._rule_of.items() if key not in found}
        bodies = {
            self._rule_of[key][0]: self._final_body(key, full.get(key), unfilled)
            for key in self._keys
            if key in found
        }
        first, bodies = merged(start.strip(), bodies | self._shared_bodies(bodies.values()))
        num_rules = len(bodies) + len(self._states)
        if num_rules > MAX_RULES:
            allowed = f"schemas of at most {MAX_RULES} different places"
            raise NotRegular(self._keys[0][0], f"{allowed}; this one has {num_rules}")
        return first, self._definitions(first, bodies)

    def _plainly_filled(self, bodies: Mapping[Key, str | None]) -> set[Key]:
        """The places that have a value whatever others have: those of whose rules all that they
        name are such places."""
        key_of = {self._rule_of[key][0]: key for key in bodies}
        users: dict[Key, list[Key]] = {}
        num_open: dict[Key, int] = {}
        for key, body in bodies.items():
            if body is not None:
                named = {key_of[name] for name in self._names_in(body) if name in key_of}
                num_open[key] = len(named)
                for other in named:
                    users.setdefault(other, []).append(key)
        todo = [key for key, number in num_open.items() if not number]
        found = set(todo)
        while todo:
            for user in users.get(todo.pop(), ()):
                num_open[user] -= 1
                if not num_open[user]:
                    found.add(user)
                    todo.append(user)
        return found

    def _final_body(self, key: Key, full: str | None, empty: set[str]) -> str:
        """A rule's body without places that have no value. full: with all places. empty: the rules
        of such places."""
        if full is not None and empty.isdisjoint(self._names_in(full)):
            return full
        return self._body(key) or ""

    def _names_in(self, body: str) -> set[str]:
        """The names in a rule's body, and in the shared rules that it leads to."""
        names = set(_NAME.findall(body))
        return names.union(*(_NAME.findall(it) for it in self._shared_bodies([body]).values()))

    def _shared_bodies(self, bodies: Iterable[str]) -> dict[str, str]:
        """The shared rules that these lead to."""
        todo, found = [*bodies] if self._shared else [], dict[str, str]()
        while todo:
            for name in _NAME.findall(todo.pop()):
                if name in self._body_of and name not in found:
                    found[name] = self._body_of[name]
                    todo.append(found[name])
        return found

    def write(self, nodes: All) -> str | None:
        """The name of the rule of a value that meets all of these; None: no value does."""
        if not nodes:
            return self.anything()
        key = tuple(node.key for node in nodes)
        if key not in self._rule_of:
            self._rule_of[key] = (f"{self._prefix}v{len(self._keys)}", nodes)
            self._keys.append(key)
        is_empty = self._has_value is not None and key not in self._has_value
        return None if is_empty else f" {self._rule_of[key][0]} "

    def leaf(self, pattern: str) -> str:
        """The name of the terminal with this pattern."""
        return self._terminal("/" + pattern.replace("/", "\\/") + "/")

    def share(self, pattern: str) -> str:
        """The name of a rule of its own."""
        name = self._shared.setdefault(pattern, f"{self._prefix}o{len(self._shared)}")
        self._body_of[name] = pattern
        return f" {name} "

    def separator(self, text: str) -> str:
        """As a terminal."""
        return f" {json.dumps(text)} "

    def values(self, values: Sequence[Value]) -> list[str]:
        """Each of these values, token by token."""
        containers = ("array", "object")
        plain = [literal(value.text) for value in values if value.kind not in containers]
        nested = [self._spelled(value.value) for value in values if value.kind in containers]
        return [*([self.leaf(alternatives(plain))] if plain else []), *nested]

    def anything(self) -> str:
        """Any value at all."""
        return f" {self._prefix}any "

    def string(self, strings: Strings) -> str | None:
        """The strings that match; where that is not a single pattern, those texts, each
        spelled in one way, that are in all of several terminals, and in none of others."""
        if strings not in self._texts:
            try:
                self._texts[strings] = super().string(strings)
            except UnsupportedSchema:
                self._texts[strings] = self._by_rules(strings)
        return self._texts[strings]

    def _by_rules(self, strings: Strings) -> str | None:
        """A rule for each state of an automaton; where they are many, several terminals."""
        try:
            machine = self.machine(strings, self.text_patterns(strings), self.excluded(strings))
        except UnsupportedSchema:
            return self._intersection(strings)
        if machine is None:
            return None
        if len(machine.rows) <= FEW_STATES:
            return self._quoted_rule(machine)
        try:
            return self._intersection(strings)
        except UnsupportedSchema:
            if len(machine.rows) > MAX_STATES:
                raise
        return self._quoted_rule(machine)

    def _quoted_rule(self, machine: Net) -> str:
        base, quote = f"{self._prefix}m{len(self._states)}s", self.leaf('"')
        for state, (row, accepts) in enumerate(zip(machine.rows, machine.accepting, strict=True)):
            options = [
                self.leaf(pattern(item)) + (f" {base}{to} " if machine.rows[to] else "")
                for item, to in row
            ]
            if options:
                body = alternatives(options)
                self._states[f"{base}{state}"] = f"(?:{body})?" if accepts else body
        return f"{quote} {base}0 {quote}" if machine.rows[0] else f"{quote}{quote}"

    def name(self, strings: Strings) -> str | None:
        """As for patterns, or by several terminals."""
        if strings not in self._names:
            try:
                self._names[strings] = super().name(strings)
            except UnsupportedSchema:
                self._names[strings] = self._intersection(strings)
        return self._names[strings]

    def _intersection(self, strings: Strings) -> str | None:
        char = pattern(ANYTHING.item)
        self.check_count(strings.low, 0)
        if strings.is_empty():
            return None
        alone = [Strings(patterns=(source,)) for source in strings.patterns]
        alone += [Strings(formats=(name,)) for name in strings.formats]
        parts = [repeated(char, strings.low, strings.high)]
        parts += [self.text(part, char) or "" for part in alone]
        unlike = [self.spelled(read_pattern(source, is_wide=True)) for source in strings.unlike]
        if strings.others:
            unlike.append(alternatives([literal(value_text(t)[1:-1]) for t in strings.others]))
        shown = [*map(_quoted, parts), *(f"~{_quoted(part)}" for part in unlike)]
        return self._terminal(" & ".join(shown))

    def spelled(self, texts: Tree) -> str:
        """As for patterns, without automata."""
        return pattern(without_machines(texts))

    def object(self, objects: Objects | None) -> str | None:
        """The objects that these facts allow; open if they name no property."""
        objects = Objects() if objects is None else objects
        if objects.is_open:
            objects = replace(objects, rest=())
        return super().object(objects)

    def array(self, arrays: Arrays) -> str | None:
        """The arrays that these facts allow; open if they name no item."""
        if arrays.rest is None and not arrays.prefix:
            arrays = replace(arrays, rest=())
        return super().array(arrays)

    def check_count(self, low: int, high: int | None) -> None:
        """As for patterns, with more room."""
        if max(low, high or 0) > MAX_COUNT:
            raise UnsupportedSchema(f"lengths and numbers of items of at most {MAX_COUNT}")

    def _body(self, key: Key) -> str | None:
        self.document.step(key[0])
        self._open = [key]
        return self.ways(self._rule_of[key][1])

    def _terminal(self, definition: str) -> str:
        name = f"{self._prefix.upper()}T{len(self._terminals)}"
        return f" {self._terminals.setdefault(definition, name)} "

    def _spelled(self, value: Any) -> str:
        """The tokens of one value."""
        comma, colon = self._layout.comma, self._layout.colon
        if isinstance(value, Mapping):
            pairs = [
                self.leaf(literal(value_text(name))) + colon + self._spelled(item)
                for name, item in value.items()
            ]
            return f"\\{{{comma.join(pairs)}\\}}"
        if isinstance(value, list | tuple):
            return f"\\[{comma.join(map(self._spelled, value))}\\]"
        return self.leaf(literal(value_text(value)))

    def _definitions(self, start: str, bodies: dict[str, str]) -> str:
        """The rules that the start leads to, each on a line, and all terminals."""
        bodies |= self._open_values() | self._states
        names, reached = [start], dict[str, None]()
        while names:
            name = names.pop()
            if name in bodies and name not in reached:
                reached[name] = None
                names += _NAME.findall(bodies[name])
        lines = [
            f"{name}: {_MARK.sub(lambda mark: _MARKS[mark[0]], bodies[name])}" for name in reached
        ]
        lines += [f"{name}: {definition}" for definition, name in self._terminals.items()]
        return "\n".join([*lines, ""])

    def _open_values(self) -> dict[str, str]:
        """Rules of any value at all."""
        any_, pair = self.anything(), f" {self._prefix}pair "
        text, comma = self.leaf(f'"{FREE_CHAR}*"'), self._layout.comma
        plain = f"{text}|{self.leaf(FREE_NUMBER)}|{self.leaf('(?:true|false|null)')}"
        items = f"\\[(?:{any_}(?:{comma}{any_})*)?\\]"
        pairs = f"\\{{(?:{pair}(?:{comma}{pair})*)?\\}}"
        return {
            any_.strip(): f"{plain}|{items}|{pairs}",
            pair.strip(): text + self._layout.colon + any_,
        }


def _quoted(text: str) -> str:
    """A terminal's pattern of a string with this pattern between its quotes."""
    return '/"' + text.replace("/", "\\/") + '"/'


def merged(start: str, bodies: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The name of the first rule, and the bodies by name: of rules with equal bodies only the first
    is kept, until no two are equal. Rules that call themselves or each other may stay apart."""
    kept = dict(bodies)
    for _ in range(MAX_ROUNDS):
        first = dict[str, str]()
        renamed = {name: first.setdefault(body, name) for name, body in kept.items()}
        start = renamed.get(start, start)
        if len(first) == len(kept):
            break
        rename = partial(_renamed, renamed)
        kept = {name: _SPACED_NAME.sub(rename, body) for body, name in first.items()}
    return start, kept


def _renamed(names: Mapping[str, str], found: re.Match[str]) -> str:
    return names.get(found[0], found[0])
