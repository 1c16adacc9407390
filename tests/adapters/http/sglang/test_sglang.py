"""SGLang's surface, called with the bodies that its clients send."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from forkroot.core.api.protocol import Call, Sampling, Text

from ..conftest import model_logprobs

PROMPT = "The capital of France is"
GREEDY = {"temperature": 0, "max_new_tokens": 5}
# What the frontend's RuntimeEndpoint sends with every generation.
FRONTEND = {
    **{"skip_special_tokens": True, "spaces_between_special_tokens": True, "min_new_tokens": 0},
    **{"n": 1, "stop": [], "stop_token_ids": [], "stop_regex": [], "top_p": 1.0, "top_k": -1},
    **{"min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "ignore_eos": False},
    **{"regex": None, "json_schema": None, **GREEDY},
}


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, timeout=30) as client:
        yield client


def generate(client: httpx.Client, **body: Any) -> Any:
    response = client.post("/generate", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def events(client: httpx.Client, **body: Any) -> list[Any]:
    """The events of a streamed request, without the last, which says that it is done."""
    response = client.post("/generate", json={**body, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def ids_of(backend: Any, text: str) -> list[int]:
    return list(backend.tokenizer.encode_prompt((Text(text),)))


# --- one prompt --------------------------------------------------------------------------------


def test_a_generation_of_the_frontend_is_answered_as_the_backend_answers_it(
    client, backend
) -> None:
    call = Call((Text(PROMPT),), Sampling(max_tokens=5, temperature=0))
    expected = backend.submit(call).result(30)
    answer = generate(client, text=PROMPT, sampling_params=FRONTEND, rid="mine")
    assert answer["text"] == expected.text
    assert answer["output_ids"] == list(expected.outputs[0].ids)
    meta = answer["meta_info"]
    assert meta["id"] == "mine"
    assert meta["finish_reason"] == {"type": "length", "length": 5}
    assert meta["prompt_tokens"] == len(ids_of(backend, PROMPT))
    assert meta["completion_tokens"] == 5
    assert "output_token_logprobs" not in meta


def test_token_ids_are_a_prompt_too(client, backend) -> None:
    text = generate(client, text=PROMPT, sampling_params=GREEDY)["text"]
    ids = ids_of(backend, PROMPT)
    answer = generate(client, input_ids=ids, sampling_params=GREEDY)
    assert answer["text"] == text
    assert answer["meta_info"]["cached_tokens"] == len(ids) - 1


def test_a_stop_is_reported_and_cut_off_unless_it_is_wanted(client) -> None:
    whole = generate(client, text=PROMPT, sampling_params=GREEDY)["text"]
    stop = whole[3:5]
    params = {**GREEDY, "stop": stop}
    answer = generate(client, text=PROMPT, sampling_params=params)
    assert answer["text"] == whole[:3]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    answer = generate(client, text=PROMPT, sampling_params={**params, "no_stop_trim": True})
    assert answer["text"] == whole[:5]
    ids = generate(client, text=PROMPT, sampling_params=GREEDY)["output_ids"]
    answer = generate(client, text=PROMPT, sampling_params={**GREEDY, "stop_token_ids": [ids[1]]})
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": ids[1]}


def test_no_new_tokens_plant_the_prefix(client, backend) -> None:
    backend.clear_cache()
    text = "A prefix that was not seen before, number one."
    answer = generate(client, text=text, sampling_params={"max_new_tokens": 0})
    count = len(ids_of(backend, text))
    assert answer["text"] == ""
    assert answer["meta_info"]["prompt_tokens"] == count
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    after = generate(client, text=text, sampling_params=GREEDY)
    assert after["meta_info"]["cached_tokens"] == count - 1


def test_an_empty_prefix_can_be_planted(client) -> None:
    answer = generate(client, text="", sampling_params={"max_new_tokens": 0})
    assert (answer["text"], answer["meta_info"]["prompt_tokens"]) == ("", 0)
    assert events(client, text="", sampling_params={"max_new_tokens": 0})[-1]["text"] == ""


@pytest.mark.parametrize(
    ("params", "is_valid"),
    [
        ({"regex": "[0-9]{2}-[0-9]{2}"}, lambda text: len(text) == 5 and text[2] == "-"),
        (
            {"json_schema": '{"type": "object", "properties": {"a": {"type": "boolean"}}}'},
            lambda text: isinstance(json.loads(text), dict),
        ),
        ({"json_schema": {"enum": ["x"]}}, lambda text: text == '"x"'),
        ({"json_schema": {"const": {"a": [1, 2]}}}, lambda text: text == '{"a": [1, 2]}'),
        (
            {"json_schema": {"const": {"a": [1, 2]}}, "json_separators": [",", ":"]},
            lambda text: text == '{"a":[1,2]}',
        ),
        ({"json_schema": "$$ANY$$"}, lambda text: isinstance(json.loads(text), dict)),
        ({"ebnf": 'root ::= "yes" | "no"'}, lambda text: text in ("yes", "no")),
    ],
    ids=["regex", "schema", "schema as object", "blanks", "compact", "any object", "ebnf"],
)
def test_constraints_hold(client, params, is_valid) -> None:
    answer = generate(
        client, text=PROMPT, sampling_params={**params, "temperature": 0, "max_new_tokens": 60}
    )
    assert is_valid(answer["text"])
    assert answer["meta_info"]["finish_reason"]["type"] == "stop"


def test_a_seed_gives_the_same_answer_again(client) -> None:
    params = {"sampling_seed": 7, "temperature": 1.0, "max_new_tokens": 8}
    texts = {generate(client, text="Once", sampling_params=params)["text"] for _ in range(3)}
    assert len(texts) == 1


# --- lists -------------------------------------------------------------------------------------


def test_a_list_in_gives_a_list_out_in_order(client) -> None:
    texts = [PROMPT, "One, two,", "The capital of Italy is"]
    alone = [generate(client, text=text, sampling_params=GREEDY)["text"] for text in texts]
    many = generate(client, text=texts, sampling_params=GREEDY, rid=["a", "b", "c"])
    assert [one["text"] for one in many] == alone
    assert [one["meta_info"]["id"] for one in many] == ["a", "b", "c"]
    assert len(generate(client, text=texts[:1], sampling_params=GREEDY)) == 1


def test_each_prompt_of_a_list_may_have_its_own_parameters(client, backend) -> None:
    ids = [ids_of(backend, PROMPT), ids_of(backend, "One, two,")]
    params = [{**GREEDY, "max_new_tokens": 2}, {**GREEDY, "max_new_tokens": 4}]
    many = generate(client, input_ids=ids, sampling_params=params, return_logprob=[True, False])
    assert [one["meta_info"]["completion_tokens"] for one in many] == [2, 4]
    assert ["output_token_logprobs" in one["meta_info"] for one in many] == [True, False]


def test_n_answers_are_a_list_with_an_id_each(client) -> None:
    params = {"n": 3, "max_new_tokens": 9, "sampling_seed": 1, "temperature": 2.0}
    many = generate(client, text=PROMPT, sampling_params=params, rid="r")
    assert [one["meta_info"]["id"] for one in many] == ["r_0", "r_1", "r_2"]
    assert len({one["text"] for one in many}) > 1


# --- streams -----------------------------------------------------------------------------------


def test_a_stream_sends_all_of_the_text_each_time(client) -> None:
    whole = generate(client, text=PROMPT, sampling_params=FRONTEND)
    answer = events(client, text=PROMPT, sampling_params=FRONTEND)
    texts = [one["text"] for one in answer]
    assert texts[-1] == whole["text"]
    assert all(later.startswith(text) for text, later in itertools.pairwise(texts))
    assert answer[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 5}
    assert all(one["meta_info"]["finish_reason"] is None for one in answer[:-1])
    assert len(answer) > 1
    assert "index" not in answer[0]


def test_a_stream_of_several_answers_says_which_is_which(client) -> None:
    texts = [PROMPT, "One, two,"]
    whole = generate(client, text=texts, sampling_params={**GREEDY, "n": 2})
    answer = events(client, text=texts, sampling_params={**GREEDY, "n": 2})
    last = {one["index"]: one["text"] for one in answer if one["meta_info"]["finish_reason"]}
    assert last == {index: one["text"] for index, one in enumerate(whole)}


def test_a_stream_sends_log_probabilities_as_they_come(client) -> None:
    body = {"text": PROMPT, "sampling_params": GREEDY, "return_logprob": True}
    answer = events(client, **body, logprob_start_len=0)
    whole = generate(client, **body, logprob_start_len=0)
    for side in ("input", "output"):
        name = f"{side}_token_logprobs"
        assert answer[-1]["meta_info"][name] == whole["meta_info"][name]
    assert len(answer[0]["meta_info"]["output_token_logprobs"]) == 1


# --- log-probabilities, and what select asks -------------------------------------------------


def test_a_request_of_select_is_answered_by_each_choice_and_its_log_probability(
    client, backend
) -> None:
    choices = [" Paris", " London", " Rome is", "xyz"]
    plant = generate(client, text=PROMPT, sampling_params={"max_new_tokens": 0})
    start = plant["meta_info"]["prompt_tokens"] - 2
    many = generate(
        client,
        text=[PROMPT + choice for choice in choices],
        sampling_params={"max_new_tokens": 0, "temperature": 0},
        return_logprob=True,
        return_text_in_logprobs=True,
        logprob_start_len=start,
    )
    for choice, one in zip(choices, many, strict=True):
        meta, ids = one["meta_info"], ids_of(backend, PROMPT + choice)
        found = meta["input_token_logprobs"]
        assert [token for _, token, _ in found] == ids[start + 1 :]
        assert [text for _, _, text in found] == [
            backend.tokenizer.decode([token]) for token in ids[start + 1 :]
        ]
        assert [logprob for logprob, _, _ in found] == pytest.approx(
            model_logprobs(backend, ids, start + 1), abs=1e-3
        )
        assert meta["output_token_logprobs"] == []
        assert meta["prompt_tokens"] == len(ids)
        assert one["text"] == ""


def test_the_shared_part_of_choices_is_computed_once(client, backend) -> None:
    backend.clear_cache()
    text = "A long question that all the choices have in common, whatever it may be about: "
    count = generate(client, text=text, sampling_params={"max_new_tokens": 0})
    start = count["meta_info"]["prompt_tokens"] - 2
    many = generate(
        client,
        text=[text + choice for choice in ("yes", "no", "maybe")],
        sampling_params={"max_new_tokens": 0},
        return_logprob=True,
        logprob_start_len=start,
    )
    assert all(one["meta_info"]["cached_tokens"] >= start - 8 for one in many)


def test_tokens_that_no_text_is_cut_into_are_scored_too(client, backend) -> None:
    ids = [*ids_of(backend, "a"), *ids_of(backend, "b"), 3, *map(ord, "ab"), 5]
    answer = generate(
        client,
        input_ids=ids,
        sampling_params={"max_new_tokens": 0},
        return_logprob=True,
        logprob_start_len=1,
    )
    found = answer["meta_info"]["input_token_logprobs"]
    assert [token for _, token, _ in found] == ids[2:]
    expected = model_logprobs(backend, ids, 2)
    assert [logprob for logprob, _, _ in found] == pytest.approx(expected, abs=1e-3)


def test_the_first_token_of_a_prompt_has_no_log_probability(client, backend) -> None:
    ids = ids_of(backend, PROMPT)
    for start in (0, None):
        answer = generate(
            client,
            input_ids=ids,
            sampling_params={"max_new_tokens": 0},
            return_logprob=True,
            logprob_start_len=start,
        )
        found = answer["meta_info"]["input_token_logprobs"]
        assert found[0] == [None, ids[0], None]
        assert [token for _, token, _ in found] == ids
        assert all(logprob <= 0 for logprob, _, _ in found[1:])


def test_a_generation_returns_its_own_log_probabilities_and_the_top_ones(client, backend) -> None:
    body = {
        "text": PROMPT,
        "sampling_params": GREEDY,
        "return_logprob": True,
        "top_logprobs_num": 2,
        "return_text_in_logprobs": True,
    }
    answer = generate(client, **body)
    meta = answer["meta_info"]
    assert meta["input_token_logprobs"] == []
    assert [token for _, token, _ in meta["output_token_logprobs"]] == answer["output_ids"]
    assert "".join(text for _, _, text in meta["output_token_logprobs"]) == answer["text"]
    for chosen, top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True):
        assert top[0] == chosen
        assert len(top) == 2
    meta = generate(client, **body, logprob_start_len=0)["meta_info"]
    assert meta["input_top_logprobs"][0] is None
    assert [len(top) for top in meta["input_top_logprobs"][1:]] == [2] * (meta["prompt_tokens"] - 1)


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "text"),
        ({"text": ""}, "text="),
        ({"text": []}, "text"),
        ({"text": 3}, "text"),
        ({"text": ["a"] * 257}, "text"),
        ({"input_ids": [99999]}, "input_ids="),
        ({"text": "a", "image_data": "x.png"}, "image_data"),
        ({"text": "a", "lora_path": "x"}, "lora_path"),
        ({"text": "a", "rid": ["a", "b"]}, "rid"),
        ({"text": "a", "priority": 1000}, "priority"),
        ({"text": "a", "forkroot": {"root": 3}}, "forkroot.root"),
        ({"text": "a", "return_logprob": True, "top_logprobs_num": 999}, "top_logprobs_num"),
        ({"text": "a", "sampling_params": {"temperature": -1}}, "sampling_params.temperature"),
        ({"text": "a", "sampling_params": {"temperature": "hot"}}, "temperature"),
        ({"text": "a", "sampling_params": {"max_new_tokens": -1}}, "max_new_tokens"),
        ({"text": "a", "sampling_params": {"n": 33}}, "sampling_params.n"),
        ({"text": ["a"] * 20, "sampling_params": {"n": 30}}, "sampling_params.n"),
        ({"text": ["a", "b"], "sampling_params": [{"n": 1}, {"n": 2}]}, "sampling_params.n"),
        ({"text": ["a"] * 3, "sampling_params": [{}] * 2}, "sampling_params"),
        ({"text": "a", "sampling_params": {"stop": ["a"] * 17}}, "sampling_params.stop"),
        ({"text": "a", "sampling_params": {"stop_regex": ["a"]}}, "stop_regex"),
        ({"text": "a", "sampling_params": {"regex": "("}}, "regex"),
        ({"text": "a", "sampling_params": {"regex": "a" * (1 << 20 | 1)}}, "sampling_params.regex"),
        ({"text": "a", "sampling_params": {"json_schema": "{"}}, "sampling_params.json_schema"),
        (
            {"text": "a", "sampling_params": {"regex": "a", "json_separators": [",", ":"]}},
            "sampling_params.json_separators",
        ),
        (
            {"text": "a", "sampling_params": {"json_schema": "true", "json_separators": [","]}},
            "sampling_params.json_separators",
        ),
        ({"text": "a", "sampling_params": {"regex": "a", "ebnf": "b"}}, "sampling_params.ebnf"),
        ({"text": "a", "sampling_params": {"logit_bias": {"x": 1}}}, "logit_bias"),
        ({"text": "a", "sampling_params": {"skip_special_tokens": False}}, "skip_special_tokens"),
        ({"text": "a " * 3000}, "text="),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
def test_what_is_not_allowed_is_named_and_harms_nobody(client, body, name, is_streamed) -> None:
    response = client.post("/generate", json={**body, "stream": is_streamed})
    assert response.status_code == 400
    assert name in response.json()["error"]["message"]
    assert generate(client, text=PROMPT, sampling_params=GREEDY)["text"]


def test_one_bad_prompt_of_a_list_is_reported(client) -> None:
    response = client.post("/generate", json={"text": ["a", ""], "sampling_params": GREEDY})
    assert response.status_code == 400
    assert "text=" in response.json()["error"]["message"]


# --- beside it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/get_model_info", "/model_info"])
def test_the_model_is_reported(client, path) -> None:
    answer = client.get(path).json()
    assert answer["model_path"] == "tiny"
    assert answer["is_generation"] is True


@pytest.mark.parametrize("path", ["/get_server_info", "/server_info"])
def test_the_server_is_reported(client, backend, path) -> None:
    answer = client.get(path).json()
    assert answer["context_length"] == backend.info().context_len
    assert answer["internal_states"][0]["calls"] >= 0


def test_a_salt_keeps_a_prompt_to_itself(client, backend) -> None:
    backend.clear_cache()
    body = {"text": "Something that is asked with salt and without.", "sampling_params": GREEDY}
    for extra in ({}, {"cache_salt": "a"}, {"extra_key": "b"}):
        first = generate(client, **body, **extra)["meta_info"]["cached_tokens"]
        assert first == 0
        assert generate(client, **body, **extra)["meta_info"]["cached_tokens"] > 0


def test_a_hint_comes_through_to_the_runtime(client, backend) -> None:
    backend.clear_cache()
    hint = {"version": 1, "root": "r", "branches": 2}
    body = {"text": "A root that is pinned by a hint.", "forkroot": hint}
    generate(client, **body, sampling_params={"max_new_tokens": 0})
    assert locked(backend)
    for _ in range(2):
        assert locked(backend)
        generate(client, **body, sampling_params=GREEDY)
    assert not locked(backend)


def test_a_client_that_leaves_ends_its_call(client, backend) -> None:
    params = {"max_new_tokens": 400, "ignore_eos": True}
    before = backend.info().counters["completion_tokens"]
    body = {"text": "Once", "sampling_params": params, "stream": True}
    with client.stream("POST", "/generate", json=body) as response:
        next(response.iter_lines())
    with pytest.raises(httpx.ReadTimeout):
        client.post("/generate", json={**body, "stream": False}, timeout=0.05)
    ends_at = time.monotonic() + 60
    while locked(backend) and time.monotonic() < ends_at:
        time.sleep(0.01)
    assert not locked(backend)
    assert backend.info().counters["completion_tokens"] - before < 800


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "stream"])
def test_a_request_is_aborted_by_its_id(client, backend, is_streamed) -> None:
    params = {"max_new_tokens": 1500, "ignore_eos": True}
    body = {"text": "Once", "sampling_params": params, "rid": f"mine {is_streamed}"}
    ask = events if is_streamed else generate
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(ask, client, **body)
        ends_at = time.monotonic() + 60
        while not future.done() and time.monotonic() < ends_at:
            client.post("/abort_request", json={"rid": body["rid"]}).raise_for_status()
        answer = future.result(60)
    meta = (answer[-1] if is_streamed else answer)["meta_info"]
    assert meta["finish_reason"]["type"] == "abort"
    assert meta["id"] == body["rid"]
    assert not locked(backend)


def locked(backend: Any) -> bool:
    """Whether any part of the tree is held by a call or a pin."""
    return any(view.lock_count for view in backend.snapshot() if view.parent >= 0)
