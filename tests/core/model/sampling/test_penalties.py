"""Penalties, biases and bans against an oracle that goes token by token."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch

from forkroot.core.api.batch import GREEDY, SamplingParams
from forkroot.core.model.sampling.penalties import changed

VOCABULARY = 40


def expected(row: np.ndarray, params: SamplingParams) -> np.ndarray:
    wanted = row.astype(np.float64)
    generated = [] if params.generated is None else params.generated.tolist()
    prompt = [] if params.prompt is None else params.prompt.tolist()
    for token in set(generated + prompt):
        penalty = params.repetition_penalty
        wanted[token] = wanted[token] / penalty if wanted[token] > 0 else wanted[token] * penalty
    for token, count in Counter(generated).items():
        wanted[token] -= params.presence_penalty + count * params.frequency_penalty
    for token, bias in params.logit_bias:
        wanted[token] += bias
    wanted[list(params.banned)] = -np.inf
    return wanted


def random_params(random: np.random.Generator) -> SamplingParams:
    def ids(most: int) -> np.ndarray:
        return random.integers(0, VOCABULARY, random.integers(0, most)).astype(np.int32)

    return SamplingParams(
        presence_penalty=float(random.choice([0.0, 0.7])),
        frequency_penalty=float(random.choice([0.0, -0.3])),
        repetition_penalty=float(random.choice([1.0, 1.3, 0.6])),
        generated=ids(30),
        prompt=ids(60) if random.random() < 0.5 else None,
        logit_bias=tuple((int(i), float(i) - 9) for i in np.unique(ids(5))),
        banned=tuple(ids(4).tolist()),
    )


def test_every_row_is_changed_by_its_parameters_and_the_rest_is_left() -> None:
    random = np.random.default_rng(0)
    for _ in range(40):
        logits = random.standard_normal((6, VOCABULARY)).astype(np.float32)
        params = [GREEDY if random.random() < 0.3 else random_params(random) for _ in range(6)]
        before = torch.from_numpy(logits.copy())
        got = changed(before, params)
        wanted = [expected(row, it) for row, it in zip(logits, params, strict=True)]
        assert np.allclose(got.numpy(), np.stack(wanted), atol=1e-5)
        assert np.array_equal(before.numpy(), logits)


def test_nothing_is_copied_where_nothing_changes() -> None:
    logits = torch.zeros(3, VOCABULARY)
    assert changed(logits, [GREEDY, SamplingParams(temperature=1.0, top_p=0.5), GREEDY]) is logits
