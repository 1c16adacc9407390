"""Anthropic's wire, against a server that is written from its public documentation."""

from __future__ import annotations

import json
from typing import Any

import pytest

import forkroot
from forkroot.adapters.common.tools import ToolFormat, ToolSpec
from forkroot.core.api.protocol import (
    Call,
    CallFailed,
    Chat,
    Choices,
    Image,
    InvalidCall,
    JsonSchema,
    Message,
    Sampling,
    Text,
    UnsupportedCall,
)

from .wires import Anthropic, ApiServer, api_server, event

TOOL = ToolSpec("look_up", "Look up a word.", {"properties": {"word": {"type": "string"}}})


def connected(server: ApiServer, **settings: Any) -> Any:
    given = {"base_url": server.url, "api_key": "sk-ant-test", "max_retries": 0, **settings}
    return forkroot.connect("anthropic:claude", **given)


def chat(*messages: tuple[str, str], is_open: bool = False) -> Chat:
    return Chat(tuple(Message(role, (Text(text),)) for role, text in messages), is_open)


def test_a_chat_is_sent_as_the_documentation_has_it() -> None:
    with api_server(Anthropic(lambda body: "Hello, Ada.")) as server, connected(server) as backend:
        sampling = Sampling(max_tokens=9, temperature=0.5, top_k=3, stop=("!", "\n"))
        prompt = chat(("system", "Be brief."), ("user", "I am Ada."))
        completion = backend.submit(Call(prompt, sampling)).result(60)
    assert completion.text == "Hello, Ada."
    usage = completion.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (20, 8, 6)
    assert server.requests[0].body == {
        "model": "claude",
        "max_tokens": 9,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "I am Ada."}],
        "temperature": 0.5,
        "top_k": 3,
        "stop_sequences": ["!"],
        "stream": True,  # to stop at the blank, which the API refuses as a stop
    }


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    ("stop", "text", "matched"),
    [
        (("!",), "one\ntwo", "!"),
        (("\n",), "one", "\n"),
        (("\n", "!"), "one", "\n"),
        ((), None, None),
    ],
)
def test_answers_end_at_stops_that_the_api_takes_and_at_those_that_it_does_not(
    stop: tuple[str, ...], text: str | None, matched: str | None, is_streamed: bool
) -> None:
    whole = "one\ntwo! three"
    with api_server(Anthropic(lambda body: whole)) as server, connected(server) as backend:
        call = Call(chat(("user", "Count.")), Sampling(stop=stop), stream=is_streamed)
        reply = backend.submit(call)
        if is_streamed:
            assert "".join(chunk.text for chunk in reply) == (text or whole)
        output = reply.result(60).outputs[0]
    assert (output.text, output.finish_reason, output.matched) == (text or whole, "stop", matched)


def test_the_newest_version_is_used_unless_it_lacks_what_the_call_sets() -> None:
    with api_server(Anthropic(lambda body: "x")) as server, connected(server) as backend:
        for sampling in (Sampling(), Sampling(temperature=0)):
            assert backend.submit(Call(chat(("user", "x")), sampling)).result(60).text == "x"
    found = [request.headers["anthropic-version"] for request in server.requests]
    assert found == ["2026-10-21", "2023-06-01"]


def test_several_answers_take_several_requests() -> None:
    with api_server(Anthropic(lambda body: "yes")) as server, connected(server) as backend:
        completion = backend.submit(Call(chat(("user", "x")), Sampling(n=3))).result(60)
    assert [output.text for output in completion.outputs] == ["yes"] * 3
    assert completion.usage.requests == len(server.requests) == 3
    assert completion.usage.prompt_tokens == 60


def test_an_answer_that_is_begun_goes_on_without_the_blanks_that_the_api_refuses() -> None:
    with api_server(Anthropic(lambda body: " Ada")) as server, connected(server) as backend:
        prompt = chat(("user", "Name?"), ("assistant", "Name: "), is_open=True)
        assert backend.submit(Call(prompt)).result(60).text == "Ada"
        empty = Chat((*prompt.messages[:1], Message("assistant", ())), True)
        assert backend.submit(Call(empty)).result(60).text == " Ada"
    assert server.requests[0].body["messages"][-1] == {"role": "assistant", "content": "Name:"}
    assert server.requests[1].body["messages"][-1]["role"] == "user"


