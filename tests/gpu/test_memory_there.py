"""Memory of a GPU that runs out in the middle of the work costs time, and no call."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch

from forkroot.core.api.protocol import Call, Sampling, Tokens
from forkroot.core.local import LocalBackend

from .asking import answers_of, make_prompts

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SPARE = 192 << 20  # bytes: room for a quarter of a step with all prompts, not for all of it
SETTINGS = {"dtype": "float32", "num_slots": 80_000, "context_len": 1024, "max_running": 64}


@pytest.fixture
def small_device(device: str) -> Iterator[str]:
    """A device whose memory gets its old size back."""
    yield device
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_step_that_does_not_fit_is_done_in_pieces_or_later(small_device) -> None:
    rng = random.Random(5)
    sampling = Sampling(max_tokens=8, temperature=0.0, ignore_eos=True)
    prompts = [Tokens(tuple(rng.choices(range(300, 4000), k=900))) for _ in range(60)]
    calls = [Call((prompt,), sampling) for prompt in prompts]
    settings = {**SETTINGS, "device": small_device, "chunk_tokens": 60_000}
    with LocalBackend.from_folder("tiny", **settings) as backend:
        wanted = answers_of(backend, calls)
        backend.clear_cache()
        torch.cuda.empty_cache()
        memory = torch.cuda.get_device_properties(0).total_memory
        before = torch.cuda.memory_stats()["num_ooms"]
        room = torch.cuda.memory_reserved() + SPARE
        torch.cuda.set_per_process_memory_fraction(room / memory)
        assert answers_of(backend, calls) == wanted
        assert torch.cuda.memory_stats()["num_ooms"] > before
        backend.check()


def test_a_pool_that_is_not_given_a_size_leaves_memory_for_the_work(device) -> None:
    calls = make_prompts(20, 900, 8)
    settings = {**SETTINGS, "device": device, "num_slots": None}
    with LocalBackend.from_folder("tiny", **settings) as backend:
        assert backend.config.num_slots is not None
        assert backend.config.num_slots >= 1024
        assert len(answers_of(backend, calls)) == 20
        backend.check()
