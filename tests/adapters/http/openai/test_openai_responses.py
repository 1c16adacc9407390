"""`/v1/responses` through OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from forkroot.adapters.http.openai.responses_wire import ResponsesRequest, chat_request_of

CAPITAL = "What is the capital of France?"
TOOL = {
    "type": "function",
    "name": "lookup",
    "parameters": {
        "type": "object",
        "properties": {"word": {"type": "string", "maxLength": 8}},
        "required": ["word"],
        "additionalProperties": False,
    },
    "strict": True,
}


class City(pydantic.BaseModel):
    name: str
    is_capital: bool


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server}/v1", api_key="any", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    settings = {"model": "tiny", "input": CAPITAL, "temperature": 0, "max_output_tokens": 100}
    return client.responses.create(**{**settings, **fields})


def test_a_text_is_answered(client: openai.OpenAI) -> None:
    answer = ask(client)
    assert (answer.status, answer.output_text, answer.error) == ("completed", "Paris", None)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (16, 3)
    assert answer.usage.input_tokens_details.cached_tokens <= 15
    again = ask(client)
    assert again.id != answer.id
    assert again.usage.input_tokens_details.cached_tokens == 15


def test_instructions_and_messages_are_those_of_a_chat(client: openai.OpenAI) -> None:
    parts = [{"type": "input_text", "text": CAPITAL}]
    answer = ask(client, instructions="Be brief.", input=[{"role": "user", "content": parts}])
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": CAPITAL},
    ]
    chat = client.chat.completions.create(model="tiny", messages=messages, temperature=0)
    assert answer.output_text == chat.choices[0].message.content
    assert chat.usage is not None
    assert answer.usage.input_tokens == chat.usage.prompt_tokens


def test_an_answer_that_is_cut_says_so(client: openai.OpenAI) -> None:
    answer = ask(client, max_output_tokens=1)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output[0].status == "incomplete"


def test_a_pydantic_model_is_parsed(client: openai.OpenAI) -> None:
    answer = client.responses.parse(
        model="tiny", input=CAPITAL, text_format=City, temperature=0, max_output_tokens=100
    )
    assert isinstance(answer.output_parsed, City)


@pytest.mark.parametrize(
    ("extra", "start"),
    [({}, '{"capital": "Paris"}'), ({"json_separators": [",", ":"]}, '{"capital":"')],
)
def test_the_blanks_of_a_structured_answer_are_those_requested(
    client: openai.OpenAI, extra: dict[str, Any], start: str
) -> None:
    class Capital(pydantic.BaseModel):
        capital: str

    answer = client.responses.parse(
        model="tiny", input=CAPITAL, temperature=0, text_format=Capital, extra_body=extra
    )
    assert answer.output_text.startswith(start)
    assert answer.output_parsed == Capital.model_validate_json(answer.output_text)


def test_a_stream_has_the_same_content_as_the_whole_answer(client: openai.OpenAI) -> None:
    with client.responses.stream(model="tiny", input=CAPITAL, temperature=0) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == ask(client).output_text
    assert "".join(it.delta for it in events if it.type == "response.output_text.delta") == "Paris"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "lookup"}, "auto"])
def test_calls_are_items_and_valid(client: openai.OpenAI, choice: Any) -> None:
    for seed in range(3):
        body = {"seed": seed}
        answer = ask(client, tools=[TOOL], tool_choice=choice, temperature=1.2, extra_body=body)
        calls = [item for item in answer.output if item.type == "function_call"]
        assert calls or choice == "auto"
        for call in calls:
            assert call.name == "lookup"
            assert len(json.loads(call.arguments)["word"]) <= 8


def test_a_forced_call_needs_no_answer_by_the_schema_beside_it(client: openai.OpenAI) -> None:
    """As instructor sends them in its mode RESPONSES_TOOLS."""
    form = {"type": "json_schema", "name": "W", "strict": True, "schema": TOOL["parameters"]}
    named = {"type": "function", "name": "lookup"}
    (call,) = ask(client, tools=[TOOL], tool_choice=named, text={"format": form}).output
    assert (call.type, call.name) == ("function_call", "lookup")


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_has_as_many_tokens_as_a_load_generator_requests(
    client: openai.OpenAI, is_streamed: bool
) -> None:
    """As guidellm and vLLM's load generator send ignore_eos."""
    body = {"ignore_eos": True, "stop": None}
    answer = ask(client, max_output_tokens=40, stream=is_streamed, extra_body=body)
    whole = list(answer)[-1].response if is_streamed else answer
    assert whole.usage.output_tokens == 40
    assert whole.status == "incomplete"


def test_penalties_and_bounds_of_drawing_are_those_of_a_chat(client: openai.OpenAI) -> None:
    names = ("top_k", "min_p", "min_tokens", "repetition_penalty", "frequency_penalty")
    for name in (*names, "presence_penalty"):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, extra_body={name: -9})
        assert caught.value.param == name


def test_streamed_calls_are_those_of_the_whole_answer(client: openai.OpenAI) -> None:
    whole = ask(client, tools=[TOOL], tool_choice="required").output
    fields_sent: Any = {
        "model": "tiny",
        "input": CAPITAL,
        "temperature": 0,
        "max_output_tokens": 100,
    }
    tools: Any = [TOOL]
    with client.responses.stream(**fields_sent, tools=tools, tool_choice="required") as stream:
        final = stream.get_final_response()
    shown: list[Any] = list(final.output)
    assert [(it.name, it.arguments) for it in shown] == [(it.name, it.arguments) for it in whole]


def test_calls_and_their_outputs_go_back_in(client: openai.OpenAI) -> None:
    (call, *_) = ask(client, tools=[TOOL], tool_choice="required").output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "a word"}
    history = [{"role": "user", "content": CAPITAL}, call.model_dump(exclude_none=True), result]
    assert ask(client, tools=[TOOL], input=history).status in ("completed", "incomplete")


def test_calls_in_a_row_are_one_message_of_the_chat() -> None:
    def call(word: str) -> dict[str, Any]:
        return {"type": "function_call", "call_id": "c", "name": "lookup", "arguments": word}

    items: list[dict[str, Any]] = [
        {"role": "user", "content": "x"},
        {"type": "reasoning", "summary": []},
        call("1"),
        call("2"),
        {"type": "function_call_output", "call_id": "c", "output": "y"},
        call("3"),
    ]
    chat = chat_request_of(ResponsesRequest(input=items))[0]
    assert [message.role for message in chat.messages] == ["user", "assistant", "tool", "assistant"]
    counts = [len(message.tool_calls or ()) for message in chat.messages]
    assert counts == [0, 2, 0, 1]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "no"}}}},
            "text.format.schema#/type",
        ),
        ({"temperature": -1}, "temperature"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_what_is_not_offered_or_allowed_is_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str, is_streamed: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields, stream=is_streamed)
    assert caught.value.param == param
