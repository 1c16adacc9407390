"""Cursors of grammars: masks, ends, forced runs, required bytes, and answers finished in time."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from forkroot.core.api.protocol import CallFailed, InvalidCall
from forkroot.core.fsm.grammar.explore import explore
from forkroot.core.fsm.grammar.grammar import GrammarCursor, GrammarGuide
from forkroot.core.fsm.grammar.lark import read_grammar, read_lark
from forkroot.core.fsm.grammar.matcher import Library
from forkroot.core.fsm.grammar.rules import schema_grammar
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

from .. import vocabularies as tokens

BYTES = Vocabulary([bytes([byte]) for byte in range(256)] + [b"<end>"], [256])
LIBRARY = Library(BYTES)
PIECES = tokens.vocabulary(3)
PIECES_LIBRARY = Library(PIECES)

TREE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["value", "children"],
    "additionalProperties": False,
}
SUM = """
start: term (("+" | "-") term)*
term: NUMBER | "(" start ")"
NUMBER: /[0-9]+/
"""
NESTED = 'start: "[" start "]" | "x"'
NOTES = {
    "lark": SUM,
    "gbnf": 'root ::= term (("+" | "-") term)*\nterm ::= [0-9]+ | "(" root ")"  # either\n',
    "ebnf": "Sum ::= Term (('+' | '-') Term)*\nTerm ::= #x30 | [1-9] [0-9]* | '(' Sum ')' /* or */",
}


def guide_of(source: str, library: Library = LIBRARY) -> GrammarGuide:
    return GrammarGuide(explore(read_lark(source), library), library)


def cursor_of(source: str, written: bytes = b"", required: bytes = b"") -> GrammarCursor:
    return guide_of(source).cursor(written, required)


def allowed_one_by_one(guide: GrammarGuide, written: bytes, vocabulary: Vocabulary) -> list[int]:
    """The tokens that are allowed after some text, each of them tried."""
    found = []
    for token, data in enumerate(vocabulary.token_bytes):
        if vocabulary.is_end[token]:
            is_allowed = guide.cursor(written).is_accepting
        else:
            matcher = guide.byte_matcher(written + data)
            is_allowed = bool(data) and matcher is not None and not matcher.is_error()
        if is_allowed:
            found.append(token)
    return found


@pytest.mark.parametrize("source", [SUM, NESTED, schema_grammar(TREE), schema_grammar(True)])
def test_masks_allow_the_tokens_that_can_be_taken_and_the_end_where_it_may_be(source: str) -> None:
    random = Random(source)
    guide = guide_of(source, PIECES_LIBRARY)
    for _ in range(4):
        cursor, written = guide.cursor(), b""
        for _ in range(12):
            allowed = tokens.tokens_of(cursor.mask(), PIECES)
            assert allowed == allowed_one_by_one(guide, written, PIECES)
            texts = [token for token in allowed if not PIECES.is_end[token]]
            if not texts:
                break
            token = random.choice(texts)
            written += PIECES.token_bytes[token]
            cursor.advance(token)


@pytest.mark.parametrize("syntax", NOTES)
def test_the_same_sums_in_every_notation(syntax: str) -> None:
    guide = GrammarGuide(explore(read_grammar(NOTES[syntax], syntax), LIBRARY), LIBRARY)
    for text in (b"1", b"1+2-30", b"(1-(2))", b"((0))+7"):
        assert guide.cursor(text).is_accepting
    for text in (b"", b"1+", b"(1", b"()", b"1++2", b"(1))"):
        matcher = guide.byte_matcher(text)
        assert matcher is None or not matcher.is_accepting()


def test_a_cursor_knows_where_the_answer_may_and_must_end() -> None:
    cursor = cursor_of('start: "a" "b"?')
    assert (cursor.is_accepting, cursor.is_finished) == (False, False)
    cursor.advance(ord("a"))
    assert (cursor.is_accepting, cursor.is_finished) == (True, False)
    other = cursor.copy()
    other.advance(ord("b"))
    assert (other.is_accepting, other.is_finished) == (True, True)
    assert not cursor.is_finished
    cursor.advance(256)
    assert (cursor.is_accepting, cursor.is_finished) == (True, True)


@pytest.mark.parametrize("token", [ord("]"), 256, 257, -1])
def test_a_token_that_is_not_allowed_fails_and_moves_nothing(token: int) -> None:
    cursor = cursor_of(NESTED, b"[[")
    with pytest.raises(CallFailed, match=f"token {token} is not allowed"):
        cursor.advance(token)
    assert tokens.tokens_of(cursor.mask(), BYTES) == [ord("["), ord("x")]
    cursor.advance(ord("x"))
    assert cursor.forced() == b"]]"


def test_a_token_of_which_only_the_beginning_is_allowed_moves_nothing() -> None:
    vocabulary = Vocabulary([b"a", b"b", b"ab", b"abc", b"c", b"<end>"], [5])
    cursor = guide_of('start: "ab" "d"? | "ac"', Library(vocabulary)).cursor()
    with pytest.raises(CallFailed):
        cursor.advance(3)
    cursor.advance(0)
    assert tokens.tokens_of(cursor.mask(), vocabulary) == [1, 4]


def test_bytes_that_are_not_allowed_make_no_cursor() -> None:
    with pytest.raises(CallFailed, match="does not allow b'x]'"):
        cursor_of(NESTED, b"x]")
    with pytest.raises(CallFailed, match=r"does not allow b'\[\]'"):
        cursor_of(NESTED, b"[", required=b"]")


def test_forced_runs_end_where_a_choice_begins_or_the_answer_may_end() -> None:
    source = schema_grammar(TREE)
    assert cursor_of(source).forced() == b'{"value":'
    assert cursor_of(source, b'{"value":1,"c').forced() == b'hildren":['
    assert cursor_of(source, b'{"value":1,').forced() == b'"'
    assert cursor_of('start: "ab" "cd"?').forced() == b"ab"
    assert cursor_of('start: "ab" "cd"?', b"ab").forced() == b""
    assert cursor_of('start: "ab" "cd"?', b"abc").forced() == b"d"


@pytest.mark.parametrize("written", ["", '{"value":', '{"value":1,"name":"', '{"value":12'])
def test_a_token_joins_what_is_written_where_its_rest_may_come_next(written: str) -> None:
    guide, data = guide_of(schema_grammar(TREE), PIECES_LIBRARY), written.encode()
    cursor = guide.cursor(data)
    for size in range(1, len(data)):
        tail = data[-size:]
        rests = [own[size:] for own in PIECES.token_bytes if own.startswith(tail)]
        expected = any(rest and guide.byte_matcher(data + rest) is not None for rest in rests)
        assert cursor.joins(tail) is expected


def test_forced_runs_hold_whole_characters() -> None:
    source = 'start: A start | "."\nA: /鱼[éè]|😀!/'
    assert cursor_of(source).forced() == b""
    assert cursor_of(source, "鱼".encode()[:1]).forced() == "鱼".encode()[1:]
    assert cursor_of(source, "鱼".encode()).forced() == b""
    assert cursor_of(source, "😀".encode()[:2]).forced() == "😀!".encode()[2:]


def test_a_run_that_is_forced_for_ever_comes_in_pieces() -> None:
    guide = guide_of('start: "a" start')
    assert set(guide.cursor().forced()) == {ord("a")}
    assert guide.end is None
    assert guide.cursor().shortest_finish() == 0
    assert tokens.tokens_of(guide.cursor().mask_within(3), BYTES) == [ord("a")]


def write(cursor: GrammarCursor, budget: int, random: Random) -> bytes:
    """Generate at random within a budget; what was written. An end is not chosen lightly."""
    written, vocabulary = b"", cursor.guide.vocabulary
    while budget and not cursor.is_finished:
        allowed = tokens.tokens_of(cursor.mask_within(budget), vocabulary)
        token = random.choices(allowed, [1 - 0.8 * vocabulary.is_end[t] for t in allowed])[0]
        if not cursor.fits(token, budget):
            continue
        cursor.advance(token)
        if not cursor.has_ended:
            written += vocabulary.token_bytes[token]
            budget -= 1
    return written


EXPRESSION = {
    "$defs": {
        "e": {
            "oneOf": [
                {
                    "type": "object",
                    "properties": {
                        "left": {"$ref": "#/$defs/e"},
                        "op": {"const": "add"},
                        "right": {"$ref": "#/$defs/e"},
                    },
                    "required": ["op", "left", "right"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": {"lit": {"type": "string", "pattern": "^[a-z]{3,9}$"}},
                    "required": ["lit"],
                    "additionalProperties": False,
                },
            ]
        }
    },
    "$ref": "#/$defs/e",
}
CODE = {"type": "string", "pattern": "^[a-z]{2,6}-[0-9]+$"}
REF = {"$ref": "#/$defs/e"}
PAIR = {
    "type": "object",
    "properties": {"k": CODE, **{key: {"anyOf": [REF, {"type": "null"}]} for key in "lr"}},
    "required": ["k", "l", "r"],
}
ROW = {
    "type": "array",
    "prefixItems": [
        {"enum": ["and", "or", "not"]},
        {"anyOf": [REF, CODE]},
        {"anyOf": [REF, {"type": "object", "properties": {"w": CODE}, "required": ["w"]}]},
    ],
    "minItems": 3,
    "items": False,
}
NAMES = {
    "type": "object",
    "patternProperties": {"^[a-z]+_n$": {"$ref": "#"}, "^[a-z]+_v$": CODE},
    "additionalProperties": False,
    "minProperties": 1,
}
FIELDS = ("alpha", "beta", "gamma")
SCHEMAS: dict[str, Any] = {
    "tree": TREE,
    "anything": True,
    "open object": {"type": "object", "properties": {"id": {"type": "integer"}, "more": {}}},
    "expression": EXPRESSION,
    "pairs": {"$defs": {"e": PAIR}, **REF},
    "rows": {"$defs": {"e": ROW}, **REF},
    "names by patterns": NAMES,
    "far from its end": {
        "items": {
            "anyOf": [
                {"$ref": "#"},
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {field: {"type": "string", "minLength": 3} for field in FIELDS},
                    "required": list(FIELDS),
                },
            ]
        }
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_answers_to_a_schema_are_valid_and_finished_within_any_budget(name: str) -> None:
    random = Random(name)
    guide = guide_of(schema_grammar(SCHEMAS[name]), PIECES_LIBRARY)
    validator = Draft202012Validator(SCHEMAS[name])
    least = guide.cursor().shortest_finish()
    assert least > 0
    for budget in (least, least + 1, least + 5, 30, 30, 60, 120, 300):
        text = write(guide.cursor(), budget, random).decode()
        assert validator.is_valid(json.loads(text)), text


BLOCKS = 'start: block+\nblock: "begin " block+ "end;" | "x:=" NUMBER ";"\nNUMBER: /[0-9]{2,4}/\n'
LINES = 'start: (LINE "\\n")+ "END"\nLINE: /[^\\n]*/\n'
TAGS = 'start: "<" tag ">" /[^<]*/ "</" tag ">"\ntag: "a" | "bold"\n'


@pytest.mark.parametrize("source", [SUM, NESTED, BLOCKS, LINES, TAGS])
def test_texts_of_a_grammar_are_finished_within_any_budget(source: str) -> None:
    random = Random(source)
    guide = guide_of(source, PIECES_LIBRARY)
    least = guide.cursor().shortest_finish()
    assert least > 0
    for budget in (least, least + 1, least + 5, 30, 30, 60, 120, 300):
        text = write(guide.cursor(), budget, random)
        assert guide.cursor(text).is_accepting, text


@pytest.mark.parametrize("required", [b'{"va', b'{"value":1,"name":"J\xc3'])
def test_required_bytes_are_spelled_within_the_budget(required: bytes) -> None:
    random = Random(required)
    guide = guide_of(schema_grammar(TREE), PIECES_LIBRARY)
    least = guide.cursor(required=required).shortest_finish()
    for budget in (least, least + 1, least + 3, least + 40):
        text = write(guide.cursor(required=required), budget, random)
        assert text.startswith(required)
        assert Draft202012Validator(TREE).is_valid(json.loads(text))


def test_where_nothing_fits_the_tokens_that_come_closest_are_left() -> None:
    assert fitting(cursor_of(schema_grammar(TREE)), 3) == [ord("{")]
    assert fitting(cursor_of(NESTED, b"[["), 1) == [ord("x")]


def fitting(cursor: GrammarCursor, budget: int) -> list[int]:
    """The tokens that are left once all that do not fit were reported."""
    while True:
        allowed = tokens.tokens_of(cursor.mask_within(budget), BYTES)
        fits = [cursor.fits(token, budget) for token in allowed]
        if all(fits):
            return allowed


def test_what_fits_is_as_free_as_with_any_budget() -> None:
    cursor = cursor_of(schema_grammar(TREE), b'{"value":1,"name":"x')
    wide = tokens.tokens_of(cursor.mask(), BYTES)
    budget = cursor.shortest_finish() + 2
    assert tokens.tokens_of(cursor.mask_within(budget), BYTES) == wide
    assert all(cursor.fits(ord(letter), budget) for letter in "abcxyz, {[")


def test_a_token_that_does_not_fit_is_not_allowed_again() -> None:
    cursor = cursor_of(NESTED, b"[[")
    budget = cursor.shortest_finish()
    assert ord("[") in tokens.tokens_of(cursor.mask_within(budget), BYTES)
    assert not cursor.fits(ord("["), budget)
    assert ord("[") not in tokens.tokens_of(cursor.mask_within(budget), BYTES)


def test_a_wide_budget_takes_nothing_away() -> None:
    cursor = cursor_of(schema_grammar(TREE), b'{"value":1,"name":"x')
    assert cursor.mask_within(10_000) is cursor.mask()
    with pytest.raises(ValueError, match="read-only"):
        cursor.mask()[0] = 1


def test_the_known_end_does_not_depend_on_how_the_text_was_cut_into_tokens() -> None:
    text = b'{"value":12,"children":[{"value":-3,"name":"ab'
    whole = guide_of(schema_grammar(TREE)).end_tracker(text).end
    guide = guide_of(schema_grammar(TREE))
    for size in range(0, len(text) + 1, 3):
        guide.end_tracker(text[:size])
    assert guide.end_tracker(text).end == whole == b'","children":[]}]}'


@pytest.mark.parametrize(
    "source, message",
    [
        ("start: foo", 'unknown name: "foo"'),
        ("start: (", "Expected token"),
        ('begin: "a"', "no start rule"),
        ("start: /a(?=b)/", "look-around"),
        ("start: a\na: a", "derives no text that ends"),
        ('root ::= "a"', 'are of the syntax "ebnf" or "gbnf"'),
        ('start: "a" <|end|>', "special tokens are not allowed): '<|end|>' in line 1"),
        ('start: "a"\nstart[max_tokens=3]: "b"', "'max_tokens' in line 2"),
        ('start: %json {"a":', "JSON after %json"),
        ("\n".join(f"a{i}: a{i + 1}" for i in range(1001)), "at most 1000 rules and terminals"),
        ("start: " + "|".join(f'"w{i}"' for i in range(600)), "at most 500 alternatives in a rule"),
        (
            'start: a0 "z"\n'
            + "\n".join(f'a{i}: a{i + 1}? "x"? "y"?' for i in range(900))
            + "\na900: ",
            "Current row has",
        ),
    ],
)
def test_a_bad_grammar_is_refused_in_one_line(source: str, message: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        guide_of(source)
    assert caught.value.field == "grammar"
    assert message in caught.value.allowed
    assert "\n" not in caught.value.allowed


def test_a_schema_inside_a_grammar_is_read_as_every_schema() -> None:
    guide = guide_of('start: "call " %json {"type": "object", "properties": {"a": {}}} "!"')
    assert guide.cursor(b'call {"a":[1,{}]}!').is_finished
    with pytest.raises(InvalidCall) as caught:
        guide_of('start: %json {"type": "object", "minProperties": 2}')
    assert (caught.value.field, caught.value.value) == (
        "grammar",
        "%json #={'type': 'object', 'minProperties': 2}",
    )


def test_a_schema_inside_a_grammar_has_the_separators_that_guidance_sets() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {}}, "b": {"const": {"c": [1, 2]}}},
        "required": ["a", "b"],
    }
    schema_of_separators = {"x-guidance": {"item_separator": ", ", "key_separator": ": "}}
    guide = guide_of(f"start: %json {json.dumps({**schema, **schema_of_separators})}")
    assert guide.cursor(b'{"a": [1, {"x": []}], "b": {"c": [1, 2]}}').is_finished
    for other in ({}, {"x-guidance": {"item_separator": "x", "key_separator": ":"}}):
        guide = guide_of(f"start: %json {json.dumps({**schema, **other})}")
        assert guide.cursor(b'{"a":[1,{"x":[]}],"b":{"c":[1,2]}}').is_finished


def test_a_vocabulary_without_all_bytes_is_steered_to_what_it_can_spell() -> None:
    vocabulary = Vocabulary([b"[", b"]", b"x", b"yy", b"]]", b"<end>"], [5])
    guide = guide_of('start: "[" start "]" | "z" | "yy"', Library(vocabulary))
    assert guide.end == b"yy"
    for seed in range(10):
        text = write(guide.cursor(), 9, Random(seed))
        assert guide.cursor(text).is_accepting


def test_the_error_of_an_invalid_grammar_is_reported_once() -> None:
    with pytest.raises(InvalidCall) as caught:
        guide_of("start: foo\n", PIECES_LIBRARY)
    assert str(caught.value).count("invalid ") == 1
    assert "foo" in str(caught.value)
