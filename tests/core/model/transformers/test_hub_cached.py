"""Decoders whose attention is computed by their own code, on a cache of transformers over our
pool; that their logits and tokens are those of transformers is held by `test_parity`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import forkroot
from forkroot.core.api.protocol import Call, InvalidModel, Regex, Sampling, Text
from forkroot.core.model.checkpoint.load import describe
from forkroot.core.model.transformers.cached import CachedModel
from forkroot.core.model.transformers.model import HubConfig

from ..conftest import CONTEXT_LEN, Machine, MakeCheckpoint, Placement, assert_near, load, plain

GPT: dict[str, Any] = {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": CONTEXT_LEN}
TINY = Path(forkroot.__file__).parent / "models" / "tiny"


def test_sizes_and_path_are_found_without_weights(
    make_checkpoint: MakeCheckpoint, rewrite: Callable[..., None]
) -> None:
    folder, theirs = make_checkpoint(kind="mpt", d_model=48, n_layers=3, n_heads=4, max_seq_len=99)
    (folder / "model.safetensors").unlink()
    rewrite(folder, max_position_embeddings=None)
    sizes = describe(folder)
    assert isinstance(sizes, HubConfig)
    assert (sizes.num_layers, sizes.num_kv_heads, sizes.head_dim) == (3, 4, 12)
    assert (sizes.cached_layers, sizes.context_len) == ((0, 1, 2), 99)
    assert sizes.num_parameters() == sum(p.numel() for p in theirs.parameters())
    assert sizes.path == "transformers' model code and attention (slower) on forkroot's paged KV"


def test_a_model_that_counts_positions_from_its_padding_is_computed_without(
    make_checkpoint: MakeCheckpoint,
) -> None:
    folder, theirs = make_checkpoint(kind="plbart", decoder_layers=2, encoder_layers=2, d_model=48)
    ours, placement = load(folder), Placement(4)
    assert isinstance(ours, CachedModel)
    assert not ours.can_pad
    machine = Machine(ours)
    sequences = [placement.add(placement.random.integers(3, 97, 30).tolist()) for _ in range(3)]
    for counts in ([9, 4, 4], [1, 1, 1], [3, 1, 2], [2, 9, 2]):
        batch = placement.batch(dict(zip(sequences, counts, strict=True)))
        for sequence, got in zip(sequences, machine.logits(batch), strict=True):
            end = placement.computed[sequence]
            assert_near(got, plain(theirs, placement.ids[sequence][:end])[end - len(got) :])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(make_checkpoint: MakeCheckpoint, dtype: torch.dtype) -> None:
    folder, theirs = make_checkpoint(kind="gptj", rotary_dim=8, **{**GPT, "initializer_range": 0.1})
    machine, placement = Machine(load(folder, dtype)), Placement()
    sequence = placement.add(placement.random.integers(3, 97, 80).tolist())
    got = [machine.logits(placement.batch({sequence: count}))[0] for count in (60, 1, 1, 18)]
    assert (torch.cat(got) - plain(theirs, placement.ids[sequence])).abs().max() < 0.2


def test_a_model_that_mixes_tokens_beside_its_attention_is_refused_after_loading(
    make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.gptj import modeling_gptj

    folder, _ = make_checkpoint(kind="gptj", rotary_dim=8, **GPT)
    sizes, once = describe(folder), modeling_gptj.GPTJMLP.forward

    def leaky(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
        return once(self, hidden_states) + hidden_states.mean(1, keepdim=True)

    monkeypatch.setattr(modeling_gptj.GPTJMLP, "forward", leaky)
    with pytest.raises(InvalidModel, match="GPTJForCausalLM has other logits on paged KV"):
        load(folder, config=sizes)


def test_a_runtime_shares_prefixes_and_jumps_forward(make_checkpoint: MakeCheckpoint) -> None:
    sizes = {"vocab_size": 4096, "n_embd": 48, "n_layer": 2, "n_head": 4, "pad_token_id": None}
    folder, _ = make_checkpoint(kind="bloom", **sizes, initializer_range=0.5)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, folder)
    root = "The tide comes in twice a day, and twice a day it goes out. "
    calls = [
        Call((Text(root + "Why"),), Sampling(max_tokens=8, temperature=0)),
        Call((Text(root + "How"),), Sampling(max_tokens=8, temperature=0)),
        Call((Text(root),), Sampling(max_tokens=40, temperature=0), Regex('{"height": [0-9]{2}}')),
    ]
    texts = []
    for settings in ({}, {"cache": False, "jumps": False}):
        backend = forkroot.connect(
            folder, num_slots=700, context_len=256, chunk_tokens=16, **settings
        )
        with backend:
            done = [reply.result() for reply in [backend.submit(call) for call in calls]]
            again = backend.submit(calls[0]).result()
        texts.append([it.text for it in (*done, again)])
        assert bool(again.usage.cached_tokens) is not bool(settings)
    assert texts[0] == texts[1]
    assert texts[0][0] == texts[0][3]
    assert 10 <= json.loads(texts[0][2])["height"] <= 99 or texts[0][2].startswith('{"height": 0')
