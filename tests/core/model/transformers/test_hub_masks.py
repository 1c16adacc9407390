"""Windows of transformers' models, read from the masks that it would give their layers; and models
that say little or nothing of how they ask for attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.transformers.model import HubConfig, describe
from forkroot.core.model.transformers.trial import trial_mask, trial_mask_of

from ..conftest import Machine, MakeCheckpoint, Placement, assert_near, load, plain

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
KINDS: dict[str, tuple[dict[str, Any], tuple[int | None, ...]]] = {
    "a window that only its mask knows": (
        {"kind": "phimoe", "sliding_window": 24, **EXPERTS},
        (24, 24, 24),
    ),
    "a class that says too little": (
        {"kind": "stablelm", "partial_rotary_factor": 0.5},
        (None, None, None),
    ),
    "a padding token that must be": (
        {
            "kind": "modernbert-decoder",
            "local_attention": 16,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        (8, None, 8),
    ),
}


@pytest.mark.parametrize("name", list(KINDS))
def test_logits_are_those_of_transformers_far_beyond_windows(
    make_checkpoint: MakeCheckpoint, name: str
) -> None:
    changes, windows = KINDS[name]
    folder, theirs = make_checkpoint(**changes)
    sizes = describe(folder)
    assert sizes.windows == windows
    ids = np.random.default_rng(2).integers(3, 97, 150).tolist()
    machine, placement = Machine(load(folder)), Placement()
    sequence = placement.add(ids)
    got = [machine.logits(placement.batch({sequence: cut}))[0] for cut in (100, 1, 1, 30, 18)]
    theirs.set_attn_implementation("eager")
    assert_near(torch.cat(got), plain(theirs, ids))


def causal(_: Any, __: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return k <= q


RULES: dict[str, tuple[Callable[..., torch.Tensor], int | None, bool]] = {
    "causal": (causal, None, True),
    "a window": (lambda b, h, q, k: (k <= q) & (k > q - 2000), 2000, True),
    "another window than is said": (lambda b, h, q, k: (k <= q) & (k > q - 2001), 2000, False),
    "chunks": (lambda b, h, q, k: (k <= q) & (k // 2000 == q // 2000), 2000, False),
    "both ways": (lambda b, h, q, k: k == k, None, False),
    "a prefix both ways": (lambda b, h, q, k: (k <= q) | (k < 4), None, False),
    "by sequence": (lambda b, h, q, k: causal(b, h, q, k) & torch.zeros(1, 5)[b, k], None, False),
}


@pytest.mark.parametrize("name", list(RULES))
def test_a_rule_is_known_where_it_hides_exactly_the_tokens_beyond_the_window(name: str) -> None:
    rule, window, is_known = RULES[name]
    mask = trial_mask(5, 5, rule, window)
    assert (mask.shape, mask.window, mask.is_known) == ((1, 1, 5, 5), window, is_known)
    assert trial_mask_of(mask) is mask
    assert trial_mask_of(torch.zeros(1, 1, 5, 5)) is None


@pytest.mark.parametrize(
    "key", ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"]
)
def test_a_size_that_is_missing_is_named(
    make_checkpoint: MakeCheckpoint, rewrite: Callable[..., None], tmp_path: Path, key: str
) -> None:
    folder, _ = make_checkpoint(kind="olmo2", seed=7)
    rewrite(folder, **{key: None})
    with pytest.raises(InvalidModel, match=rf"{key} is missing; expected an integer"):
        describe(folder)


def test_a_size_may_have_the_name_that_its_kind_gives_it(make_checkpoint: MakeCheckpoint) -> None:
    folder, _ = make_checkpoint(kind="gpt2", n_embd=48, n_layer=3, n_head=4, n_positions=256)
    sizes = describe(folder)
    assert isinstance(sizes, HubConfig)
    assert (sizes.num_layers, sizes.num_kv_heads) == (3, 4)


def test_weights_that_are_not_finite_are_distinguished_from_models_that_do_not_fit(
    make_checkpoint: MakeCheckpoint,
) -> None:
    from safetensors.torch import load_file, save_file

    folder, _ = make_checkpoint(kind="olmo2", seed=8)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"].fill_(torch.nan)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(InvalidModel, match=r"logits that are not finite, in transformers too"):
        load(folder)
