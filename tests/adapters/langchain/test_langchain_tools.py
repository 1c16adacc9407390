"""Tools and structured answers: held to their schemas, read back as LangChain's tool calls."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")

import jsonschema
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from forkroot.adapters.common.tools import GAPS, Invocation, ToolFormat, ToolSpec
from forkroot.adapters.langchain import ChatForkroot
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import (
    Call,
    Chat,
    Completion,
    Grammar,
    InvalidCall,
    Message,
    Output,
    Sampling,
    Text,
)
from forkroot.core.local import LocalBackend


@tool
def lookup(word: str) -> str:
    """Look up a word."""
    return f"meaning of {word}"


@tool
def timer(minutes: int) -> str:
    """Set a timer."""
    return "set"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    names: list[str] = Field(max_length=2)
    size: float | None = None


class Everything(BaseModel):
    """One field of each kind."""

    kind: Literal["a", "b"]
    colour: Colour
    number: int = Field(ge=1, le=9)
    flag: bool = False
    inner: Inner
    note: str | None = None


@pytest.fixture
def model(local: LocalBackend) -> ChatForkroot:
    return ChatForkroot(model=local, temperature=0)


def test_a_model_calls_the_tool_that_it_is_requested(model: ChatForkroot) -> None:
    bound = model.bind_tools([lookup, timer])
    message = bound.invoke("Look up Memhuv.")
    assert [(call["name"], call["args"]) for call in message.tool_calls] == [
        ("lookup", {"word": "Memhuv"})
    ]
    assert message.content == ""
    assert message.response_metadata["finish_reason"] == "tool_calls"


def test_streamed_tool_calls_add_up_to_the_same(model: ChatForkroot) -> None:
    bound = model.bind_tools([lookup, timer])
    whole = bound.invoke("Look up Memhuv.")
    first, *rest = bound.stream("Look up Memhuv.")
    for chunk in rest:
        first += chunk
    assert isinstance(first, AIMessageChunk)
    assert [(call["name"], call["args"]) for call in first.tool_calls] == [
        (call["name"], call["args"]) for call in whole.tool_calls
    ]
    assert first.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


def test_a_model_with_tools_may_still_answer(model: ChatForkroot) -> None:
    free = model.invoke("Hello!")
    message = model.bind_tools([lookup]).invoke("Hello!")
    assert message.tool_calls == []
    assert message.content == free.content


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("any", {"lookup", "timer"}),
        ("required", {"lookup", "timer"}),
        (True, {"lookup", "timer"}),
        ("timer", {"timer"}),
        ({"type": "function", "function": {"name": "timer"}}, {"timer"}),
    ],
)
def test_a_choice_of_tools_is_kept(model: ChatForkroot, choice: Any, names: set[str]) -> None:
    message = model.bind_tools([lookup, timer], tool_choice=choice).invoke("Hello!")
    assert message.tool_calls
    assert {call["name"] for call in message.tool_calls} <= names


def test_no_tool_is_shown_or_called_where_none_shall_be() -> None:
    backend = ScriptedBackend('<tool_call>{"name": "lookup", "arguments": {}}</tool_call>')
    message = ChatForkroot(model=backend).bind_tools([lookup], tool_choice="none").invoke("Hello")
    assert backend.calls[-1].prompt.tools == ()
    assert message.tool_calls == []


def test_tool_choices_that_mean_nothing_are_refused() -> None:
    model = ChatForkroot(model=ScriptedBackend("yes"))
    with pytest.raises(InvalidCall, match="invalid tool_choice='other'"):
        model.bind_tools([lookup], tool_choice="other")
    with pytest.raises(InvalidCall, match="tool_choice=7"):
        model.bind_tools([lookup], tool_choice=7)
    spaced = {"name": "a b", "description": "", "parameters": {"type": "object", "properties": {}}}
    with pytest.raises(InvalidCall, match=r"tools\[0\]\.name='a b'"):
        model.bind_tools([spaced]).invoke("Hello")


def test_calls_that_are_unconstrained_and_not_json_are_reported_as_invalid() -> None:
    backend = ScriptedBackend('Well. <tool_call>{"name": "lookup", "arguments": {"word": zo')
    bound = ChatForkroot(model=backend).bind_tools([lookup], strict=False)
    message = bound.invoke("Hello")
    assert backend.calls[-1].constraint is None
    assert message.content == "Well."
    assert [call["name"] for call in message.invalid_tool_calls] == ["lookup"]


@pytest.mark.parametrize(
    ("cut", "reason"), [(0, "tool_calls"), (1, "length"), (len("</tool_call>") + 3, "length")]
)
def test_an_answer_that_was_cut_off_ends_for_calls_where_these_are_whole(
    cut: int, reason: str
) -> None:
    text = ToolFormat().write([Invocation("lookup", '{"word": "a"}')])
    output = Output(text[: len(text) - cut], finish_reason="length")
    backend = ScriptedBackend(lambda call: Completion((output,)))
    bound = ChatForkroot(model=backend).bind_tools([lookup])
    assert bound.invoke("Go").response_metadata["finish_reason"] == reason
    assert [*bound.stream("Go")][-1].response_metadata["finish_reason"] == reason


def test_several_calls_are_read_one_by_one() -> None:
    calls = [Invocation("lookup", '{"word": "a"}'), Invocation("timer", '{"minutes": 3}')]
    backend = ScriptedBackend(ToolFormat().write(calls), chunk_len=3)
    bound = ChatForkroot(model=backend).bind_tools([lookup, timer])
    assert [call["args"] for call in bound.invoke("Go").tool_calls] == [
        {"word": "a"},
        {"minutes": 3},
    ]
    first, *rest = bound.stream("Go")
    for chunk in rest:
        first += chunk
    assert [call["args"] for call in first.tool_calls] == [{"word": "a"}, {"minutes": 3}]


@pytest.mark.parametrize("gap", GAPS)
def test_the_blanks_of_tool_calls_are_those_that_the_model_would_write(gap: str) -> None:
    likeliest = ToolFormat(gap).opening("look_up")

    def answer(call: Call) -> str:
        return likeliest if call.options else "yes"

    backend = ScriptedBackend(answer)
    found = backend.submit(ToolFormat.question()).result()
    assert ToolFormat.of_answer(found).gap in GAPS
    model = ChatForkroot(model=backend)
    model.bind_tools([lookup]).invoke("Hello")
    model.bind_tools([lookup]).invoke("Hello")
    assert sum(bool(call.options) for call in backend.calls) == 2  # ours, and the model's once


def test_the_embedded_models_format_is_its_templates(local: LocalBackend) -> None:
    assert ToolFormat.of_answer(local.submit(ToolFormat.question()).result()) == ToolFormat("")


@pytest.mark.parametrize(
    ("method", "seed"), [("function_calling", 1), ("json_schema", 1), ("json_mode", 3)]
)
def test_a_structured_answer_is_always_valid(local: LocalBackend, method: str, seed: int) -> None:
    model = ChatForkroot(model=local, temperature=1, seed=seed, max_tokens=100)
    found = model.with_structured_output(Everything, method=method, strict=True).invoke("Go")
    assert isinstance(found, Everything)
    schema = Everything.model_json_schema()
    raw = model.with_structured_output(schema, method=method, include_raw=True).invoke("Go")
    assert raw["parsing_error"] is None
    assert isinstance(raw["raw"], AIMessage)
    jsonschema.validate(raw["parsed"], schema)


class Price(BaseModel):
    """A price."""

    amount: Decimal


@pytest.mark.parametrize("method", ["function_calling", "json_schema", "json_mode"])
def test_a_decimal_is_always_one(local: LocalBackend, method: str) -> None:
    for seed in range(3):
        model = ChatForkroot(model=local, temperature=2, seed=seed, max_tokens=60)
        answer = model.with_structured_output(Price, method=method).invoke("Go")
        assert isinstance(answer, Price)
        assert answer.amount.is_finite()


def test_a_structured_answer_is_spelled_as_models_learn_to_write(model: ChatForkroot) -> None:
    class Person(BaseModel):
        """A person."""

        name: str
        age: int

    text = "Name: Anna; Age: 42. JSON:"
    found = model.with_structured_output(Person, method="json_schema", include_raw=True)
    answer = found.invoke(text)
    assert answer["raw"].content == '{"name": "Anna", "age": 42}'
    assert answer["parsed"] == Person(name="Anna", age=42)
    assert model.with_structured_output(Person).invoke(text) == Person(name="Anna", age=42)


def test_what_lies_within_a_structured_answer_is_spelled_so_too(model: ChatForkroot) -> None:
    class Person(BaseModel):
        """A person."""

        name: str
        age: int

    class Case(BaseModel):
        """A case."""

        who: Person

    found = model.with_structured_output(Case, method="json_schema", include_raw=True)
    answer = found.invoke("Name: Anna; Age: 42. JSON:")
    assert answer["raw"].content == '{"who": {"name": "Anna", "age": 42}}'


@pytest.mark.parametrize(
    "schema",
    [
        {"title": "Colour", "type": "string", "enum": ["red", "blue"]},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        {"anyOf": [{"type": "boolean"}, {"const": 7}]},
        Colour,
    ],
)
def test_a_schema_of_anything_is_held_to(model: ChatForkroot, schema: Any) -> None:
    held = {"enum": [it.value for it in Colour]} if schema is Colour else schema
    for method in ("json_schema", "json_mode"):
        answer = model.with_structured_output(schema, method=method).invoke("Go", max_tokens=40)
        jsonschema.validate(answer.value if schema is Colour else answer, held)
    with pytest.raises(InvalidCall, match=r"expected a schema of objects, .*method='json_schema'"):
        model.with_structured_output(schema)


def test_an_enum_gives_its_members_also_in_a_stream() -> None:
    model = ChatForkroot(model=ScriptedBackend('"red"'))
    found = model.with_structured_output(Colour, method="json_schema")
    assert found.invoke("Go") is Colour.RED
    assert [*found.stream("Go")] == [Colour.RED]
    cut = ChatForkroot(model=ScriptedBackend('"re')).with_structured_output(
        Colour, method="json_schema", include_raw=True
    )
    answer = cut.invoke("Go")
    assert answer["parsed"] is None
    assert "is not a value of Colour" in str(answer["parsing_error"])


def test_structured_answers_stream_as_they_grow(model: ChatForkroot) -> None:
    schema = Everything.model_json_schema()
    *_, last = model.with_structured_output(schema, method="json_schema").stream("Go")
    jsonschema.validate(last, schema)


def test_without_a_schema_json_mode_gives_any_object(model: ChatForkroot) -> None:
    answer = model.with_structured_output(method="json_mode").invoke("Country: Peru", max_tokens=40)
    assert type(answer) is dict
    for method in ("function_calling", "json_schema"):
        with pytest.raises(InvalidCall, match="invalid schema=None"):
            model.with_structured_output(None, method=method)
    with pytest.raises(InvalidCall, match="invalid method='json'"):
        model.with_structured_output(None, method="json")


def test_an_answer_by_schema_may_instead_be_a_call() -> None:
    backend = ScriptedBackend('{"a": 1}')
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    requested = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    bound = ChatForkroot(model=backend).bind_tools([lookup], response_format=requested)
    assert json.loads(bound.invoke("Go").content) == {"a": 1}
    constraint = backend.calls[-1].constraint
    assert isinstance(constraint, Grammar)
    assert constraint.source.startswith("start: calls | instead\n")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {}},
        {"properties": {"a": {"type": "integer"}, "b": {"enum": ["x"]}}},
        {"properties": {"a": {"type": "integer"}, "b": {"enum": ["x"]}}, "required": ["b"]},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {
            "type": "object",
            "properties": {"p": {"$ref": "#/$defs/P"}, "q": {"type": ["null", "boolean"]}},
            "$defs": {"P": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
            "required": ["p"],
        },
    ],
)
def test_arguments_of_every_kind_of_schema_are_valid(
    local: LocalBackend, schema: dict[str, Any], seed: int
) -> None:
    spec = ToolSpec("go", "", schema)
    constraint = ToolFormat().grammar([spec], is_parallel=False)
    chat = Chat((Message("user", (Text("Go"),)),), tools=(spec.shown(),))
    sampling = Sampling(max_tokens=100, temperature=1.5, seed=seed)
    text = local.submit(Call(chat, sampling, constraint)).result(60).text
    head, tail = ToolFormat().opening("go"), ToolFormat().closing()
    assert text.startswith(head) and text.endswith(tail)
    jsonschema.validate(json.loads(text[len(head) : -len(tail)]), spec.schema())


def test_a_question_is_answered_by_way_of_a_tool(model: ChatForkroot) -> None:
    bound = model.bind_tools([lookup])
    requested = HumanMessage("Look up Memhuv.")
    call = bound.invoke([requested])
    result = lookup.invoke(call.tool_calls[0])
    answer = bound.invoke([requested, call, result])
    assert answer.tool_calls == []
    cached = answer.usage_metadata["input_token_details"]["cache_read"]
    assert cached >= call.usage_metadata["input_tokens"]


FAULTY = {
    "title": "faulty",
    "type": "object",
    "properties": {
        "n": {"type": "string"},
        "a/b": {"type": "array", "items": {"type": "strng"}},
    },
}
POINTER = "#/properties/a~1b/items/type"


@pytest.mark.parametrize(
    ("method", "field"),
    [("function_calling", "tools[0].parameters"), ("json_schema", "json_schema")],
)
def test_a_fault_in_a_schema_is_reported_with_its_place_and_value(
    model: ChatForkroot, method: str, field: str
) -> None:
    with pytest.raises(InvalidCall, match="expected one of object, array") as caught:
        model.with_structured_output(FAULTY, method=method).invoke("Go")
    assert (caught.value.field, caught.value.value) == (field + POINTER, "strng")
    requested = model.with_structured_output(FAULTY, method=method).ainvoke("Go")
    with pytest.raises(InvalidCall) as caught:
        asyncio.run(requested)
    assert (caught.value.field, caught.value.value) == (field + POINTER, "strng")


def test_a_fault_in_a_schema_that_is_requested_whole_is_reported_with_its_value(
    model: ChatForkroot,
) -> None:
    schema = {**FAULTY, "minProperties": 1}
    with pytest.raises(InvalidCall) as caught:
        model.with_structured_output(schema, method="json_schema").invoke("Go")
    assert (caught.value.field, caught.value.value) == ("json_schema" + POINTER, "strng")


@pytest.mark.parametrize("choice", ["auto", "any"])
def test_a_fault_in_one_of_several_tools_names_that_tool(model: ChatForkroot, choice: str) -> None:
    faulty = {"name": "faulty", "description": "", "parameters": FAULTY}
    with pytest.raises(InvalidCall) as caught:
        model.bind_tools([lookup, faulty], tool_choice=choice).invoke("Go")
    assert caught.value.field == "tools[1].parameters" + POINTER


def test_a_fault_in_a_grammar_of_the_users_own_is_reported_as_it_was(model: ChatForkroot) -> None:
    with pytest.raises(InvalidCall, match="grammar=%json #/type='strng'"):
        model.bind_tools([lookup]).invoke("Go", grammar='start: %json {"type": "strng"}')


class Payment(BaseModel):
    """Pay somebody."""

    amount: Decimal


@dataclass
class Fee:
    """Pay somebody."""

    amount: Decimal


def pay(amount: Decimal) -> str:
    """Pay somebody."""
    return f"paid {amount}"


@pytest.mark.parametrize("kind", [Payment, Fee, pay, tool(pay)])
def test_a_decimal_among_the_arguments_of_a_tool_is_always_one(
    local: LocalBackend, kind: Any
) -> None:
    model = ChatForkroot(model=local, temperature=1.5, max_tokens=60)
    bound = model.bind_tools([kind], tool_choice="any", parallel_tool_calls=False)
    shown = bound.kwargs["tools"][0]["function"]["parameters"]
    assert shown["properties"]["amount"]["anyOf"][1]["pattern"].startswith("^-?[0-9]")
    assert "title" not in str(shown)
    for seed in range(4):
        calls = bound.invoke("Pay 12.50.", seed=seed).tool_calls
        assert Payment.model_validate(calls[0]["args"]).amount.is_finite()


@pytest.mark.parametrize(
    ("schema", "field", "wanted_text"),
    [
        (
            {"title": "A", "type": "objct"},
            "schema.type",
            "schema.type='objct': expected object | array | string | number | integer | boolean"
            " | null; did you mean object?",
        ),
        ({"title": "A", "type": ["object", "nul"]}, "schema.type", "'nul': expected object |"),
        ({"title": "A", "type": ["object", "null"]}, "schema", "a schema of objects"),
        ({"title": "A", "type": "array"}, "schema", "method='json_schema' holds to any schema"),
        ({"type": "object", "properties": {}}, "schema", "a JSON schema with a title"),
        ({"title": 3, "type": "object", "properties": {}}, "tools[0].name", "a text"),
        (3, "schema", "a Pydantic class, a TypedDict, an enum, or a JSON schema"),
        (int, "schema", "a Pydantic class, a TypedDict, an enum, or a JSON schema"),
    ],
)
def test_what_is_not_a_schema_of_a_tool_is_refused_with_what_is(
    model: ChatForkroot, schema: Any, field: str, wanted_text: str
) -> None:
    with pytest.raises(InvalidCall) as caught:
        model.with_structured_output(schema)
    assert caught.value.field == field
    assert wanted_text in str(caught.value)


def test_a_misspelled_keyword_of_a_users_own_schema_is_logged_and_refused_where_strict(
    model: ChatForkroot, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"title": "A", "type": "object", "propertes": {"a": {"type": "integer"}}}
    model.with_structured_output(schema).invoke("a")
    assert "propertes" in caplog.text and "did you mean properties?" in caplog.text
    wanted_text = r"tools\[0\]\.parameters#/propertes=.*; did you mean properties\?$"
    with pytest.raises(InvalidCall, match=wanted_text):
        model.bind_tools([schema], strict=True).invoke("a")


def test_a_schema_that_is_requested_whole_needs_no_title(model: ChatForkroot) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    assert model.with_structured_output(schema, method="json_schema").invoke("a") == {"a": 1}


@pytest.mark.parametrize(
    ("tools", "field"),
    [
        (3, "tools"),
        (None, "tools"),
        ({"a": 1}, "tools"),
        ([3], "tools[0]"),
        (["lookup"], "tools[0]"),
        ([lookup, {"type": "function"}], "tools[1].function"),
        ([{"type": "function", "function": {}}], "tools[0].name"),
        ([{"type": "web_search"}], "tools[0].type"),
    ],
)
def test_what_is_not_a_tool_is_refused_where_it_is_bound(
    model: ChatForkroot, tools: Any, field: str
) -> None:
    with pytest.raises(InvalidCall) as caught:
        model.bind_tools(tools)
    assert caught.value.field == field


def test_a_misspelled_choice_of_a_tool_gets_a_suggestion(
    model: ChatForkroot,
) -> None:
    with pytest.raises(InvalidCall, match=r"lookup, timer; did you mean lookup\?$"):
        model.bind_tools([lookup, timer], tool_choice="look_up")
    with pytest.raises(InvalidCall, match="expected none or auto, where there are no tools"):
        model.invoke("a", tool_choice="lookup")
