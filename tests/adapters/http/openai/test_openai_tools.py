"""Tools: calls that are always valid, whole and streamed, and the turns that follow them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import openai
import pytest

from forkroot.adapters.common.toolreader import ArgumentsPiece, CallStart, TextPiece, ToolReader
from forkroot.adapters.common.tools import Invocation, ToolFormat
from forkroot.adapters.http.openai.messages import chat_of
from forkroot.adapters.http.openai.toolchoice import format_of, specs_of
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.wire.wire import ChatMessage, Tool
from forkroot.core.api.protocol import Call, Sampling, Text

LOOKUP = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 12}},
    "required": ["word"],
    "additionalProperties": False,
}
ADD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Add",
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 99},
        "b": {"type": "integer", "default": 3, "title": "B", "minimum": 0, "maximum": 99},
        "how": {"$ref": "#/$defs/How"},
    },
    "required": ["a"],
    "$defs": {"How": {"enum": ["fast", "slow"], "type": "string"}},
}
SCHEMAS = {"lookup": LOOKUP, "add": ADD, "now": {"type": "object"}}
TOOLS = [
    {"type": "function", "function": {"name": "lookup", "description": "D", "parameters": LOOKUP}},
    {"type": "function", "function": {"name": "add", "parameters": ADD}},
    {"type": "function", "function": {"name": "now"}},
]
MESSAGES = [{"role": "user", "content": "Look up glacier."}]


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server}/v1", api_key="any", max_retries=0) as client:
        yield client


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    settings = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 300}
    return client.chat.completions.create(**{**settings, "tools": TOOLS, **fields})


def check(call: Any) -> None:
    """The arguments are what the tool's schema says."""
    jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_the_model_may_call_by_itself(client: openai.OpenAI) -> None:
    choice = chat(client).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "lookup")
    assert json.loads(call.function.arguments).keys() == {"word"}


def test_required_calls_are_valid_at_any_temperature(client: openai.OpenAI) -> None:
    for seed in range(6):
        response = chat(client, tool_choice="required", temperature=2, seed=seed, n=3)
        for choice in response.choices:
            assert choice.finish_reason == "tool_calls"
            assert 1 <= len(choice.message.tool_calls) <= 16
            for call in choice.message.tool_calls:
                check(call)


@pytest.mark.parametrize("name", ["lookup", "add", "now"])
def test_a_named_tool_is_called_once(client: openai.OpenAI, name: str) -> None:
    choice = chat(client, tool_choice=named(name), temperature=1.5, seed=1).choices[0]
    (call,) = choice.message.tool_calls
    assert call.function.name == name
    check(call)


