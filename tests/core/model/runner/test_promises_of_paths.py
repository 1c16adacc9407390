"""The first promise for every path that a model may take: cache, hints, chunks, batches, small
pools and retraction change no token. Programs and variants are those of
`benchmarks/models/parity.py`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from forkroot.core.model.checkpoint.load import describe
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.text.tokenizer import Tokenizer

from ..conftest import MakeCheckpoint, load

WINDOW = {"sliding_window": 24}
PATHS: dict[str, dict[str, Any]] = {
    "own, window": {"kind": "mistral", **WINDOW},
    "own, experts": {"kind": "mixtral", "num_local_experts": 5},
    "own, yarn and norms of heads": {
        "kind": "qwen3",
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 1000.0,
        },
    },
    "hub, windows and softcaps": {
        "kind": "gemma2",
        "head_dim": 16,
        **WINDOW,
        "query_pre_attn_scalar": 20,
        "attn_logit_softcapping": 5.0,
    },
    "hub, experts": {
        "kind": "qwen3_moe",
        "head_dim": 12,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
    },
    "hub, caught": {"kind": "falcon", "alibi": False, "multi_query": True},
}
MAX_TOKENS = 6


@pytest.fixture(scope="module")
def parity() -> ModuleType:
    from forkroot.benchmarks.models import parity

    return parity


def make_prompts(parity: ModuleType) -> list[Any]:
    random = np.random.default_rng(4)

    def piece(length: int) -> tuple[int, ...]:
        return tuple(random.integers(3, 97, length).tolist())

    roots = [piece(70), piece(33), ()]
    ends = [*random.integers(1, 30, 9), 120]
    return [
        parity.Prompt(roots[place % 3], piece(int(length)), f"root {place % 3}")
        for place, length in enumerate(ends)
    ]


@pytest.mark.parametrize("name", list(PATHS))
def test_nothing_but_time_changes(
    parity: ModuleType, make_checkpoint: MakeCheckpoint, name: str
) -> None:
    folder, _ = make_checkpoint(**PATHS[name])
    prompts = make_prompts(parity)
    expected = parity.expected(folder, prompts, MAX_TOKENS)
    tokenizer = Tokenizer.from_folder(model_folder("tiny"))
    checkpoint = parity.Checkpoint(folder, describe(folder), tokenizer, load(folder))
    for variant in parity.VARIANTS:
        served = parity.serve(checkpoint, prompts, variant, MAX_TOKENS, seed=2)
        assert served == expected, variant.name
    assert len(set(expected)) > 5
