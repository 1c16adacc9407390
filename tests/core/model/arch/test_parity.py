"""Models against transformers, however their tokens are cut into batches: those of our own code,
and those of its code on our paged KV."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from forkroot.core.model.config import ModelConfig
from forkroot.core.model.model import Model
from forkroot.core.model.runner.runner import ModelRunner

from ..conftest import (
    CONTEXT_LEN,
    NUM_SLOTS,
    Machine,
    MakeCheckpoint,
    Placement,
    assert_near,
    load,
    plain,
    write,
)

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 5.0],
    "original_max_position_embeddings": 64,
}
QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}
OWN: dict[str, dict[str, Any]] = {
    "grouped": {},
    "all heads": {"num_key_value_heads": 4, "head_dim": 16},
    "one kv head": {"num_key_value_heads": 1, "rms_norm_eps": 1e-3},
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}},
    "llama3 rope": {"rope_parameters": {**LLAMA3, "rope_theta": 1000.0}},
    "dynamic rope": {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 5e2}},
    "yarn rope": {"rope_parameters": {**YARN, "rope_theta": 1000.0}},
    "yarn rope in full": {
        "rope_parameters": {
            **YARN,
            "rope_theta": 500.0,
            "beta_fast": 8.0,
            "beta_slow": 2.0,
            "truncate": False,
            "mscale": 0.8,
            "mscale_all_dim": 0.3,
        }
    },
    "mistral": {"kind": "mistral", "sliding_window": None},
    "mistral with a window": {"kind": "mistral", "sliding_window": 24, "head_dim": 16},
    "qwen2": {"kind": "qwen2", "rope_parameters": {**YARN, "rope_theta": 1000.0}},
    "qwen2 with windows in some layers": {"kind": "qwen2", **QWEN_WINDOW},
    "qwen3": {"kind": "qwen3", "head_dim": 16, "tie_word_embeddings": True},
    "qwen3 with biases and windows": {
        "kind": "qwen3",
        "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        **QWEN_WINDOW,
    },
    "mixtral": {"kind": "mixtral", "num_local_experts": 5},
    "mixtral with a window": {"kind": "mixtral", "sliding_window": 24, "num_experts_per_tok": 3},
}
GEMMA = {"head_dim": 16, "sliding_window": 24, "query_pre_attn_scalar": 20}
LAYER_TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
GPT = {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": CONTEXT_LEN}
WINDOWS = {"sliding_window": 24, "layer_types": LAYER_TYPES}
HUB: dict[str, dict[str, Any]] = {
    "gemma": {"kind": "gemma", "head_dim": 16},
    "gemma2": {"kind": "gemma2", **GEMMA, "attn_logit_softcapping": 5.0},
    "gemma3": {"kind": "gemma3_text", **GEMMA, "layer_types": LAYER_TYPES},
    "phi": {"kind": "phi"},
    "phi3": {"kind": "phi3", "sliding_window": 24},
    "olmo2": {"kind": "olmo2"},
    "olmo3": {"kind": "olmo3", "sliding_window": 24, "layer_types": LAYER_TYPES},
    "gpt2": {"kind": "gpt2", **GPT},
    "gpt_neox": {"kind": "gpt_neox", "rotary_pct": 0.5},
    "gpt_bigcode": {"kind": "gpt_bigcode", "n_positions": CONTEXT_LEN},
    "opt": {"kind": "opt", "ffn_dim": 80, "word_embed_proj_dim": 48},
    "falcon": {"kind": "falcon", "alibi": False, "multi_query": True},
    "falcon, newer": {"kind": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2},
    "starcoder2": {"kind": "starcoder2", "sliding_window": 24},
    "granite": {
        "kind": "granite",
        "attention_multiplier": 0.3,
        "embedding_multiplier": 2.0,
        "logits_scaling": 3.0,
    },
    "cohere2": {"kind": "cohere2", "sliding_window": 24, "layer_types": LAYER_TYPES},
    "nemotron": {"kind": "nemotron", "hidden_act": "relu2"},
    "glm4": {"kind": "glm4", "head_dim": 16},
    "smollm3": {"kind": "smollm3", "no_rope_layers": [1, 0, 1]},
    "qwen3_moe": {"kind": "qwen3_moe", "num_experts": 4, "head_dim": 12, **EXPERTS},
    "deepseek_v3": {
        "kind": "deepseek_v3",
        **MLA,
        **EXPERTS,
        "num_key_value_heads": 4,
        "v_head_dim": 12,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
    },
    "olmo2, dynamic rope": {
        "kind": "olmo2",
        "rope_parameters": OWN["dynamic rope"]["rope_parameters"],
    },
}
CACHED: dict[str, dict[str, Any]] = {
    "gptj": {"kind": "gptj", "rotary_dim": 8, **GPT},
    "bloom": {"kind": "bloom", "seq_length": CONTEXT_LEN},
    "mpt": {"kind": "mpt", "d_model": 48, "n_layers": 3, "n_heads": 4, "max_seq_len": CONTEXT_LEN},
    "codegen": {"kind": "codegen", "rotary_dim": 8, "n_ctx": CONTEXT_LEN, **GPT},
    "gpt_oss": {"kind": "gpt_oss", "head_dim": 12, "num_local_experts": 4, **WINDOWS},
    "llama4": {
        "kind": "llama4_text",
        "intermediate_size_mlp": 80,
        "num_local_experts": 2,
        "attention_chunk_size": 24,
        "head_dim": 12,
        "layer_types": ["chunked_attention", "full_attention", "chunked_attention"],
        "no_rope_layers": [1, 0, 1],
    },
    "falcon with biases by distance": {"kind": "falcon", "alibi": True},
    "two attentions in a layer": {"kind": "diffllama"},
}
KINDS = OWN | HUB | CACHED


def random_ids(random: np.random.Generator, count: int) -> list[int]:
    return random.integers(3, 97, count).tolist()


@pytest.fixture(scope="module", params=list(KINDS))
def pair(request: pytest.FixtureRequest, make_checkpoint: MakeCheckpoint) -> tuple[Model, Any]:
    folder, model = make_checkpoint(**KINDS[request.param])
    return load(folder), model


def test_logits_are_those_of_transformers_however_a_prompt_is_cut(pair: tuple[Model, Any]) -> None:
    ours, theirs = pair
    placement = Placement()
    ids = random_ids(placement.random, 150)
    wanted = plain(theirs, ids)
    for cuts in ([150], [1, 149], [64, 60, 2, 1, 1, 22], [1] * 5):
        machine, placement = Machine(ours), Placement(len(cuts))
        sequence = placement.add(ids)
        got = torch.cat([machine.logits(placement.batch({sequence: cut}))[0] for cut in cuts])
        assert_near(got, wanted[: sum(cuts)])


def test_ragged_batches_over_shared_roots_do_not_change_logits(pair: tuple[Model, Any]) -> None:
    ours, theirs = pair
    machine, placement = Machine(ours), Placement(7)
    root = placement.add(random_ids(placement.random, 190))
    unshared = placement.add(random_ids(placement.random, 30))
    machine.logits(placement.batch({root: 190, unshared: 13}))
    branches = [placement.fork(root, random_ids(placement.random, 40)) for _ in range(5)]
    for counts in ([1, 1, 1, 1, 1], [3, 18, 1, 1, 2], [1, 1, 30, 2, 1]):
        batch = placement.batch({**dict(zip(branches, counts, strict=True)), unshared: 1})
        for sequence, got in zip([*branches, unshared], machine.logits(batch), strict=True):
            end = placement.computed[sequence]
            assert_near(got, plain(theirs, placement.ids[sequence][:end])[end - len(got) :])


def test_greedy_answers_are_those_of_generate(pair: tuple[Model, Any]) -> None:
    ours, theirs = pair
    runner, placement = ModelRunner(ours, NUM_SLOTS), Placement(3)
    prompts = [random_ids(placement.random, n) for n in (40, 1, 23, 9)]
    for prompt in prompts:
        placement.add(prompt)
    write(runner, placement, 8)
    for s, prompt in enumerate(prompts):
        options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
        wanted = theirs.generate(torch.tensor([prompt]), pad_token_id=0, **options)
        assert placement.ids[s] == wanted[0].tolist()


def test_a_linear_scaling_of_positions_may_use_the_older_keys(
    make_checkpoint: MakeCheckpoint,
    rewrite: Callable[..., None],
) -> None:
    folder, theirs = make_checkpoint(**OWN["llama3 rope"])
    rewrite(folder, rope_parameters=None, rope_theta=1000.0, rope_scaling=LLAMA3)
    ids = random_ids(np.random.default_rng(0), 100)
    placement = Placement()
    got = Machine(load(folder)).logits(placement.batch({placement.add(ids): 100}))[0]
    assert_near(got, plain(theirs, ids))


def test_longrope_follows_the_longest_sequence_that_may_come(
    make_checkpoint: MakeCheckpoint,
) -> None:
    folder, theirs = make_checkpoint(rope_parameters={**LONGROPE, "rope_theta": 500.0})
    ids = random_ids(np.random.default_rng(1), 150)
    config = ModelConfig.from_folder(folder)
    for context_len, count in ((CONTEXT_LEN, 150), (64, 64)):
        ours = load(folder, config=replace(config, context_len=context_len))
        machine, placement = Machine(ours), Placement()
        sequence = placement.add(ids[:count])
        cuts = (20, 1, count - 21)
        got = torch.cat([machine.logits(placement.batch({sequence: cut}))[0] for cut in cuts])
        assert_near(got, plain(theirs, ids[:count]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(make_checkpoint: MakeCheckpoint, dtype: torch.dtype) -> None:
    folder, theirs = make_checkpoint(initializer_range=0.1)
    machine, placement = Machine(load(folder, dtype)), Placement()
    sequence = placement.add(random_ids(placement.random, 80))
    got = [machine.logits(placement.batch({sequence: count}))[0] for count in (60, 1, 1, 18)]
    assert (torch.cat(got) - plain(theirs, placement.ids[sequence])).abs().max() < 0.1
