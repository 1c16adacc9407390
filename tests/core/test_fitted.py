"""Sizes that are not set follow from the device: its kind, and its free memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from forkroot.core.api.config import EngineConfig
from forkroot.core.local import fitted
from forkroot.core.model.checkpoint.load import describe
from forkroot.core.model.config import ModelConfig

LLAMA_3_8B, WEIGHTS = "dummy:llama-3-8b", 16_060_522_496


def fitted_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, free: int, model: str = LLAMA_3_8B, **settings: Any
) -> EngineConfig:
    """The settings for a GPU with so much free memory."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, free))
    return fitted(EngineConfig.from_settings({"device": "cuda", **settings}), describe(model))


def steps(config: EngineConfig) -> tuple[int | None, int | None]:
    return config.max_running, config.chunk_tokens


def test_a_large_gpu_runs_256_sequences_and_8192_prompt_tokens_in_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = fitted_on_a_gpu(monkeypatch, 80 * 10**9)
    assert steps(config) == (256, 8192)
    assert config.num_slots is not None
    assert config.num_slots > 400_000


def test_a_cpu_runs_128_sequences_and_1024_prompt_tokens_in_a_step() -> None:
    config = fitted(EngineConfig(num_slots=512), describe("dummy:56m"))
    assert steps(config) == (128, 1024)


def test_steps_get_smaller_until_half_of_what_weights_leave_is_for_keys_and_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for gigabytes in (40, 24, 22, 20, 17):
        config = fitted_on_a_gpu(monkeypatch, gigabytes * 10**9)
        assert config.num_slots is not None
        left = gigabytes * 10**9 - WEIGHTS
        assert steps(config) == (64, 1024) or config.num_slots * 131_072 > 0.45 * left
        found.append(steps(config))
    assert found[0] == (256, 8192)
    assert found[-1] == (64, 1024)
    assert found == sorted(found, reverse=True)
    assert len(set(found)) >= 3


def test_sizes_of_steps_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 20 * 10**9
    assert steps(fitted_on_a_gpu(monkeypatch, free, max_running=300))[0] == 300
    both = fitted_on_a_gpu(monkeypatch, free, max_running=16, chunk_tokens=20_000)
    assert steps(both) == (16, 20_000)


def test_a_pool_that_is_set_leaves_the_rest_to_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    free = 24 * 10**9
    open_pool, small_pool = (
        fitted_on_a_gpu(monkeypatch, free, num_slots=num_slots) for num_slots in (None, 10_000)
    )
    assert steps(open_pool) < steps(small_pool) == (256, 8192)
    assert small_pool.num_slots == 10_000


def test_ranks_share_weights_and_so_leave_room_for_larger_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = 20 * 10**9
    assert steps(fitted_on_a_gpu(monkeypatch, free)) < (256, 8192)
    assert steps(fitted_on_a_gpu(monkeypatch, free, ranks=2)) == (256, 8192)


def test_features_of_pictures_and_towers_have_their_memory_beside_keys_and_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = describe(LLAMA_3_8B)
    assert isinstance(described, ModelConfig)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 * 10**9, 80 * 10**9))
    config = EngineConfig.from_settings({"device": "cuda", "feature_slots": 1 << 20})
    of_text = fitted(config, described)
    of_pictures = fitted(config, replace(described, feature_size=4096))
    in_towers = fitted(config, replace(described, feature_size=4096, tower_numbers=40_000))
    fewer, still_fewer = (
        (of_text.num_slots or 0) - (it.num_slots or 0) for it in (of_pictures, in_towers)
    )
    assert fewer * 131_072 == pytest.approx(0.97 * (1 << 20) * 4096 * 2, rel=0.01)
    tower = (still_fewer - fewer) * 131_072  # of as many tokens as a chunk has
    assert tower == pytest.approx(8192 * 40_000 * 2, rel=0.01)
