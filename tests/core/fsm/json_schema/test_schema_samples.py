"""Random schemas both ways: what the pattern matches is valid, and what is valid matches.

The reader below takes patterns in their plain dialect only, and draws texts from them.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from forkroot.core.api.protocol import InvalidCall
from forkroot.core.fsm.json_schema.schema import schema_pattern
from forkroot.core.fsm.regex.errors import NotRegular

NAMES = ("id", "name", 'a"b', "naïve", "x-1", "tab\t", "", "日本", "\U0001f600")
WORDS = ("", "a", "ab\n", 'say "hi"', "back\\slash", "é", "\u2028", "\U0001f600", "\x7f", "\x01")
PATTERNS = (
    r"^[a-z]{2,5}$",
    r"\d+",
    r"^x-",
    r"^(a|b\"|\\)+$",
    r"^\S+@\S+$",
    r"[^\w\s]",
    r"^$|^\w{3}$",
)
FORMATS = ("date", "date-time", "uuid", "ipv4", "email", "uri", "hostname", "duration", "ipv6")


class Sampler:
    """Draws texts that match a pattern of literals, classes, groups, `|` and repeats."""

    def __init__(self, pattern: str, rng: random.Random) -> None:
        self.pattern = pattern
        self.position = 0
        self.rng = rng
        self.tree = self.either()
        assert self.position == len(pattern)

    def draw(self) -> str:
        return self.text(self.tree)

    def text(self, node: Any) -> str:
        kind, value = node
        if kind == "either":
            return self.text(self.rng.choice(value))
        if kind == "row":
            return "".join(map(self.text, value))
        if kind == "repeat":
            item, low, high = value
            most = low + 4 if high is None else min(high, low + 6)
            return "".join(
                self.text(item)
                for _ in range(self.rng.choice((low, most, self.rng.randint(low, most))))
            )
        start, end = self.rng.choice(value)
        return chr(self.rng.choice((start, end, self.rng.randint(start, end))))

    def either(self) -> Any:
        options = [self.row()]
        while self.peek() == "|":
            self.position += 1
            options.append(self.row())
        return ("either", options)

    def row(self) -> Any:
        items: list[Any] = []
        while self.peek() not in ("", "|", ")"):
            items.append(self.repeat(self.atom()))
        return ("row", items)

    def atom(self) -> Any:
        if self.pattern.startswith("(?:", self.position):
            self.position += 3
            inside = self.either()
            assert self.take() == ")"
            return inside
        char = self.take()
        assert char not in "()*+?{}^$.", f"{char} at {self.position}"
        if char == "[":
            return ("class", self.members())
        code = self.escape() if char == "\\" else ord(char)
        return ("class", [(code, code)])

    def members(self) -> list[tuple[int, int]]:
        ranges = []
        assert self.peek() != "^"
        while self.peek() != "]":
            low = self.member()
            high = low
            if self.peek() == "-":
                self.position += 1
                high = self.member()
            ranges.append((low, high))
        self.position += 1
        return ranges

    def member(self) -> int:
        char = self.take()
        return self.escape() if char == "\\" else ord(char)

    def escape(self) -> int:
        char = self.take()
        if char == "u":
            self.position += 4
            return int(self.pattern[self.position - 4 : self.position], 16)
        assert not char.isalnum()
        return ord(char)

    def repeat(self, item: Any) -> Any:
        char = self.peek()
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if char in simple:
            self.position += 1
            return ("repeat", (item, *simple[char]))
        if char == "{":
            inside = self.pattern[self.position + 1 : self.pattern.index("}", self.position)]
            self.position += len(inside) + 2
            low, comma, high = inside.partition(",")
            return (
                "repeat",
                (item, int(low), (int(high) if high else None) if comma else int(low)),
            )
        return item

    def peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def take(self) -> str:
        self.position += 1
        return self.pattern[self.position - 1]


def some_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema of the supported kinds; not every one of them has a value."""
    kinds = ["integer", "number", "string", "boolean", "null", "enum", "const"]
    kinds += ["array", "tuple", "object", "map", "anyOf", "allOf", "oneOf", "types"] * (depth < 3)
    kind = rng.choice(kinds)
    return SCHEMAS[kind](rng, depth) if kind in SCHEMAS else {"type": kind}