def test_schemas_and_choices_are_formats_and_are_validated_here() -> None:
    def write(body: dict[str, Any]) -> str:
        properties = body["output_config"]["format"]["schema"]["properties"]
        return '{"age": 36}' if "age" in properties else '{"value": "red"}'

    with api_server(Anthropic(write)) as server, connected(server) as backend:
        schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}}
        call = Call(chat(("user", "Ada is 36.")), constraint=JsonSchema(schema))
        assert backend.submit(call).result(60).text == '{"age": 36}'
        sent = server.requests[0].body["output_config"]["format"]
        assert sent == {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"age": {"type": "integer"}},
                "additionalProperties": False,
            },
        }
        call = Call(chat(("user", "Red?")), constraint=Choices(("red", "blue")))
        assert backend.submit(call).result(60).text == "red"
        over = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 40}}}
        with pytest.raises(CallFailed, match="expected at least 40"):
            backend.submit(Call(chat(("user", "x")), constraint=JsonSchema(over))).result(60)
        free = JsonSchema({"type": "object", "additionalProperties": {"type": "string"}})
        with pytest.raises(UnsupportedCall, match="properties are all named"):
            backend.submit(Call(chat(("user", "x")), constraint=free)).result(60)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_tools_are_called_and_answered(is_streamed: bool) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"word": "sea"}}
    with api_server(Anthropic(lambda body: [dict(block)])) as server, connected(server) as backend:
        prompt = Chat(chat(("user", "Sea?")).messages, tools=(TOOL.shown(),))
        grammar = ToolFormat().grammar([TOOL], is_parallel=False)
        call = Call(prompt, constraint=grammar, stream=is_streamed)
        written = backend.submit(call).result(60).text
        assert written == (
            '<tool_call>{"name": "look_up", "arguments": {"word": "sea"}}</tool_call>'
        )
        body = server.requests[0].body
        assert body["tools"][0]["name"] == "look_up"
        assert body["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
        after = (
            *prompt.messages,
            Message("assistant", (Text(written),)),
            Message("tool", (Text("Salt water."),)),
        )
        backend.submit(Call(Chat(after, tools=prompt.tools))).result(60)
    use, result = server.requests[1].body["messages"][1:]
    assert use["content"] == [{**block, "id": use["content"][0]["id"]}]
    assert result["content"][0] == {
        "type": "tool_result",
        "tool_use_id": use["content"][0]["id"],
        "content": "Salt water.",
    }


def test_images_are_blocks_of_base64() -> None:
    with api_server(Anthropic(lambda body: "A cat.")) as server, connected(server) as backend:
        content = (Text("What is this?"), Image(b"\xff\xd8\xff\xe0"))
        backend.submit(Call(Chat((Message("user", content),)))).result(60)
    source = {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4A=="}
    assert server.requests[0].body["messages"][0]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image", "source": source},
    ]


@pytest.mark.parametrize(
    ("sampling", "field"),
    [
        (Sampling(seed=1), "seed"),
        (Sampling(frequency_penalty=1.0), "frequency_penalty"),
        (Sampling(presence_penalty=1.0), "presence_penalty"),
        (Sampling(temperature=1.5), "temperature"),
    ],
)
def test_what_the_api_has_no_field_for_is_refused(sampling: Sampling, field: str) -> None:
    with (
        api_server(Anthropic(lambda body: "x")) as server,
        connected(server) as backend,
        pytest.raises(UnsupportedCall) as caught,
    ):
        backend.submit(Call(chat(("user", "x")), sampling)).result(60)
    assert caught.value.field == field
    assert server.requests == []


def test_a_wrong_key_and_an_overloaded_stream_are_typed_errors() -> None:
    with (
        api_server(Anthropic(lambda body: "x")) as server,
        connected(server, api_key="sk-ant-wrong") as backend,
        pytest.raises(InvalidCall, match="api_key") as caught,
    ):
        backend.submit(Call(chat(("user", "x")))).result(60)
    assert "wrong" not in str(caught.value)
    fault = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    with (
        api_server(lambda exchange: exchange.stream(fault)) as server,
        connected(server) as backend,
        pytest.raises(forkroot.Overloaded, match="Overloaded"),
    ):
        backend.submit(Call(chat(("user", "x")), stream=True)).result(60)


def test_a_refusal_is_an_error_with_its_explanation() -> None:
    message = {
        "type": "message",
        "content": [],
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal", "explanation": "I cannot do that."},
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    with (
        api_server(lambda exchange: exchange.json(message)) as server,
        connected(server) as backend,
        pytest.raises(CallFailed, match="I cannot do that"),
    ):
        backend.submit(Call(chat(("user", "x")))).result(60)


def test_the_official_client_reads_what_the_test_server_writes() -> None:
    anthropic = pytest.importorskip("anthropic")
    blocks = [{"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"word": "sea"}}]
    with api_server(Anthropic(lambda body: list(blocks) if "tools" in body else "Hello")) as server:
        with anthropic.Anthropic(base_url=server.url, api_key="sk-ant-test") as client:
            given = {
                "model": "claude",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "x"}],
            }
            whole = client.messages.create(**given)
            assert (whole.content[0].text, whole.stop_reason) == ("Hello", "end_turn")
            with client.messages.stream(**given) as stream:
                assert "".join(stream.text_stream) == "Hello"
                assert stream.get_final_message().usage.output_tokens == 6
            tool = {"name": "look_up", "input_schema": {"type": "object"}}
            with client.messages.stream(**given, tools=[tool]) as stream:
                assert stream.get_final_message().content[0].input == {"word": "sea"}
            with (
                anthropic.Anthropic(base_url=server.url, api_key="no", max_retries=0) as other,
                pytest.raises(anthropic.AuthenticationError),
            ):
                other.messages.create(**given)
        assert json.dumps(server.requests[0].body["messages"])
