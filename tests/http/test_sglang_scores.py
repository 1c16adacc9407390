"""Log-probabilities of a prompt's own tokens are those of the model, whatever tokens they are."""

from __future__ import annotations

import random
from typing import Any

import pytest

from forkroot.adapters.http.sglang_scores import scoring_of
from forkroot.core.protocol import Call, InvalidCall, Sampling, Text, TokenLogprob

from .conftest import model_logprobs

TEXTS = [
    "The capital of France is Paris, and that of Japan 東京 — naïve Ünïcödé 🙂🙂!",
    "  blanks   and\n\n\nlines\t\tand 1234567890 digits",
    "a",
]


def scored(backend: Any, ids: list[int], start: int, num_top: int = 0) -> list[TokenLogprob]:
    def call(prompt: Any, sampling: Sampling, options: tuple[str, ...]) -> Call:
        return Call(prompt, sampling, options=options)

    scoring = scoring_of(backend.tokenizer, ids, start, num_top, 512, call)
    return scoring.found([backend.submit(one).result(30) for one in scoring.calls])


@pytest.mark.parametrize("text", TEXTS)
def test_from_every_place_of_a_text(backend: Any, text: str) -> None:
    ids = list(backend.tokenizer.encode_prompt((Text(text),)))
    expected = model_logprobs(backend, ids, 1)
    for start in range(len(ids)):
        found = scored(backend, ids, start)
        first = 0 if start == 0 else 1
        assert [one.id for one in found] == ids[start + first :]
        logprobs = [one.logprob for one in found[1 - first :]]
        assert logprobs == pytest.approx(expected[start:], abs=2e-3)


@pytest.mark.parametrize("seed", range(5))
def test_of_tokens_that_no_text_is_cut_into(backend: Any, seed: int) -> None:
    size = backend.info().vocabulary_size
    ids = [random.Random(seed).randrange(size) for _ in range(12)]
    found = scored(backend, ids, 3)
    assert [one.id for one in found] == ids[4:]
    expected = model_logprobs(backend, ids, 4)
    assert [one.logprob for one in found] == pytest.approx(expected, abs=2e-3)


def test_rivals_are_told_best_first(backend: Any) -> None:
    ids = list(backend.tokenizer.encode_prompt((Text("The capital of France is Paris"),)))
    for one in scored(backend, ids, 1, num_top=3):
        logprobs = [logprob for _, logprob in one.top]
        assert len(logprobs) == 3
        assert logprobs == sorted(logprobs, reverse=True)
        assert one.logprob <= logprobs[0]


def test_what_a_text_is_cut_into_takes_one_call(backend: Any) -> None:
    ids = list(backend.tokenizer.encode_prompt((Text("The capital of France is Paris"),)))

    def call(prompt: Any, sampling: Sampling, options: tuple[str, ...]) -> Call:
        return Call(prompt, sampling, options=options)

    assert len(scoring_of(backend.tokenizer, ids, 2, 0, 1, call).calls) == 1
    with pytest.raises(InvalidCall, match="top_logprobs_num"):
        scoring_of(backend.tokenizer, ids, 2, 1, 1, call)