def some_bounds(rng: random.Random, scale: int) -> dict[str, Any]:
    low, high = sorted(rng.randint(-scale, scale) for _ in range(2))
    bounds: dict[str, Any] = {}
    if rng.random() < 0.5:
        bounds[rng.choice(("minimum", "exclusiveMinimum"))] = low
    if rng.random() < 0.5:
        bounds[rng.choice(("maximum", "exclusiveMaximum"))] = high + 3
    return bounds


def some_number(rng: random.Random, depth: int) -> dict[str, Any]:
    bounds = some_bounds(rng, rng.choice((5, 1_000, 10**7)))
    divisor = rng.choice((1, 8, 10, 100))
    return {"type": "number", **{word: bound / divisor for word, bound in bounds.items()}}


def some_integer(rng: random.Random, depth: int) -> dict[str, Any]:
    multiple = {"multipleOf": rng.choice((2, 5, 10, 25))} if rng.random() < 0.2 else {}
    return {"type": "integer", **some_bounds(rng, rng.choice((5, 1_000, 10**7))), **multiple}


def some_string(rng: random.Random, depth: int) -> dict[str, Any]:
    match rng.randrange(4):
        case 0:
            return {"type": "string", "pattern": rng.choice(PATTERNS)}
        case 1:
            return {"type": "string", "format": rng.choice(FORMATS)}
    low = rng.randrange(4)
    limits = {"minLength": low, "maxLength": low + rng.randrange(5)}
    return {"type": "string", **{word: limits[word] for word in limits if rng.random() < 0.5}}


def some_object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(NAMES, rng.randint(1, 5))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: some_schema(rng, depth + 1) for name in names},
        "required": [name for name in names if rng.random() < 0.4],
    }
    rest = rng.choice(({}, {"additionalProperties": False}, {"additionalProperties": 1}))
    if rest.get("additionalProperties"):
        rest = {"additionalProperties": some_schema(rng, depth + 1)}
    return {**schema, **rest}


