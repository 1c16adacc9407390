"""Grammars that say what a request says in its fields, and constraints in vLLM's words."""

from __future__ import annotations

from typing import Any

import pytest

from forkroot.adapters.common.tools import ToolFormat
from forkroot.adapters.http.openai.grammars import settled
from forkroot.adapters.http.openai.toolchoice import toolbox_of
from forkroot.adapters.http.requests.reading import constraint_of
from forkroot.adapters.http.server.runtime import Limits
from forkroot.adapters.http.wire.wire import ChatRequest, CompletionRequest
from forkroot.core.api.protocol import Choices, Grammar, InvalidCall, JsonSchema, Regex
from forkroot.core.fsm.grammar.ending import END
from forkroot.core.fsm.grammar.lark import read_lark
from forkroot.core.fsm.grammar.matcher import Library
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

OBJECT = {"type": "object"}
ONE_RULE = (
    "%llguidance {}\n\nstart: answer\nanswer[capture, temperature=0.5, max_tokens=9]: /[a-z]+/\n"
)
TWO_RULES = '%llguidance {}\nstart: a "-" b\na[max_tokens=3]: /[a-z]+/\nb[max_tokens=4]: /[a-z]+/\n'


def request(**fields: Any) -> CompletionRequest:
    return CompletionRequest(prompt="x", **fields)


def test_what_the_only_rule_says_goes_into_the_fields() -> None:
    found = settled(request(ebnf=ONE_RULE))
    assert (found.temperature, found.max_tokens) == (0.5, 9)
    assert found.ebnf == "%llguidance {}\n\nstart: answer\nanswer[capture]: /[a-z]+/\n"


def test_a_field_of_the_request_counts_more() -> None:
    found = settled(request(structured_outputs={"grammar": ONE_RULE}, max_tokens=4))
    assert (found.temperature, found.max_tokens) == (0.5, 4)
    assert found.structured_outputs is not None
    assert "temperature" not in (found.structured_outputs.grammar or "")


@pytest.mark.parametrize("source", [TWO_RULES, "start: /a/", ""])
def test_settings_of_parts_stay(source: str) -> None:
    assert settled(request(ebnf=source)) == request(ebnf=source)


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"structured_outputs": {"json": OBJECT}}, JsonSchema(OBJECT, (", ", ": "))),
        ({"structured_outputs": {"json_object": True}}, JsonSchema(OBJECT, (", ", ": "))),
        ({"structured_outputs": {"regex": "[ab]", "backend": "any"}}, Regex("[ab]")),
        ({"guided_choice": ["a", "b"]}, Choices(("a", "b"))),
        ({"guided_json": '{"type": "null"}'}, JsonSchema({"type": "null"}, (", ", ": "))),
        ({"guided_grammar": 'root ::= "a"'}, Grammar('root ::= "a"', "gbnf")),
        ({"ebnf": ONE_RULE}, Grammar(ONE_RULE)),
        ({"structured_outputs": {"regex": "a"}, "guided_regex": "a"}, Regex("a")),
    ],
)
def test_constraints_in_the_words_of_vllm(fields: Any, constraint: Any) -> None:
    found = constraint_of(request(**fields), Limits())
    assert found is not None and found.constraint == constraint


@pytest.mark.parametrize(
    ("fields", "separators"),
    [
        ({}, (", ", ": ")),
        ({"json_separators": None}, (", ", ": ")),
        ({"json_separators": [",", ":"]}, (",", ":")),
    ],
)
def test_json_has_blanks_unless_its_separators_come_beside_it(fields: Any, separators: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "null"}}}
    for fields_sent in ({"response_format": form}, {"json_schema": {"type": "null"}}):
        found = constraint_of(request(**fields_sent, **fields), Limits())
        assert found is not None
        assert found.constraint == JsonSchema({"type": "null"}, separators)
    found = constraint_of(request(response_format={"type": "json_object"}, **fields), Limits())
    assert found is not None and found.constraint == JsonSchema(OBJECT, separators)


@pytest.mark.parametrize(
    "fields", [{}, {"regex": "a"}, {"json_schema": {}, "json_separators": [";", ":"]}]
)
def test_separators_without_a_schema_or_that_are_none_are_refused(fields: Any) -> None:
    with pytest.raises(InvalidCall) as caught:
        constraint_of(request(**{"json_separators": [", ", ": "], **fields}), Limits())
    assert caught.value.field == "json_separators"


@pytest.mark.parametrize(
    ("separators", "taken", "refused"),
    [
        (None, b"[1, 2]", b"[1,2]"),
        ([", ", ": "], b"[1, 2]", b"[1,2]"),
        ([",", ":"], b"[1,2]", b"[1, 2]"),
    ],
)
def test_a_schema_beside_tools_has_its_separators_too(
    separators: Any, taken: bytes, refused: bytes
) -> None:
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"const": [1, 2]}}},
        "json_separators": separators,
    }
    requested = toolbox_of(ChatRequest.model_validate(body), ToolFormat(), Limits()).requested
    assert requested is not None and isinstance(requested.constraint, Grammar)
    library = Library(Vocabulary([bytes([byte]) for byte in range(256)], []))
    matcher = library.compile(read_lark(requested.constraint.source).source, "grammar")[1]
    assert matcher.validate_tokens([*taken, END]) == len(taken) + 1
    assert matcher.validate_tokens([*refused, END]) < len(refused)


def test_two_different_constraints_are_refused() -> None:
    with pytest.raises(InvalidCall, match="guided_regex"):
        constraint_of(request(structured_outputs={"regex": "a"}, guided_regex="b"), Limits())
