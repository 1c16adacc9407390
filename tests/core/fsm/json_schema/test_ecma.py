"""The keyword `pattern`: what both dialects find, what either finds, and lookaround at the ends."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from forkroot.core.fsm.grammar.ending import END
from forkroot.core.fsm.grammar.matcher import Library
from forkroot.core.fsm.grammar.rules import schema_grammar
from forkroot.core.fsm.json_schema.patterns.ecma import read_pattern
from forkroot.core.fsm.json_schema.patterns.lookaround import Parts, is_in, parts_of
from forkroot.core.fsm.json_schema.patterns.strings import holds
from forkroot.core.fsm.regex.errors import InvalidSchema
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

LIBRARY = Library(Vocabulary([bytes([byte]) for byte in range(256)], []))

TEXTS = ["", "a", "ab", "ba", "a-b", "--", "-a", "a-", "a--b", "x1", "1", "aa1", "{a}", "${a}"]
TEXTS += ["\\${a}", "b${a}", "a{1", "name", "named", "style", "a\n", "P", "P1Y", "abc", "x" * 40]


@pytest.mark.parametrize(
    "source",
    [
        *("^(?!name|style).+$", "^(?!-)(?!.{0,32}--)[a-z0-9-]{1,32}(?<!-)$", "^P(?!$)([0-9]+Y)?$"),
        *("^(?=[^-]+$)(?=.*[a-z]).+$", "^(?=.{1,2}$)[a-z]", "^a(?!b)", "^[a(](?=-).*$", "^(?!a$)"),
        *(r"(?<!\\)\$\{", r".*(?<!\\)\$\{(.*?)\}|(?<!x)1", r"(?<!a)b", r"^(?<!a)b", "{a}", r"\${a"),
        *("a{1", "a{,b", "{", "}", "a{1}", "^a$|b", "a$|1", "$a|b", "^.*(?<=b)$", "(?<![a-z])b"),
    ],
)
def test_a_pattern_is_found_where_re_finds_it(source: str) -> None:
    texts = [text for text in TEXTS if "\n" not in text]
    assert [t for t in texts if is_in(source, t)] == [t for t in texts if re.search(source, t)]


def test_a_pattern_read_wide_is_found_where_either_dialect_finds_it() -> None:
    texts = ["1", "٣", "a", "é", "\u2028", " ", "\u00a0", "\ufeff", "a\n", "\n"]
    for source in (r"^\d$", r"^\D$", r"^[^\d]$", r"^\w$", r"^\W$", r"^\s$", r"^\S$", "^.$", "^a$"):
        by_re = [text for text in texts if re.search(source, text)]
        ascii_only = [text for text in texts if re.search(source, text, re.ASCII)]
        wide = [text for text in texts if holds(read_pattern(source, is_wide=True), text)]
        narrow = [text for text in texts if holds(read_pattern(source), text)]
        assert set(wide) >= {*by_re, *ascii_only}
        assert set(narrow) <= {*by_re} & {*ascii_only}


def test_lookaround_at_the_ends_becomes_patterns_of_its_own() -> None:
    assert parts_of("^(?!a)b(?<!c)$") == Parts(("^b$",), ("^(?:a)", "(?:c)$"))
    assert parts_of("^[(](?=a)b") == Parts(("^[(]b", "^[(](?:a)"))
    for source in ("a(?!b)c", "^a|(?!b)", "^(?!a)*b", "^(a", "(?!a)", "^a)"):
        assert parts_of(source) == Parts((source,))


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (r"(.*)\1", "backreferences"),
        ("(?:a|ab)*+", "possessive"),
        ("(?<=a(?=b))c", "inside a lookbehind"),
        (r"\p{Script=Greek}", "Unicode properties"),
        ("a$b", "found in some text"),
        ("a(?=b)c", "found in some text"),
        (r"^\uD83D\uDE00$", "found in some text"),
        ("[]a]", "an empty class"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(source: str, what: str) -> None:
    with pytest.raises(InvalidSchema, match=what):
        is_in(source, "a")


def test_general_categories_of_unicode_are_known() -> None:
    assert [t for t in ("a", "é", "1", "_", "Ω") if is_in(r"^\p{L}$", t)] == ["a", "é", "Ω"]
    assert [t for t in ("a", "é", "1", "_", "Ω") if is_in(r"^[\p{Number}_]$", t)] == ["1", "_"]
    assert [t for t in ("a", "A", "1") if is_in(r"^\P{Lu}$", t)] == ["a", "1"]


def takes(schema: Any, value: Any) -> bool:
    """Whether the grammar of a schema takes a value."""
    matcher = LIBRARY.compile(schema_grammar(schema), "json_schema")[1]
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return bool(matcher.validate_tokens([*text, END]) == len(text) + 1)


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        ("^(?!name|style).+$", ["nam", "x"], ["name", "styles", ""]),
        ("^(?!-)(?!.*--)[a-z-]{1,9}(?<!-)$", ["a", "a-b"], ["-a", "a--b", "a-", ""]),
        ("^(?=.{1,3}$)[a-z]+", ["a", "abc"], ["abcd", "", "1"]),
        (r"^(?!\d)", ["a", ""], ["1", "٣"]),
    ],
)
def test_strings_and_names_keep_to_lookaround(source: str, good: list[str], bad: list[str]) -> None:
    text = {"type": "string", "pattern": source}
    assert [it for it in (*good, *bad) if takes(text, it)] == good
    names = {"type": "object", "patternProperties": {source: {"const": 1}}}
    assert [it for it in (*good, *bad) if takes(names, {it: 1})] == good
    other = {**names, "additionalProperties": {"const": 2}}
    if source.startswith("^(?!") and "name" not in source and "--" not in source:
        assert takes(other, {"1": 2}) and not takes(other, {"1": 1})


def test_patterns_that_must_not_be_found_are_found_by_no_dialect() -> None:
    schema = {"type": "string", "not": {"pattern": r"^\d"}}
    assert [it for it in ("a", "1", "٣", "") if takes(schema, it)] == ["a", ""]
