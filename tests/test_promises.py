"""The first promise on a real model: greedy tokens are those of transformers, and the same with
cache, hints, chunks, batches and retraction in every way. `benchmarks/models/parity.py` is its
program; here twenty short prompts always, and the two hundred of up to 1,500 tokens with the slow
tests."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from forkroot.core.api.protocol import Call, ForkHint, Sampling, Text
from forkroot.core.local import LocalBackend, model_folder

SEED = 3


class Case(NamedTuple):
    """A set of prompts, and what transformers answers."""

    parity: ModuleType
    checkpoint: Any
    prompts: list[Any]
    max_tokens: int
    expected: list[tuple[int, ...]]


@pytest.fixture(scope="module")
def parity() -> ModuleType:
    from forkroot.benchmarks.models import parity

    return parity


def case(parity: ModuleType, count: int, longest: int, max_tokens: int) -> Case:
    folder = model_folder("tiny")
    checkpoint = parity.Checkpoint.load(folder)
    prompts = parity.make_prompts(checkpoint.tokenizer, count, longest, SEED)
    expected = parity.expected(folder, prompts, max_tokens)
    return Case(parity, checkpoint, prompts, max_tokens, expected)


@pytest.fixture(scope="module")
def few(parity: ModuleType) -> Case:
    return case(parity, count=20, longest=400, max_tokens=8)


@pytest.fixture(scope="module")
def many(parity: ModuleType) -> Case:
    return case(parity, count=200, longest=1500, max_tokens=16)


def check(case: Case, name: str) -> None:
    variant = next(variant for variant in case.parity.VARIANTS if variant.name == name)
    served = case.parity.serve(case.checkpoint, case.prompts, variant, case.max_tokens, SEED)
    assert served == case.expected


NAMES = (
    "everything on",
    "no cache",
    "no hints",
    "hints not followed",
    "wrong hints",
    "chunks of 7",
    "chunks of 64",
    "batches of 1",
    "batches of 4",
    "retraction at every third step",
    "overlap",
    "overlap in chunks of 64 in a small pool",
    "a small pool",
    "a small pool without a cache",
    "a small pool before a host",
    "a host written through",
)


def test_every_variant_is_tested(parity):
    assert tuple(variant.name for variant in parity.VARIANTS) == NAMES


def test_prompts_are_what_the_promise_says(few):
    lengths = [len(prompt.ids) for prompt in few.prompts]
    assert len(lengths) == 20
    assert 1 <= min(lengths) < 50 < 300 < max(lengths) <= 400
    assert len({prompt.root for prompt in few.prompts if prompt.root}) < 10
    assert len(set(few.expected)) > 10


@pytest.mark.parametrize("name", NAMES)
def test_twenty_prompts_get_the_tokens_that_transformers_gives_them(few, name):
    check(few, name)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_two_hundred_prompts_get_the_tokens_that_transformers_gives_them(many, name):
    check(many, name)


@pytest.fixture(scope="module")
def backend() -> Iterator[LocalBackend]:
    with LocalBackend.from_folder("tiny", dtype="float32", num_slots=4096, max_running=8) as it:
        yield it
        it.check()


ROOT = "Here are the facts. Paris is the capital of France. Rome is the capital of Italy.\n"


def test_seeded_samples_are_the_same_alone_and_in_a_crowd(backend):
    sampling = Sampling(temperature=1.0, top_p=0.9, top_k=50, seed=11, n=3, max_tokens=12)
    call = Call((Text(ROOT), Text("And the capital of Spain")), sampling)
    alone = backend.submit(call).result(60).outputs
    others = [Call((Text(ROOT), Text(f"City {number}"))) for number in range(10)]
    replies = [backend.submit(one) for one in (*others[:5], call, *others[5:])]
    assert replies[5].result(60).outputs == alone
    assert len({output.ids for output in alone}) > 1
    for reply in replies:
        reply.result(60)


def test_scored_options_are_the_same_from_the_cache(backend):
    options = (" Paris", " Rome", " Madrid")
    call = Call((Text(ROOT), Text("The capital of Italy is")), options=options)
    backend.clear_cache()
    cold = backend.submit(call).result(60)
    warm = backend.submit(call).result(60)
    assert cold.usage.cached_tokens < warm.usage.cached_tokens
    for first, second in zip(cold.scores, warm.scores, strict=True):
        assert first.ids == second.ids
        assert first.logprobs == pytest.approx(second.logprobs, abs=1e-4)
    assert max(cold.scores, key=lambda score: score.logprob).text == " Rome"


def test_a_stream_adds_up_to_the_answer(backend):
    reply = backend.submit(Call((Text(ROOT),), Sampling(temperature=0, max_tokens=20), stream=True))
    chunks = list(reply)
    output = reply.result(60).outputs[0]
    assert "".join(chunk.text for chunk in chunks) == output.text
    assert sum((chunk.ids for chunk in chunks), ()) == output.ids


def test_branches_of_a_planted_root_compute_only_what_is_their_own(backend):
    backend.clear_cache()
    backend.reset_counters()
    hint = ForkHint("facts", branches=4)
    plant = Call((Text(ROOT),), Sampling(max_tokens=0), hint=hint)
    size = backend.submit(plant).result(60).usage.prompt_tokens
    branches = [
        Call((Text(ROOT), Text(f"{letter}. ")), Sampling(max_tokens=1), hint=hint)
        for letter in "ABCD"
    ]
    for reply in [backend.submit(branch) for branch in branches]:
        assert reply.result(60).usage.cached_tokens >= size - 1
