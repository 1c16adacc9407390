"""Penalties, biases and bans against an oracle that goes token by token."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch

from forkroot.core.api.batch import GREEDY, SamplingParams
from forkroot.core.model.sampling.penalties import changed

VOCABULARY = 40


def expected(row: np.ndarray, draw: SamplingParams) -> np.ndarray:
    wanted = row.astype(np.float64)
    generated = [] if draw.generated is None else draw.generated.tolist()
    prompt = [] if draw.prompt is None else draw.prompt.tolist()
    for token in set(generated + prompt):
        penalty = draw.repetition_penalty
        wanted[token] = wanted[token] / penalty if wanted[token] > 0 else wanted[token] * penalty
    for token, count in Counter(generated).items():
        wanted[token] -= draw.presence_penalty + count * draw.frequency_penalty
    for token, bias in draw.logit_bias:
        wanted[token] += bias
    wanted[list(draw.banned)] = -np.inf
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


def test_every_row_is_changed_as_its_draw_says_and_the_rest_is_left() -> None:
    random = np.random.default_rng(0)
    for _ in range(40):
        logits = random.standard_normal((6, VOCABULARY)).astype(np.float32)
        draws = [GREEDY if random.random() < 0.3 else random_params(random) for _ in range(6)]
        before = torch.from_numpy(logits.copy())
        got = changed(before, draws)
        wanted = [expected(row, draw) for row, draw in zip(logits, draws, strict=True)]
        assert np.allclose(got.numpy(), np.stack(wanted), atol=1e-5)
        assert np.array_equal(before.numpy(), logits)


def test_nothing_is_copied_where_nothing_changes() -> None:
    logits = torch.zeros(3, VOCABULARY)
    assert changed(logits, [GREEDY, SamplingParams(temperature=1.0, top_p=0.5), GREEDY]) is logits
