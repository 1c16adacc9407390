"""Lookaround, boundaries, anchors inside, captures and possessive repeats mean what they mean to
`re`, alone and in the keyword `pattern`."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import regex

from forkroot.core.api.protocol import InvalidCall, JsonSchema, Regex
from forkroot.core.fsm.regex.regex import compile_regex

from ..sampling import CONSTRAINTS, json_of, sampled, takes

PATTERNS = json.loads(Path(__file__).with_name("realistic_patterns.json").read_text("utf-8"))
TEXTS = ["".join(chars) for size in range(6) for chars in product("ab-\n", repeat=size)]
ATOMS = ("a", "b", "-", "[ab]", "[^a]", r"\w", r"\W", ".", r"\n")
ANCHORS = (r"\b", r"\B", "^", "$", r"\A", r"\Z")
BEHIND = ("a", "b", r"\w", "-", "ab", "[a-]b", "^", "^a", "a|b", "(?<!a)b")


def pattern_of(random: Random, depth: int = 3) -> str:
    """A pattern that `re` may know, with lookaround and anchors at any place."""
    options = []
    for _ in range(random.choice([1, 1, 1, 2])):
        items = [item_of(random, depth) for _ in range(random.randint(1, 4))]
        options.append("".join(items))
    return "|".join(options)


def item_of(random: Random, depth: int) -> str:
    kind = random.random()
    if depth == 0 or kind < 0.45:
        item = random.choice(ATOMS)
    elif kind < 0.7:
        item = random.choice(["(?:", "(?:", "(?>", "(?=", "(?!"]) + pattern_of(random, depth - 1)
        item += ")"
    elif kind < 0.8:
        return f"{random.choice(['(?<=', '(?<!'])}{random.choice(BEHIND)})"
    else:
        return random.choice(ANCHORS)
    repeats = ("*", "+", "?", "{1,2}", "*?", "*+", "?+")
    return f"(?:{item}){random.choice(repeats)}" if random.random() < 0.3 else item


def test_random_patterns_with_lookaround_agree_with_re() -> None:
    random = Random(7)
    num_compiled = 0
    while num_compiled < 250:
        source = random.choice(["", "", "(?m)", "(?s)", "(?i)"]) + pattern_of(random)
        try:
            oracle = re.compile(source, re.ASCII)
            dfa = compile_regex(source)
        except (re.error, InvalidCall):
            continue
        num_compiled += 1
        for text in random.sample(TEXTS, 40):
            assert dfa.matches(text) is bool(oracle.fullmatch(text)), (source, text)


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        (r"(['\"]).*\1", ["'a'", '""'], ["'a\"", "a"]),
        (r"(?P<q>[ab]{1,2})-(?P=q)", ["a-a", "ab-ab"], ["a-b", "ab-a"]),
        (r"(?<q>a|b)\1", ["aa", "bb"], ["ab"]),
        (r"(?i)(a)-\1", ["a-A", "A-a"], ["a-b"]),
        (r"(?:(a|b)\1)*", ["aabb", ""], ["ab"]),
        ("(?x) a b # both\n [ ]", ["ab "], ["ab", "a b "]),
        (r"\p{Lu}\p{L}+", ["Éa", "Ab"], ["éa", "É"]),
        (r"\uD83D\uDE00", ["😀"], ["a"]),
        (r"[\uD83D\uDE00-\uD83D\uDE4F]+", ["😀😁"], ["a", ""]),
        (r"(?m)a$\n^b", ["a\nb"], ["ab"]),
        (r"a*+b|a++c", ["aab", "aac", "b"], ["c"]),
    ],
)
def test_what_re_may_not_know_means_what_its_writers_mean(
    source: str, good: list[str], bad: list[str]
) -> None:
    dfa = compile_regex(source)
    assert [text for text in (*good, *bad) if dfa.matches(text)] == good


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        (r"\bcat\b", ["a cat.", "cat"], ["cats", "écat"]),
        (r"a\Bb", ["ab"], ["a b"]),
        ("a(?!b)c?", ["ac", "a"], ["ab"]),
        ("^(a|(?!b)[a-c]+)$", ["a", "cb"], ["bc", "b"]),
        ("a(?<=[ab])c", ["ac"], ["bc"]),
        ("(?<!ab)c", ["c", "bc"], ["abc"]),
        (r"^(['\"])x\1$", ["'x'", '"x"'], ["'x\""]),
        ("^a{,3}$", ["", "aaa"], ["aaaa"]),
        ("(?i)^yes$", ["YES", "yes"], ["no"]),
        (r"^\x41\u0042\cJ$", ["AB\n"], ["ABJ"]),
        ("^[^]$", ["a", "\n"], ["ab"]),
        (r"^\u{1F600}$", ["😀"], ["a"]),
        (r"^(?:[a-z]|[\uD83D\uDE00])$", ["a"], ["1"]),
        (r"\Aa\Z", ["a"], ["ab"]),
        ("^(?:a++|b)c$", ["aac", "bc"], ["c"]),
        (r"^(?:(?!b)[a-z-]{1,3}(?<!-)\.)+x$", ["a.x", "a-b.c.x"], ["b.x", "a-.x"]),
        (r"^[a-z\d](?:[a-z\d]|-(?=[a-z\d])){0,38}$", ["a-b", "a"], ["a-", "-a", "a--b"]),
        (r"^(?=[a-z]{2,3}$|\d+$).*b?$", ["ab", "12"], ["a", "a1"]),
    ],
)
def test_the_keyword_pattern_has_them_too(source: str, good: list[str], bad: list[str]) -> None:
    plain: dict[str, Any] = {"type": "string", "pattern": source}
    within = {"anyOf": [plain, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]}
    for schema in (plain, within, {**plain, "minLength": 0, "maxLength": 9}):
        guide = CONSTRAINTS.guide(JsonSchema(schema))
        assert [text for text in (*good, *bad) if takes(guide, json_of(text))] == good


def test_the_keyword_not_takes_back_a_pattern_with_lookaround() -> None:
    unlike = CONSTRAINTS.guide(JsonSchema({"type": "string", "not": {"pattern": "^(?:a(?!b)|c)"}}))
    assert [it for it in ("ab", "ac", "c", "d") if takes(unlike, json_of(it))] == ["ab", "d"]


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_realistic_patterns_are_taken_and_their_samples_are_matches(part: int) -> None:
    random = Random(11)
    for source, example in PATTERNS[part::4]:
        has_property = r"\p" in source
        oracle = regex.compile(source) if has_property else re.compile(source)
        narrow = oracle if has_property else re.compile(source, re.ASCII)
        for text in sampled(CONSTRAINTS.guide(Regex(source)), random, 2):
            assert narrow.fullmatch(text), (source, text)
        within = CONSTRAINTS.guide(JsonSchema({"type": "string", "pattern": source}))
        assert takes(within, json_of(example)), source
        texts = [json.loads(text) for text in sampled(within, random, 2)]
        for text in (*texts, *(changed(text, random) for text in (example, *texts) * 3)):
            if takes(within, json_of(text)):
                assert oracle.search(text), (source, text)


def changed(text: str, random: Random) -> str:
    place = random.randint(0, len(text))
    return text[:place] + random.choice("aZ1-_./ é\n") + text[place + random.randint(0, 1) :]