def some_map(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randrange(2)
    values = some_schema(rng, depth + 1)
    by_name = rng.choice(("additionalProperties", "patternProperties"))
    rest = values if by_name == "additionalProperties" else {rng.choice(PATTERNS): values}
    return {"type": "object", by_name: rest, "minProperties": low, "maxProperties": low + 3}


def some_array(rng: random.Random, depth: int) -> dict[str, Any]:
    low = rng.randrange(3)
    limits = {"minItems": low, "maxItems": low + rng.randrange(3)}
    chosen = {word: limits[word] for word in limits if rng.random() < 0.5}
    return {"type": "array", "items": some_schema(rng, depth + 1), **chosen}


def some_tuple(rng: random.Random, depth: int) -> dict[str, Any]:
    items = [some_schema(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    rest = rng.choice((False, {"type": "null"}, {"type": "integer"}))
    return {"type": "array", "prefixItems": items, "items": rest, "minItems": rng.randrange(3)}


def some_enum(rng: random.Random, depth: int) -> dict[str, Any]:
    values: list[Any] = [*WORDS, 0, 1.5, -3, True, None, [1, "a"], {"b": [None]}]
    return {"enum": rng.sample(values, rng.randint(1, 5))}


def some_one_of(rng: random.Random, depth: int) -> dict[str, Any]:
    options = []
    for tag in rng.sample(NAMES, rng.randint(2, 3)):
        option = some_object(rng, depth + 1)
        option["properties"]["id"] = {"const": tag}
        options.append(option)
    return {"oneOf": options}


SCHEMAS = {
    "integer": some_integer,
    "number": some_number,
    "string": some_string,
    "array": some_array,
    "tuple": some_tuple,
    "object": some_object,
    "map": some_map,
    "enum": some_enum,
    "const": lambda rng, depth: {"const": rng.choice(WORDS)},
    "anyOf": lambda rng, depth: {"anyOf": [some_schema(rng, depth + 1) for _ in range(2)]},
    "allOf": lambda rng, depth: {"allOf": [some_object(rng, depth + 1) for _ in range(2)]},
    "oneOf": some_one_of,
    "types": lambda rng, depth: {**some_string(rng, depth), "type": ["string", "null", "boolean"]},
}


@pytest.mark.parametrize("seed", range(12))
def test_every_text_that_a_pattern_matches_is_json_that_the_schema_accepts(seed: int) -> None:
    rng = random.Random(seed)
    num_written = 0
    for _ in range(40):
        schema = some_schema(rng)
        try:
            pattern = schema_pattern(schema, separators=rng.choice(((",", ":"), (", ", ": "))))
        except InvalidCall:
            continue
        num_written += 1
        sampler, validator = Sampler(pattern, rng), Draft202012Validator(schema)
        for text in (sampler.draw() for _ in range(8)):
            assert validator.is_valid(json.loads(text)), (schema, text)
    assert num_written >= 25


def some_instance(rng: random.Random, schema: dict[str, Any]) -> Any:
    """A value of a simple schema: integers, words, lists and objects in the order of the schema."""
    match schema.get("type"):
        case "integer":
            return rng.randint(schema["minimum"], schema["maximum"])
        case "number":
            digits = rng.randrange(6)
            return round(rng.uniform(schema["minimum"], schema["maximum"]), digits)
        case "string":
            low, high = schema["minLength"], schema["maxLength"]
            return "".join(
                rng.choice('aé\n"\\/\u2028\U0001f600\x00') for _ in range(rng.randint(low, high))
            )
        case "array":
            length = rng.randint(schema["minItems"], schema["maxItems"])
            return [some_instance(rng, schema["items"]) for _ in range(length)]
        case "object":
            return {
                name: some_instance(rng, value)
                for name, value in schema["properties"].items()
                if name in schema["required"] or rng.random() < 0.5
            }
    return rng.choice(schema["enum"])


def simple_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema of which instances can be drawn."""
    kinds = ["integer", "number", "string", "enum"] + ["array", "object"] * 2 * (depth < 3)
    kind = rng.choice(kinds)
    low, size = rng.randrange(4), rng.randrange(5)
    match kind:
        case "integer":
            low = rng.randint(-(10**6), 10**6)
            return {"type": kind, "minimum": low, "maximum": low + rng.choice((0, 7, 10**4, 10**9))}
        case "number":
            low_bound = round(rng.uniform(-100, 100), 3)
            return {"type": kind, "minimum": low_bound, "maximum": low_bound + rng.randrange(3000)}
        case "string":
            return {"type": kind, "minLength": low, "maxLength": low + size}
        case "array":
            items = simple_schema(rng, depth + 1)
            return {"type": kind, "items": items, "minItems": low, "maxItems": low + size}
        case "object":
            names = rng.sample(NAMES, rng.randint(0, 7))
            properties = {name: simple_schema(rng, depth + 1) for name in names}
            required = [name for name in names if rng.random() < 0.3]
            return {
                "type": kind,
                "properties": properties or {"a": {"type": "null", "enum": [None]}},
                "required": required,
            }
    return {"enum": rng.sample([*WORDS, 1, 2.5, None, False, {"a": [1]}], 3)}


@pytest.mark.parametrize("seed", range(8))
def test_every_compact_instance_in_schema_order_matches_its_pattern(seed: int) -> None:
    rng = random.Random(100 + seed)
    for _ in range(30):
        schema = simple_schema(rng)
        compiled = re.compile(schema_pattern(schema))
        validator = Draft202012Validator(schema)
        for _ in range(5):
            instance = some_instance(rng, schema)
            if not validator.is_valid(instance):
                continue  # a rounded number beyond its bound
            text = json.dumps(instance, ensure_ascii=False, separators=(",", ":"))
            assert compiled.fullmatch(text), (schema, text)


@pytest.mark.parametrize("seed", range(4))
def test_an_instance_that_the_schema_does_not_accept_matches_no_pattern(seed: int) -> None:
    rng = random.Random(200 + seed)
    num_refused = 0
    for _ in range(60):
        schema, other = simple_schema(rng), simple_schema(rng)
        compiled, validator = re.compile(schema_pattern(schema)), Draft202012Validator(schema)
        for instance in (some_instance(rng, other), *WORDS, 0, -1, 10**6, 0.25, None, [], {}):
            if not validator.is_valid(instance):
                num_refused += 1
                text = json.dumps(instance, ensure_ascii=False, separators=(",", ":"))
                assert not compiled.fullmatch(text), (schema, text)
    assert num_refused > 200


def test_a_recursive_schema_is_left_to_a_grammar() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    with pytest.raises(NotRegular, match="recursion"):
        schema_pattern(tree)
