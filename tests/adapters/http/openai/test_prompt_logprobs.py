"""Log-probabilities of a prompt's own tokens are those of the model, whatever tokens they are."""

from __future__ import annotations

import random
from typing import Any

import httpx
import pytest

from forkroot.core.api.protocol import Call, Sampling, Text, Tokens

from ..conftest import model_logprobs

TEXTS = [
    "The capital of France is Paris, and that of Japan 東京 — naïve Ünïcödé 🙂🙂!",
    "  blanks   and\n\n\nlines\t\tand 1234567890 digits",
]


def scored(backend: Any, ids: list[int], start: int, num_top: int = 0) -> Any:
    sampling = Sampling(max_tokens=0, logprobs=num_top)
    call = Call((Tokens(tuple(ids)),), sampling, scored_from=start)
    return backend.submit(call).result(30).prompt_logprobs


@pytest.mark.parametrize("text", TEXTS)
def test_from_every_place_of_a_text(backend: Any, text: str) -> None:
    ids = list(backend.tokenizer.encode_prompt((Text(text),)))
    expected = model_logprobs(backend, ids, 1)
    for start in range(1, len(ids)):
        found = scored(backend, ids, start)
        assert [one.id for one in found] == ids[start:]
        assert [one.logprob for one in found] == pytest.approx(expected[start - 1 :], abs=2e-3)


@pytest.mark.parametrize("seed", range(3))
def test_of_tokens_that_no_text_is_cut_into(backend: Any, seed: int) -> None:
    size = backend.info().vocabulary_size
    ids = [random.Random(seed).randrange(size) for _ in range(12)]
    found = scored(backend, ids, 4)
    assert [one.id for one in found] == ids[4:]
    expected = model_logprobs(backend, ids, 4)
    assert [one.logprob for one in found] == pytest.approx(expected, abs=2e-3)


def test_top_logprobs_are_listed_best_first(backend: Any) -> None:
    ids = list(backend.tokenizer.encode_prompt((Text("The capital of France is Paris"),)))
    for one in scored(backend, ids, 1, num_top=3):
        logprobs = [logprob for _, logprob in one.top]
        assert len(logprobs) == 3
        assert logprobs == sorted(logprobs, reverse=True)
        assert one.logprob <= logprobs[0] + 1e-6
        assert dict(one.top).get(one.id, one.logprob) == pytest.approx(one.logprob, abs=1e-5)


@pytest.mark.parametrize("max_tokens", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_echo_takes_one_call_a_prompt_and_returns_each_ones_own(
    server: str, backend: Any, max_tokens: int, stream: bool
) -> None:
    texts = ["The capital of France is Paris", "Of Italy it is Rome", "x"]
    prompts = [list(backend.tokenizer.encode(text)) for text in texts]
    body = {"prompt": prompts, "max_tokens": max_tokens, "echo": True, "logprobs": 1}
    before = backend.info().counters["calls"]
    if stream:
        choices = streamed(server, body)
    else:
        response = httpx.post(f"{server}/v1/completions", json={**body, "temperature": 0}).json()
        choices = {choice["index"]: choice for choice in response["choices"]}
        assert backend.info().counters["calls"] - before == len(prompts)
        assert response["usage"]["prompt_tokens"] == sum(map(len, prompts))
    for index, ids in enumerate(prompts):
        logprobs = choices[index]["logprobs"]
        assert choices[index]["text"].startswith(texts[index])
        assert len(logprobs["tokens"]) == len(ids) + max_tokens
        assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
        expected = model_logprobs(backend, ids, 1)
        assert logprobs["token_logprobs"][1 : len(ids)] == pytest.approx(expected, abs=2e-3)
        pairs = zip(logprobs["tokens"][1:], logprobs["top_logprobs"][1:], strict=True)
        assert all(token in top and len(top) in (1, 2) for token, top in pairs)


def streamed(server: str, body: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The choices of a stream, put together."""
    openai = pytest.importorskip("openai")
    found: dict[int, dict[str, Any]] = {}
    with openai.OpenAI(base_url=f"{server}/v1", api_key="any") as client:
        for event in client.completions.create(model="tiny", temperature=0, stream=True, **body):
            for choice in event.choices:
                response = found.setdefault(choice.index, {"text": "", "logprobs": {}})
                response["text"] += choice.text
                for key, value in (choice.logprobs.model_dump() if choice.logprobs else {}).items():
                    response["logprobs"].setdefault(key, []).extend(value)
    return found


OPENAI = ("/v1/completions", {"echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0})
SGLANG = (
    "/generate",
    {
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        **{"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 1},
    },
)


def values(answer: Any) -> list[list[float | None]]:
    """The log-probabilities of each prompt's tokens and of the answer's one token."""
    if isinstance(answer, dict):
        return [choice["logprobs"]["token_logprobs"] for choice in answer["choices"]]
    sides = "input_token_logprobs", "output_token_logprobs"
    return [[row[0] for side in sides for row in one["meta_info"][side]] for one in answer]


@pytest.mark.parametrize(("route", "body"), [OPENAI, SGLANG], ids=["openai", "sglang"])
def test_options_behind_a_prefix_compute_it_once(
    server: str, backend: Any, route: str, body: dict[str, Any]
) -> None:
    seed, size = len(route), backend.info().vocabulary_size
    rng = random.Random(seed)
    shots, *options = ([rng.randrange(size) for _ in range(n)] for n in (60, 5, 6, 7, 8))
    prompts = [shots + option for option in options]
    field = "prompt" if route == OPENAI[0] else "input_ids"

    def post() -> tuple[Any, int]:
        before = backend.info().counters["computed_tokens"]
        response = httpx.post(f"{server}{route}", json={**body, field: prompts}, timeout=60)
        assert response.status_code == 200, response.text
        return values(response.json()), backend.info().counters["computed_tokens"] - before

    found, num_computed = post()
    assert num_computed <= 60 + 5 + 6 + 7 + 8 + 3  # the last shared token once for each later one
    again, num_computed = post()
    assert num_computed == 4  # the last token of each, for the token that is drawn
    for one, other, ids in zip(found, again, prompts, strict=True):
        assert one[0] is other[0] is None
        assert one[1:-1] == other[1:-1]
        assert one[-1] == pytest.approx(other[-1], abs=2e-3)
        assert one[50:-1] == pytest.approx(model_logprobs(backend, ids, 50), abs=2e-3)
