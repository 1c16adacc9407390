"""`deterministic=True`: answers and log-probabilities equal bit by bit, whatever is cached."""

from __future__ import annotations

from typing import Any

import pytest

from forkroot.core.api.protocol import Call, InvalidCall, Output, Sampling, Text
from forkroot.core.local import LocalBackend

pytestmark = pytest.mark.timeout(120)
ROOT = "The tide falls and the sea is old, for the king of the moon sleeps in stone. " * 3
PROMPTS = [f"{ROOT}{'And on it goes. ' * number}The king" for number in range(6)]


def outputs(is_one_by_one: bool, **settings: Any) -> list[Output]:
    calls = [
        Call((Text(prompt),), Sampling(max_tokens=12, temperature=1.0, seed=seed, logprobs=2))
        for seed, prompt in enumerate(PROMPTS)
    ]
    with LocalBackend.from_folder(num_slots=4000, deterministic=True, **settings) as backend:
        if is_one_by_one:
            return [backend.submit(call).result().outputs[0] for call in calls]
        return [reply.result().outputs[0] for reply in [backend.submit(call) for call in calls]]


def test_samples_and_logprobs_do_not_depend_on_cache_chunks_or_neighbours() -> None:
    fresh = outputs(True, cache=False)
    assert outputs(True) == fresh
    assert outputs(False, chunk_tokens=23) == fresh
    assert outputs(False, max_running=2, order="random", jumps=False) == fresh


@pytest.mark.parametrize(
    ("setting", "value"),
    [("device", "cuda:0"), ("attention", "plain"), ("ranks", 2), ("dtype", "bfloat16")],
)
def test_what_may_change_bits_is_refused(setting: str, value: Any) -> None:
    with pytest.raises(InvalidCall, match=f"{setting}=.*with deterministic=True"):
        LocalBackend.from_folder(deterministic=True, **{setting: value})


def test_models_that_are_not_dense_ones_of_ours_are_refused() -> None:
    with pytest.raises(InvalidCall, match="dense models of our own architectures"):
        LocalBackend.from_folder("dummy:mixtral-8x7b", deterministic=True, dtype="float32")