@pytest.mark.parametrize("choice", ["required", named("add")])
def test_a_forced_call_needs_no_answer_by_the_schema_beside_it(
    client: openai.OpenAI, choice: Any
) -> None:
    """As openai-agents sends them for an agent with tools and an output type."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    form = {"name": "final_output", "strict": True, "schema": schema}
    response = chat(
        client, tool_choice=choice, response_format={"type": "json_schema", "json_schema": form}
    )
    assert response.choices[0].finish_reason == "tool_calls"
    for call in response.choices[0].message.tool_calls:
        check(call)


def test_calls_can_be_kept_to_one(client: openai.OpenAI) -> None:
    for seed in range(4):
        response = chat(
            client, tool_choice="required", parallel_tool_calls=False, temperature=2, seed=seed
        )
        assert len(response.choices[0].message.tool_calls) == 1


@pytest.mark.parametrize("choice", ["auto", "required", named("add")])
def test_streamed_calls_are_those_of_the_whole_answer(client: openai.OpenAI, choice: Any) -> None:
    fields = {"tool_choice": choice, "temperature": 1.2, "seed": 5}
    whole = chat(client, **fields).choices[0]
    text, calls, ids, ending = "", list[dict[str, str]](), list[str](), None
    for event in chat(client, **fields, stream=True):
        (it,) = event.choices
        text += it.delta.content or ""
        ending = it.finish_reason or ending
        for piece in it.delta.tool_calls or []:
            if piece.id is not None:
                ids.append(piece.id)
                calls.append({"name": piece.function.name, "arguments": ""})
            calls[piece.index]["arguments"] += piece.function.arguments
    assert text == (whole.message.content or "")
    assert ending == whole.finish_reason
    response = [it.function.model_dump() for it in whole.message.tool_calls or []]
    assert calls == response
    assert len(set(ids)) == len(calls)


def test_no_tools_means_plain_text(client: openai.OpenAI) -> None:
    message = chat(client, tool_choice="none").choices[0].message
    assert message.tool_calls is None


def test_strict_tools_are_held_to_their_schema_also_where_the_model_is_free(
    client: openai.OpenAI,
) -> None:
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]  # type: ignore[dict-item]
    num_calls = 0
    for seed in range(6):
        response = chat(client, tools=strict, temperature=1, seed=seed)
        for call in response.choices[0].message.tool_calls or []:
            check(call)
            num_calls += 1
    assert num_calls
    plain = [{"role": "user", "content": "What is the capital of France?"}]
    assert chat(client, tools=strict, messages=plain).choices[0].message.content == "Paris"


def test_an_answer_by_a_schema_may_instead_be_calls(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    message = chat(client, response_format=form).choices[0].message
    assert message.tool_calls or json.loads(message.content)["city"]


def test_an_earlier_call_and_its_result_are_written_as_the_template_writes_them(
    runtime: Runtime,
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        ChatMessage(role="user", content="Add."),
        ChatMessage.model_validate({"role": "assistant", "content": None, "tool_calls": [call]}),
        ChatMessage(role="tool", content='{"result": "4"}', tool_call_id="c1"),
    ]
    tools = [Tool.model_validate(tool) for tool in TOOLS]
    form = format_of(runtime.texts)
    shown = runtime.texts.decode(runtime.texts.encode_prompt(chat_of(messages, tools, form)))
    assert 'assistant\n<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>' in shown
    assert 'tool\n{"result": "4"}' in shown
    assert '{"name": "lookup", "parameters": {' in shown


def test_the_model_goes_on_after_a_result(client: openai.OpenAI) -> None:
    first = chat(client).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": '{"result": "a"}'}
    response = chat(client, messages=[*MESSAGES, first.model_dump(exclude_none=True), result])
    assert response.choices[0].finish_reason in ("stop", "tool_calls", "length")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": named("nobody")}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "web", "function": {"name": "a"}}]}, "tools[0].type"),
        ({"tools": TOOLS[:1] * 2}, "tools"),
        ({"tool_choice": "required", "extra_body": {"regex": "a"}}, "regex"),
    ],
)
def test_what_is_wrong_with_tools_is_named(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **fields)
    assert caught.value.param == param


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("choice", ["auto", "required", named("faulty")])
def test_a_fault_in_a_tools_schema_is_reported_with_its_place_and_the_tool(
    client: openai.OpenAI, choice: Any, is_strict: bool, is_streamed: bool
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "strng"}}}
    faulty = {"name": "faulty", "parameters": schema, "strict": is_strict}
    tools = [TOOLS[0], {"type": "function", "function": faulty}]
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, tools=tools, tool_choice=choice, stream=is_streamed)
    place = "tools[1].function.parameters#/properties/a/type"
    assert caught.value.param == place
    assert f"invalid {place}='strng': expected one of object" in caught.value.message
    assert "did you mean string? (of the tool 'faulty')" in caught.value.message


def test_what_a_tools_schema_cannot_say_in_a_call_is_reported_with_its_place_and_the_tool(
    client: openai.OpenAI,
) -> None:
    unique = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    schema = {"type": "object", "properties": {"tags": unique}, "required": ["tags"]}
    tools = [TOOLS[0], {"type": "function", "function": {"name": "tag", "parameters": schema}}]
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, tools=tools, tool_choice="required")
    assert caught.value.param == "tools[1].function.parameters#/properties/tags"
    assert "expected uniqueItems for arrays whose items are an enum" in caught.value.message
    assert "(of the tool 'tag')" in caught.value.message


def test_a_fault_in_an_answers_schema_is_reported_with_its_place(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "strng"}}}
    for fields in ({"tools": []}, {"tools": TOOLS[:1]}):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, response_format=form, **fields)
        assert caught.value.param == "response_format.json_schema.schema#/type"
        assert "; did you mean string?" in caught.value.message


def test_calls_that_are_written_are_read_however_they_are_cut() -> None:
    form = ToolFormat("\n")
    calls = [Invocation("add", '{"a": "}</tool_call>\\""}'), Invocation("now", "{}")]
    text = f"So:{form.write(calls, is_first=False)}"
    for size in (1, 2, 3, 7, 50, 500):
        reader = ToolReader({"add", "now"})
        pieces = [
            it for place in range(0, len(text), size) for it in reader.push(text[place:][:size])
        ]
        pieces += reader.push("", is_last=True)
        assert "".join(it.text for it in pieces if isinstance(it, TextPiece)) == "So:"
        assert [it for it in pieces if isinstance(it, CallStart)] == [
            CallStart(0, "add"),
            CallStart(1, "now"),
        ]
        for number, call in enumerate(calls):
            parts = [
                it.text for it in pieces if isinstance(it, ArgumentsPiece) and it.number == number
            ]
            assert "".join(parts) == call.arguments


@pytest.mark.parametrize(
    "text",
    [
        "no call at all",
        "a <tool_cal",
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        "<tool_call>nonsense</tool_call> and more",
        "<tool_call>never closed",
        "  \n",
    ],
)
def test_what_is_not_a_call_is_text(text: str) -> None:
    reader = ToolReader({"add"})
    pieces = [piece for char in text for piece in reader.push(char)]
    pieces += reader.push("", is_last=True)
    assert "".join(it.text for it in pieces if isinstance(it, TextPiece)) == text
    assert reader.num_calls == 0


def test_a_call_in_another_order_is_read_as_a_whole() -> None:
    reader = ToolReader({"add"})
    pieces = reader.push('<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>', True)
    assert pieces == [CallStart(0, "add"), ArgumentsPiece(0, '{"a": 1}')]


@pytest.mark.parametrize("gap", ["", "\n", " "])
def test_the_grammar_of_every_format_writes_what_is_read(runtime: Runtime, gap: str) -> None:
    tools = specs_of([Tool.model_validate(tool) for tool in TOOLS], "")
    grammar = ToolFormat(gap).grammar(tools, is_parallel=True)
    for seed in range(4):
        sampling = Sampling(max_tokens=300, temperature=2, seed=seed)
        prompt = (Text("Look up and add. "),)
        text = runtime.backend.submit(Call(prompt, sampling, grammar)).result().text
        reader, calls = ToolReader(SCHEMAS), list[Invocation]()
        for piece in reader.push(text, is_last=True):
            match piece:
                case CallStart(name=name):
                    calls.append(Invocation(name, ""))
                case ArgumentsPiece(text=arguments):
                    calls[-1] = Invocation(calls[-1].name, calls[-1].arguments + arguments)
        assert calls
        assert text == ToolFormat(gap).write(calls)
        for call in calls:
            jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


@pytest.mark.parametrize(
    ("shown", "gap"),
    [("<tool_call>{...}</tool_call>", ""), ("<tool_call>\n{...}\n</tool_call>", "\n"), ("?", "\n")],
)
def test_the_format_is_found_in_what_the_template_says(shown: str, gap: str) -> None:
    class Template:
        token_bytes: list[bytes] = []  # noqa: RUF012
        start_ids: tuple[int, ...] = ()

        def encode(self, text: str, most: int | None = None) -> list[int]:
            return []

        def decode(self, ids: object) -> str:
            return f"Call tools by {shown}."

        def encode_prompt(self, prompt: object, most: int | None = None) -> list[int]:
            return []

    assert format_of(Template()).gap == gap


@pytest.mark.parametrize(
    ("given", "response"),
    [
        ({}, "tools[0].type is missing; "),
        ({"type": "functon"}, "invalid tools[0].type='functon': "),
    ],
)
def test_a_tool_without_its_type_gets_the_expected_one(
    server: str, given: dict[str, str], response: str
) -> None:
    tool = {**given, "function": {"name": "square"}}
    body = {"messages": [{"role": "user", "content": "Square 12."}], "tools": [tool]}
    answer = httpx.post(f"{server}/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == f"{response}expected 'function'"
