"""OpenAI's own client against a running server: models, chats and completions."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.core.api.protocol import Call, Chat, Message, Sampling, Text

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
PROMPT = "The capital of France is"


class Person(pydantic.BaseModel):
    name: str
    age: int


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server}/v1", api_key="any", max_retries=0) as client:
        yield client


def chat(client: openai.OpenAI, messages: Any = CAPITAL, **fields: Any) -> Any:
    return client.chat.completions.create(
        **{"model": "tiny", "messages": messages, "temperature": 0, **fields}
    )


def complete(client: openai.OpenAI, prompt: Any = PROMPT, **fields: Any) -> Any:
    settings = {"model": "tiny", "prompt": prompt, "temperature": 0, "max_tokens": 3, **fields}
    return client.completions.create(**settings)


def test_every_name_of_the_model_is_listed_and_served(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny", "alias"]
    assert client.models.retrieve("alias").id == "alias"
    assert chat(client, model="alias").model == "tiny"


def test_a_chat_is_answered_as_the_backend_answers_it(
    client: openai.OpenAI, runtime: Runtime
) -> None:
    response = chat(client)
    prompt = Chat((Message("user", (Text("What is the capital of France?"),)),))
    call = Call(prompt, Sampling(max_tokens=None, temperature=0))
    assert response.choices[0].message.content == runtime.backend.submit(call).result().text
    assert response.choices[0].message.role == "assistant"
    assert response.choices[0].finish_reason == "stop"


def test_usage_reports_what_was_cached(client: openai.OpenAI) -> None:
    chat(client)
    usage = chat(client).usage
    assert usage.prompt_tokens == 16
    assert usage.prompt_tokens_details.cached_tokens == 15
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_stream_begins_with_the_role_and_adds_up_to_the_answer(client: openai.OpenAI) -> None:
    whole = chat(client).choices[0].message.content
    events = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert events[0].choices[0].delta.role == "assistant"
    assert "".join(it.choices[0].delta.content or "" for it in events[:-1]) == whole
    assert [it.choices[0].finish_reason for it in events[-3:-1]] == [None, "stop"]
    assert events[-1].choices == []
    assert events[-1].usage.prompt_tokens == 16
    assert all(event.usage is None for event in events[:-1])


def test_continuous_usage_counts_up(client: openai.OpenAI) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = list(complete(client, stream=True, extra_body={"stream_options": options}))
    assert [it.usage.completion_tokens for it in events] == [1, 2, 3, 3, 3]
    assert {it.usage.prompt_tokens for it in events} == {6}


def test_several_answers_come_with_their_index(client: openai.OpenAI) -> None:
    response = chat(client, n=3)
    assert [choice.index for choice in response.choices] == [0, 1, 2]
    texts = dict.fromkeys(range(3), "")
    for event in chat(client, n=3, stream=True):
        texts[event.choices[0].index] += event.choices[0].delta.content or ""
    assert [*texts.values()] == [choice.message.content for choice in response.choices]


def test_the_same_seed_samples_the_same_answer(client: openai.OpenAI) -> None:
    fields_sent = {"temperature": 1.5, "seed": -7, "max_tokens": 20}
    first, again, other = (chat(client, **{**fields_sent, "seed": seed}) for seed in (-7, -7, 8))
    assert first.choices[0].message.content == again.choices[0].message.content
    assert first.choices[0].message.content != other.choices[0].message.content


def test_a_pydantic_model_is_parsed(client: openai.OpenAI) -> None:
    response = client.chat.completions.parse(
        model="tiny",
        messages=[{"role": "user", "content": "Bob is 3 years old."}],
        response_format=Person,
        temperature=0,
        max_tokens=100,
    )
    assert isinstance(response.choices[0].message.parsed, Person)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"response_format": {"type": "json_object"}}, "object"),
        ({"extra_body": {"regex": "[0-9]{3}-[a-z]{2}"}}, "000-aa"),
        ({"extra_body": {"choices": ["Rome", "Oslo"]}}, "choice"),
        ({"extra_body": {"json_schema": '{"enum": [7, 8]}'}}, "enum"),
        ({"extra_body": {"ebnf": 'root ::= "a" | "b"'}}, "letter"),
        ({"extra_body": {"grammar": 'start: "a" | "b"'}}, "letter"),
    ],
)
def test_constraints_hold(client: openai.OpenAI, fields: dict[str, Any], pattern: str) -> None:
    text = chat(client, max_tokens=60, **fields).choices[0].message.content
    match pattern:
        case "object":
            assert isinstance(json.loads(text), dict)
        case "000-aa":
            assert text[:3].isdecimal() and text[3] == "-" and text[4:].islower() and len(text) == 6
        case "choice":
            assert text in ("Rome", "Oslo")
        case "enum":
            assert json.loads(text) in (7, 8)
        case "letter":
            assert text in ("a", "b")


def test_more_than_one_constraint_is_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, extra_body={"regex": "a", "choices": ["a"]})
    assert caught.value.param == "choices"


def test_stops_end_the_answer(client: openai.OpenAI) -> None:
    response = complete(client, stop=["."], max_tokens=10)
    assert response.choices[0].text == " Paris"
    assert response.choices[0].finish_reason == "stop"


def test_a_bias_with_text_keys_forbids_a_token(client: openai.OpenAI, runtime: Runtime) -> None:
    (paris,) = runtime.texts.encode(" Paris")
    response = complete(client, logit_bias={str(paris): -100})
    assert not response.choices[0].text.startswith(" Paris")


def test_chat_logprobs_spell_the_answer(client: openai.OpenAI) -> None:
    choice = chat(client, logprobs=True, top_logprobs=2).choices[0]
    content = choice.logprobs.content
    assert b"".join(bytes(it.bytes) for it in content).decode() == choice.message.content
    for it in content:
        assert len(it.top_logprobs) == 2
        assert it.logprob == it.top_logprobs[0].logprob <= 0


def test_streamed_logprobs_are_those_of_the_whole_answer(client: openai.OpenAI) -> None:
    whole = chat(client, logprobs=True).choices[0].logprobs.content
    events = chat(client, logprobs=True, stream=True)
    choices = [it.choices[0] for it in events]
    pieces = [it for choice in choices if choice.logprobs for it in choice.logprobs.content]
    assert [it.token for it in pieces] == [it.token for it in whole]
    for piece, it in zip(pieces, whole, strict=True):
        assert piece.logprob == pytest.approx(it.logprob, abs=1e-4)


@pytest.mark.parametrize("kind", ["texts", "ids", "one text", "one list of ids"])
def test_prompts_are_texts_or_ids_or_lists_of_either(
    client: openai.OpenAI, runtime: Runtime, kind: str
) -> None:
    ids = runtime.texts.encode_prompt((Text(PROMPT),))
    prompts = {"texts": [PROMPT] * 2, "ids": [ids] * 2, "one text": PROMPT, "one list of ids": ids}
    response = complete(client, prompts[kind], n=2)
    count = 4 if kind in ("texts", "ids") else 2
    assert [choice.index for choice in response.choices] == list(range(count))
    assert {choice.text for choice in response.choices} == {" Paris. I"}
    assert response.usage.prompt_tokens == 6 * count // 2


def test_echo_repeats_the_prompt_and_scores_it(client: openai.OpenAI, runtime: Runtime) -> None:
    ids = runtime.texts.encode_prompt((Text(PROMPT),))
    response = complete(client, ids, echo=True, logprobs=1, max_tokens=1).choices[0]
    scored = runtime.backend.submit(Call((), options=(PROMPT,))).result().scores[0]
    logprobs = response.logprobs
    assert response.text == f"{PROMPT} Paris"
    assert len(logprobs.tokens) == len(ids) + 1
    assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
    assert logprobs.token_logprobs[1:-1] == pytest.approx(scored.logprobs, abs=1e-3)
    for token, logprob, top in zip(
        logprobs.tokens[1:], logprobs.token_logprobs[1:], logprobs.top_logprobs[1:], strict=True
    ):
        assert top[token] == logprob <= max(top.values()) <= 0


def test_a_prompt_is_scored_alone(client: openai.OpenAI) -> None:
    response = complete(client, echo=True, logprobs=0, max_tokens=0)
    assert response.choices[0].text == PROMPT
    assert len(response.choices[0].logprobs.tokens) == 6
    assert response.usage.completion_tokens == 0


def test_a_streamed_echo_comes_first(client: openai.OpenAI) -> None:
    events = list(complete(client, echo=True, stream=True, logprobs=0))
    assert "".join(event.choices[0].text for event in events) == f"{PROMPT} Paris. I"
    whole = complete(client, echo=True, logprobs=0).choices[0].logprobs
    pieces = [event.choices[0].logprobs for event in events if event.choices[0].logprobs]
    assert [offset for piece in pieces for offset in piece.text_offset] == whole.text_offset
    assert [token for piece in pieces for token in piece.tokens] == whole.tokens


def test_a_rare_token_of_a_prompt_has_a_finite_score(
    client: openai.OpenAI, runtime: Runtime
) -> None:
    ids = [*runtime.texts.encode_prompt((Text(PROMPT),)), 0, 3, 0]
    response = complete(client, ids, echo=True, logprobs=1, max_tokens=0).choices[0]
    assert all(math.isfinite(logprob) for logprob in response.logprobs.token_logprobs[1:])


def test_nulls_and_unknown_fields_change_nothing(client: openai.OpenAI) -> None:
    names = ("top_p", "n", "stop", "tools", "tool_choice", "response_format", "logit_bias", "seed")
    nulls = dict.fromkeys((*names, "regex", "forkroot", "stream_options", "max_tokens", "priority"))
    response = chat(client, extra_body={**nulls, "no_such_field": {"a": 1}})
    assert response.choices[0].message.content == chat(client).choices[0].message.content


def test_content_may_be_parts_of_text_and_developers_are_the_system(
    client: openai.OpenAI,
) -> None:
    parts = [
        {"type": "text", "text": "What is the capital"},
        {"type": "text", "text": " of France?"},
    ]
    plain = [{"role": "system", "content": "Be brief."}, *CAPITAL]
    cut = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    response, fields_sent = chat(client, cut), chat(client, plain)
    assert response.usage.prompt_tokens == fields_sent.usage.prompt_tokens
    assert response.choices[0].message.content == fields_sent.choices[0].message.content


def test_a_last_message_can_be_continued(client: openai.OpenAI) -> None:
    unfinished = [*CAPITAL, {"role": "assistant", "content": "P"}]
    response = chat(client, unfinished, extra_body={"continue_final_message": True})
    assert response.choices[0].message.content == "aris"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"n": 1000}, "n"),
        ({"stop": ["x"] * 99}, "stop"),
        ({"top_logprobs": 99, "logprobs": True}, "top_logprobs"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"extra_body": {"regex": "("}}, "regex"),
        ({"extra_body": {"regex": "(?=a)b"}}, "regex"),
        ({"extra_body": {"forkroot": {"root": 7}}}, "forkroot.root"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, None),
        ({"messages": [{"role": "user", "content": "x " * 5000}]}, "messages"),
    ],
)
def test_a_bad_field_is_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **fields)
    assert caught.value.param == (param or "messages[0].content[0].type")
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_error_before_the_first_token_has_its_status_also_in_a_stream(
    client: openai.OpenAI, is_streamed: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, [[999_999]], stream=is_streamed)
    assert caught.value.param == "prompt"


def test_what_is_not_offered_is_refused_by_name(client: openai.OpenAI) -> None:
    for fields in ({"suffix": "x"}, {"best_of": 3}):
        with pytest.raises(openai.BadRequestError) as caught:
            complete(client, **fields)
        assert caught.value.param == next(iter(fields))


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        chat(client, model="gpt-9")
    assert caught.value.code == "model_not_found"


def test_the_asynchronous_client_is_served_many_times_at_once(server: str) -> None:
    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{server}/v1", api_key="any") as client:
            fields_sent = [
                client.chat.completions.create(model="tiny", messages=CAPITAL, temperature=0)
                for _ in range(12)
            ]
            return [
                response.choices[0].message.content
                for response in await asyncio.gather(*fields_sent)
            ]

    assert set(asyncio.run(ask())) == {"Paris"}


def test_tokens_go_there_and_back(client: openai.OpenAI, runtime: Runtime, server: str) -> None:
    with openai.OpenAI(base_url=server, api_key="any") as plain:
        response = plain.post("/tokenize", body={"prompt": "Hello, you"}, cast_to=dict[str, Any])
        assert response["tokens"] == runtime.texts.encode_prompt((Text("Hello, you"),))
        assert (response["count"], response["max_model_len"]) == (len(response["tokens"]), 2048)
        bare = {"prompt": "Hello, you", "add_special_tokens": False}
        ids = plain.post("/tokenize", body=bare, cast_to=dict[str, Any])["tokens"]
        assert ids == runtime.texts.encode("Hello, you")
        back = plain.post("/detokenize", body={"tokens": ids}, cast_to=dict[str, Any])
        assert back == {"prompt": "Hello, you"}
        response = plain.post("/tokenize", body={"messages": CAPITAL}, cast_to=dict[str, Any])
        assert response["count"] == 16


def test_a_salt_keeps_its_cache_apart(client: openai.OpenAI) -> None:
    ids = [*range(500, 540)]
    first = complete(client, ids, extra_body={"cache_salt": "a"}).usage.prompt_tokens_details
    other = complete(client, ids, extra_body={"cache_salt": "b"}).usage.prompt_tokens_details
    again = complete(client, ids, extra_body={"cache_salt": "a"}).usage.prompt_tokens_details
    assert (first.cached_tokens, other.cached_tokens, again.cached_tokens) == (0, 0, 39)


def test_a_hint_changes_no_answer(client: openai.OpenAI) -> None:
    hint = {"version": 1, "root": "capital", "prefix_end": 1, "branches": 2, "later": True}
    plain = chat(client).choices[0].message.content
    for _ in range(2):  # the second branch releases the root
        response = chat(client, extra_body={"forkroot": hint})
        assert response.choices[0].message.content == plain
