"""Our Llama against the one of transformers, however its tokens are cut into batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from forkroot.core.model.llama import Llama
from forkroot.core.model.runner import ModelRunner

from .conftest import NUM_SLOTS, Machine, MakeCheckpoint, Placement, assert_near, load, plain

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "all heads": {"num_key_value_heads": 4, "head_dim": 16},
    "one kv head": {"num_key_value_heads": 1, "rms_norm_eps": 1e-3},
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}},
    "llama3 rope": {"rope_parameters": {**LLAMA3, "rope_theta": 1000.0}},
}


def random_ids(random: np.random.Generator, count: int) -> list[int]:
    return random.integers(3, 97, count).tolist()


@pytest.fixture(scope="module", params=list(KINDS))
def pair(request: pytest.FixtureRequest, make_checkpoint: MakeCheckpoint) -> tuple[Llama, Any]:
    folder, model = make_checkpoint(**KINDS[request.param])
    return load(folder), model


def test_logits_are_those_of_transformers_however_a_prompt_is_cut(pair: tuple[Llama, Any]) -> None:
    ours, theirs = pair
    place = Placement()
    ids = random_ids(place.random, 150)
    wanted = plain(theirs, ids)
    for cuts in ([150], [1, 149], [64, 60, 2, 1, 1, 22], [17, 17, 116], [1] * 20):
        machine, place = Machine(ours), Placement(len(cuts))
        sequence = place.add(ids)
        got = torch.cat([machine.logits(place.batch({sequence: cut}))[0] for cut in cuts])
        assert_near(got, wanted[: sum(cuts)])


def test_ragged_batches_over_shared_roots_do_not_change_logits(pair: tuple[Llama, Any]) -> None:
    ours, theirs = pair
    machine, place = Machine(ours), Placement(7)
    root = place.add(random_ids(place.random, 190))
    stranger = place.add(random_ids(place.random, 30))
    machine.logits(place.batch({root: 190, stranger: 13}))
    branches = [place.fork(root, random_ids(place.random, 40)) for _ in range(5)]
    for counts in ([1, 1, 1, 1, 1], [3, 18, 1, 1, 2], [1, 1, 30, 2, 1]):
        batch = place.batch({**dict(zip(branches, counts, strict=True)), stranger: 1})
        for sequence, got in zip([*branches, stranger], machine.logits(batch), strict=True):
            end = place.computed[sequence]
            assert_near(got, plain(theirs, place.ids[sequence][:end])[end - len(got) :])


def test_greedy_answers_are_those_of_generate(pair: tuple[Llama, Any]) -> None:
    ours, theirs = pair
    runner, place = ModelRunner(ours, NUM_SLOTS), Placement(3)
    prompts = [random_ids(place.random, n) for n in (40, 1, 23, 9)]
    for prompt in prompts:
        place.add(prompt)
    counts = {s: len(prompt) for s, prompt in enumerate(prompts)}
    for _ in range(20):
        tokens = runner.run(place.batch(counts)).tokens
        for s, token in enumerate(tokens.tolist()):
            place.ids[s].append(token)
        counts = dict.fromkeys(counts, 1)
    for s, prompt in enumerate(prompts):
        options = {"max_new_tokens": 20, "do_sample": False, "eos_token_id": None}
        wanted = theirs.generate(torch.tensor([prompt]), pad_token_id=0, **options)
        assert place.ids[s] == wanted[0].tolist()


def test_a_linear_scaling_of_positions_may_use_the_older_keys(
    make_checkpoint: MakeCheckpoint,
    rewrite: Callable[..., None],
) -> None:
    folder, theirs = make_checkpoint(**KINDS["llama3 rope"])
    rewrite(folder, rope_parameters=None, rope_theta=1000.0, rope_scaling=LLAMA3)
    ids = random_ids(np.random.default_rng(0), 100)
    place = Placement()
    got = Machine(load(folder)).logits(place.batch({place.add(ids): 100}))[0]
    assert_near(got, plain(theirs, ids))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(make_checkpoint: MakeCheckpoint, dtype: torch.dtype) -> None:
    folder, theirs = make_checkpoint(initializer_range=0.1)
    machine, place = Machine(load(folder, dtype)), Placement()
    sequence = place.add(random_ids(place.random, 80))
    got = [machine.logits(place.batch({sequence: count}))[0] for count in (60, 1, 1, 18)]
    assert (torch.cat(got) - plain(theirs, place.ids[sequence])).abs().max() < 0.1
