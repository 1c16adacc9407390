"""OpenAI's wire: against our own server, and a server of scripted answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import forkroot
from forkroot.adapters.common.tools import ToolFormat, ToolSpec
from forkroot.core.api.protocol import (
    SPACED,
    Backend,
    Call,
    CallFailed,
    Chat,
    Choices,
    ForkHint,
    Grammar,
    Image,
    InvalidCall,
    InvalidModel,
    JsonSchema,
    Message,
    Regex,
    Sampling,
    Text,
    Tokens,
    UnsupportedCall,
    Video,
)

from .wires import ApiServer, Exchange, api_server, chat_body, chat_events

GREEDY = Sampling(max_tokens=12, temperature=0)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOL = ToolSpec("look_up", "Look up a word.", {"properties": {"word": {"type": "string"}}})


def user(text: str) -> Chat:
    return Chat((Message("user", (Text(text),)),))


@pytest.fixture(scope="module")
def tiny(server: str) -> Iterator[Backend]:
    """The embedded model behind our own server, as an API model."""
    backend = forkroot.connect("openai:tiny", base_url=f"{server}/v1", api_key="sk-test")
    yield backend
    backend.close()


def scripted(server: ApiServer, **settings: Any) -> Any:
    given = {"base_url": server.url, "api_key": "sk-test", "max_retries": 0, **settings}
    return forkroot.connect("openai:m", **given)


def test_chats_and_plain_prompts_have_the_answers_of_the_model(
    tiny: Backend, local: Backend
) -> None:
    for prompt in (user("Tell me about rivers."), (Text("The capital of France is"),)):
        call = Call(prompt, GREEDY)
        found, own = tiny.submit(call).result(30), local.submit(call).result(30)
        assert found.text == own.text
        assert found.usage.prompt_tokens == own.usage.prompt_tokens
        assert found.usage.completion_tokens == own.usage.completion_tokens
        assert found.usage.requests == 1
        assert found.outputs[0].finish_reason == own.outputs[0].finish_reason


def test_a_stream_adds_up_to_the_answer(tiny: Backend, local: Backend) -> None:
    call = Call(user("Tell me about birds."), GREEDY, stream=True)
    reply = tiny.submit(call)
    pieces = [chunk.text for chunk in reply]
    assert len(pieces) > 1
    assert "".join(pieces) == reply.result().text == local.submit(call).result(30).text


def test_several_answers_come_in_one_request(tiny: Backend) -> None:
    call = Call(user("Tell me about metals."), Sampling(max_tokens=4, n=3, seed=1))
    completion = tiny.submit(call).result(30)
    assert len(completion.outputs) == 3
    assert completion.usage.requests == 1


def test_stops_schemas_and_choices_hold(tiny: Backend) -> None:
    sampling = Sampling(max_tokens=60, temperature=0, stop=("e",))
    output = tiny.submit(Call(user("Tell me about the sea."), sampling)).result(30).outputs[0]
    assert "e" not in output.text and output.finish_reason == "stop"
    call = Call(user("Ada is 36."), Sampling(max_tokens=60, temperature=0), JsonSchema(SCHEMA))
    assert json.loads(tiny.submit(call).result(30).text).keys() == {"name", "age"}
    call = Call(user("Red or blue?"), GREEDY, Choices(("red", "blue")))
    assert tiny.submit(call).result(30).text in ("red", "blue")
    numbers = JsonSchema({"type": "array", "items": {"type": "integer"}, "maxItems": 2}, SPACED)
    call = Call(user("Two numbers."), Sampling(max_tokens=40, temperature=0), numbers)
    assert isinstance(json.loads(tiny.submit(call).result(30).text), list)


def test_an_open_message_is_continued_by_a_compatible_server(tiny: Backend, local: Backend) -> None:
    messages = (*user("Who are you?").messages, Message("assistant", (Text("I am a"),)))
    call = Call(Chat(messages, open_last=True), GREEDY)
    assert tiny.submit(call).result(30).text == local.submit(call).result(30).text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prompt": (Tokens((1, 2)),)}, "prompt"),
        ({"prompt": (Video(b"x", 2),)}, "prompt"),
        ({"prompt": (Image(b"not an image"),)}, "prompt"),
        ({"options": ("a", "b")}, "options"),
        ({"constraint": Regex("a+")}, "regex"),
        ({"constraint": Grammar("start: /a+/")}, "grammar"),
        ({"constraint": JsonSchema(False)}, "json_schema"),
        ({"scored_from": 0}, "scored_from"),
        ({"sampling": Sampling(stop_token_ids=(1,))}, "stop_token_ids"),
        ({"sampling": Sampling(logit_bias={1: 2.0})}, "logit_bias"),
        ({"sampling": Sampling(logprobs=1)}, "logprobs"),
        ({"sampling": Sampling(log_mass=True)}, "log_mass"),
        ({"sampling": Sampling(ignore_eos=True)}, "ignore_eos"),
        ({"sampling": Sampling(min_tokens=1)}, "min_tokens"),
        ({"sampling": Sampling(top_k=5)}, "top_k"),
        ({"sampling": Sampling(min_p=0.5)}, "min_p"),
        ({"sampling": Sampling(repetition_penalty=1.1)}, "repetition_penalty"),
    ],
)
def test_what_an_api_cannot_do_is_refused_before_anything_is_sent(
    fields: dict[str, Any], field: str
) -> None:
    with api_server(lambda exchange: exchange.json({})) as server, scripted(server) as backend:
        reply = backend.submit(Call(**{"prompt": user("x"), **fields}))
        assert reply.done()
        with pytest.raises(UnsupportedCall) as caught:
            reply.result()
        assert caught.value.field == field
        assert len(caught.value.allowed) > 20
        assert server.requests == []


def test_advice_is_not_sent_and_planting_makes_no_request() -> None:
    answer = chat_body("hello")
    with api_server(lambda exchange: exchange.json(answer)) as server, scripted(server) as backend:
        call = Call(user("x"), Sampling(max_tokens=0), hint=ForkHint("r", 2))
        completion = backend.submit(call).result(60)
        assert (completion.text, completion.usage.requests) == ("", 0)
        call = Call(user("x"), hint=ForkHint("r", 2), namespace="n", priority=5)
        assert backend.submit(call).result(60).text == "hello"
    (request,) = server.requests
    assert request.body.keys() == {"model", "messages", "max_tokens"}


def test_the_request_has_what_the_call_has() -> None:
    with api_server(lambda exchange: exchange.json(chat_body("[]"))) as server:
        settings = {"extra_body": {"top_k": 3}, "omit": ["seed"]}
        with scripted(server, **settings) as backend:
            sampling = Sampling(
                max_tokens=None, temperature=0.5, top_p=0.9, seed=7, stop=("\n",), n=1
            )
            image = Image(b"\x89PNG\r\n\x1a\n")
            chat = Chat(
                (
                    Message("system", (Text("Be brief."),)),
                    Message("user", (Text("What is "), image, Text("this?"))),
                )
            )
            backend.submit(Call(chat, sampling)).result(60)
    assert server.requests[0].body == {
        "model": "m",
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["\n"],
        "top_k": 3,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is "},
                    {
                        "type": "image_url",
                        "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
                    },
                    {"type": "text", "text": "this?"},
                ],
            },
        ],
    }


def test_tools_are_sent_and_their_calls_come_back_as_our_adapters_read_them() -> None:
    function = {"name": "look_up", "arguments": '{"word": "sea"}'}
    calls = [{"id": "call_a", "type": "function", "function": function}]
    answer = chat_body(None, tool_calls=calls, reason="tool_calls")
    with api_server(lambda exchange: exchange.json(answer)) as server, scripted(server) as backend:
        form = ToolFormat()
        chat = Chat(user("What is the sea?").messages, tools=(TOOL.shown(),))
        constraint = form.grammar([TOOL], is_parallel=False)
        written = backend.submit(Call(chat, constraint=constraint)).result(60).text
        body = server.requests[0].body
        assert body["tools"] == [TOOL.shown()]
        assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
        assert written == (
            '<tool_call>{"name": "look_up", "arguments": {"word": "sea"}}</tool_call>'
        )
        after = (
            *chat.messages,
            Message("assistant", (Text(written),)),
            Message("tool", (Text("Salt water."),)),
        )
        free = form.grammar([TOOL], is_parallel=True, has_text=True)
        backend.submit(Call(Chat(after, tools=chat.tools), constraint=free)).result(60)
        body = server.requests[1].body
        assert "tool_choice" not in body
        *_, call, result = body["messages"]
        assert call["tool_calls"][0]["function"] == function
        assert result == {
            "role": "tool",
            "content": "Salt water.",
            "tool_call_id": call["tool_calls"][0]["id"],
        }


def test_a_streamed_tool_call_is_put_together() -> None:
    def piece(**delta: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": delta.pop("reason", None)}
        return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()

    start = {"index": 0, "id": "c", "function": {"name": "look_up", "arguments": ""}}
    pieces = [
        piece(tool_calls=[start]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": '{"word"'}}]),
        piece(tool_calls=[{"index": 0, "function": {"arguments": ': "sea"}'}}]),
        piece(reason="tool_calls"),
    ]
    with (
        api_server(lambda exchange: exchange.stream(*pieces)) as server,
        scripted(server) as backend,
    ):
        chat = Chat(user("x").messages, tools=(TOOL.shown(),))
        reply = backend.submit(Call(chat, stream=True))
        text = "".join(chunk.text for chunk in reply)
    assert text == reply.result().text
    assert '"arguments": {"word": "sea"}' in text


def test_a_server_without_completions_gets_plain_text_as_a_message_of_the_user() -> None:
    def answer(exchange: Exchange) -> None:
        if exchange.path == "/chat/completions":
            exchange.json(chat_body("hello"))
        else:
            exchange.json({"error": {"message": "no such route"}}, 404)

    with api_server(answer) as server:
        with scripted(server) as backend:
            for _ in range(2):
                assert backend.submit(Call((Text("Say hello."),))).result(60).text == "hello"
        paths = [request.path for request in server.requests]
        assert paths == ["/completions", "/chat/completions", "/chat/completions"]
        assert server.requests[1].body["messages"] == [{"role": "user", "content": "Say hello."}]
        with scripted(server, prompts="completions") as backend, pytest.raises(InvalidModel):
            backend.submit(Call((Text("Say hello."),))).result(60)


def test_a_model_that_wants_max_completion_tokens_gets_them() -> None:
    def answer(exchange: Exchange) -> None:
        if "max_tokens" in exchange.body:
            message = "Unsupported parameter: use 'max_completion_tokens' instead."
            exchange.json({"error": {"message": message, "param": "max_tokens"}}, 400)
        else:
            exchange.json(chat_body("hello"))

    with api_server(answer) as server, scripted(server) as backend:
        for _ in range(2):
            assert backend.submit(Call(user("x"), GREEDY)).result(60).text == "hello"
        assert len(server.requests) == 3
        assert server.requests[-1].body["max_completion_tokens"] == 12


def test_openai_itself_refuses_the_beginning_of_an_answer_but_not_an_empty_one() -> None:
    with forkroot.connect("openai:gpt-4o", api_key="sk-test") as backend:
        chat = Chat((*user("x").messages, Message("assistant", (Text("Well, "),))), True)
        with pytest.raises(UnsupportedCall, match=r"prompt.open_last=True"):
            backend.submit(Call(chat)).result(60)
    with (
        api_server(lambda exchange: exchange.json(chat_body("a"))) as server,
        scripted(server, prefill="refuse") as backend,
    ):
        chat = Chat((*user("x").messages, Message("assistant", ())), True)
        assert backend.submit(Call(chat)).result(60).text == "a"
    assert len(server.requests[0].body["messages"]) == 1


def test_strict_schemas_are_sent_as_strict_and_others_as_hints() -> None:
    open_schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}}
    with (
        api_server(lambda exchange: exchange.json(chat_body('{"a": 1}'))) as server,
        scripted(server) as backend,
    ):
        call = Call(user("x"), constraint=JsonSchema(open_schema))
        assert backend.submit(call).result(60).text == '{"a": 1}'
        assert backend.submit(Call(user("x"), constraint=JsonSchema(SCHEMA))).error() is None
    found = server.requests[0].body["response_format"]["json_schema"]
    assert (found["strict"], found["schema"]) == (False, open_schema)


def test_an_answer_that_breaks_its_schema_is_requested_once_more() -> None:
    texts = iter(('{"name": 1}', '{"name": "Ada", "age": 36}', "oops", '{"value": "red"}'))
    with (
        api_server(lambda exchange: exchange.json(chat_body(next(texts)))) as server,
        scripted(server) as backend,
    ):
        call = Call(user("x"), constraint=JsonSchema(SCHEMA))
        completion = backend.submit(call).result(60)
        assert completion.text == '{"name": "Ada", "age": 36}'
        assert completion.usage.requests == 2
        assert completion.usage.prompt_tokens == 20
        with pytest.raises(CallFailed, match="does not keep the call's Choices"):
            backend.submit(Call(user("x"), constraint=Choices(("blue", "pink")))).result(60)
    assert len(server.requests) == 4


def test_an_answer_that_was_cut_is_not_validated() -> None:
    with (
        api_server(lambda exchange: exchange.json(chat_body('{"na', reason="length"))) as server,
        scripted(server) as backend,
    ):
        output = backend.submit(Call(user("x"), constraint=JsonSchema(SCHEMA))).result(60)
    assert (output.text, output.outputs[0].finish_reason) == ('{"na', "length")


def test_a_refusal_is_an_error_with_its_text() -> None:
    answer = chat_body(None, refusal="I cannot help with that.")
    with (
        api_server(lambda exchange: exchange.json(answer)) as server,
        scripted(server) as backend,
        pytest.raises(CallFailed, match="I cannot help with that"),
    ):
        backend.submit(Call(user("x"))).result(60)


def test_usage_has_cached_tokens_and_what_they_cost() -> None:
    prices = {"input": 2.0, "output": 10.0, "cached_input": 1.0}
    with (
        api_server(lambda exchange: exchange.json(chat_body("a"))) as server,
        scripted(server, prices=prices) as backend,
    ):
        usage = backend.submit(Call(user("x"))).result(60).usage
        backend.submit(Call(user("x"))).result(60)
        info = backend.info()
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (10, 4, 5)
    assert usage.cost == pytest.approx((6 * 2.0 + 4 * 1.0 + 5 * 10.0) / 1e6)
    assert info.counters["requests"] == 2
    assert info.counters["cost"] == pytest.approx(2 * usage.cost)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"prices": {"input": 1}}, "prices"),
        ({"prices": {"input": 1, "output": -1}}, "prices"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"prompts": "both"}, "prompts"),
        ({"base_url": "ftp://x"}, "base_url"),
        ({"base_url": "http://me:secret@x"}, "base_url"),
        ({"api_key": "a\nb"}, "api_key"),
        ({"num_slots": 5}, "num_slots"),
        ({"process": True}, "process"),
        ({"restart": True, "process": True}, "process"),
    ],
)
def test_settings_are_checked_before_anything_is_sent(
    settings: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with pytest.raises(InvalidCall) as caught:
        forkroot.connect("openai:m", **settings)
    assert caught.value.field == field
    assert "secret" not in str(caught.value)


def test_key_and_url_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(InvalidCall, match="OPENAI_API_KEY"):
        forkroot.connect("openai:m")
    with pytest.raises(InvalidModel, match="names no model"):
        forkroot.connect("openai:")
    with api_server(lambda exchange: exchange.json(chat_body("a"))) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-environment")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        with forkroot.connect("openai:m") as backend:
            assert backend.submit(Call(user("x"))).result(60).text == "a"
        assert server.requests[0].headers["authorization"] == "Bearer sk-of-environment"


def test_the_official_client_finds_the_same_wire_at_our_server(server: str, tiny: Backend) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server}/v1", api_key="x") as client:
        found = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "Tell me about rivers."}],
            max_tokens=12,
            temperature=0,
        )
    text = tiny.submit(Call(user("Tell me about rivers."), GREEDY)).result(30).text
    assert found.choices[0].message.content == text


def test_scripted_streams_have_the_events_that_the_official_client_reads() -> None:
    openai = pytest.importorskip("openai")
    with api_server(lambda exchange: exchange.stream(*chat_events("Hel", "lo"))) as server:
        with openai.OpenAI(base_url=server.url, api_key="x") as client:
            stream = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x"}], stream=True
            )
            found = [it.choices[0].delta.content or "" for it in stream if it.choices]
        with scripted(server) as backend:
            own = [chunk.text for chunk in backend.submit(Call(user("x"), stream=True))]
    assert "".join(found) == "".join(own) == "Hello"
