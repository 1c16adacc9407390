"""Checkpoints with what published ones have and small random ones have not: keys' biases in the
hundreds, activations and norms far above the others in a few columns, first tokens that draw all
attention, scores of any size. Ours must be as near to the truth, which is transformers in float64,
as transformers is in float32."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from forkroot.core.model.runner.runner import ModelRunner

from ..conftest import NUM_SLOTS, Machine, MakeCheckpoint, Placement, load, write

CONTEXT_LEN = 640
SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "max_position_embeddings": CONTEXT_LEN,
    "initializer_range": 128**-0.5,
    "vocab_size": 199,
}
FIRST = 1  # the token that all prompts begin with
WORSE = 1.5  # than transformers in float32: by so much ours may be off


def bias_keys(model: Any, dim: int) -> None:
    """As in Qwen 2: the same in every key, in a few columns that turn slowly but for one."""
    for layer in model.model.layers:
        bias = layer.self_attn.k_proj.bias.view(-1, dim)
        bias[:, [dim // 2 - 1, dim // 2 - 4, dim - 2, 5]] += torch.tensor([400.0, -200, 90, -50])


def bias_queries_too(model: Any, dim: int) -> None:
    bias_keys(model, dim)
    for layer in model.model.layers:
        layer.self_attn.q_proj.bias.view(-1, dim)[:, dim // 2 - 4 :] += 5


def enlarge_everywhere(model: Any, dim: int) -> None:
    """Two columns of all hidden states, which norms take back."""
    model.model.embed_tokens.weight[:, [17, 90]] += torch.tensor([9000.0, -4000.0])
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter[[17, 90]] *= 0.02
    model.model.norm.weight *= 1000


def enlarge_first(model: Any, dim: int) -> None:
    """The first token alone: its keys and values come from two columns."""
    model.model.embed_tokens.weight[FIRST, [17, 90]] = torch.tensor([3000.0, -2000.0])


def enlarge_norms(model: Any, dim: int) -> None:
    for layer in model.model.layers:
        layer.input_layernorm.weight[[3, 40, 77]] = torch.tensor([10.0, -50.0, 30.0])
        layer.post_attention_layernorm.weight[[3, 41]] = 40.0


def sharpen(model: Any, dim: int) -> None:
    """Most tokens attend to a single one."""
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight *= 12


def sink(model: Any, dim: int) -> None:
    """The first token draws almost all attention and has almost nothing to say."""
    enlarge_first(model, dim)
    for layer in model.model.layers:
        attention, sight = layer.self_attn, layer.input_layernorm.weight[17]
        attention.k_proj.bias.zero_()
        attention.q_proj.bias.view(-1, dim)[:, -1] += 8  # of a pair that hardly turns
        keys = attention.k_proj.weight.view(-1, dim, 128)
        keys[:, :, [17, 90]] = 0
        keys[:, -1, 17] = 0.9 * dim**0.5 / 8 / sight
        attention.v_proj.weight[:, [17, 90]] *= 0.01


def enlarge_head_norms(model: Any, dim: int) -> None:
    """As in Qwen 3: a few columns of keys, and scores of up to a hundred."""
    for layer in model.model.layers:
        layer.self_attn.k_norm.weight[[4, dim // 2 + 4, 9]] = 40.0


def enlarge_keys(model: Any, dim: int) -> None:
    """A pair of columns, for which queries are as small."""
    for layer in model.model.layers:
        queries, keys = layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight
        queries.view(-1, dim, 128)[:, [6, dim // 2 + 6]] /= 100
        keys.view(-1, dim, 128)[:, [6, dim // 2 + 6]] *= 100


def enlarge_values(model: Any, dim: int) -> None:
    """A column, of which the output takes as little."""
    for layer in model.model.layers:
        values, out = layer.self_attn.v_proj.weight, layer.self_attn.o_proj.weight
        values.view(-1, dim, 128)[:, 11] *= 1000
        out.view(128, -1, dim)[:, :, 11] /= 1000


KINDS: dict[str, tuple[str, Callable[[Any, int], None]]] = {
    "biases of keys": ("qwen2", bias_keys),
    "biases of keys and queries": ("qwen2", bias_queries_too),
    "large activations of all tokens": ("llama", enlarge_everywhere),
    "large activations of the first token": ("llama", enlarge_first),
    "large norms": ("llama", enlarge_norms),
    "sharp attention": ("llama", sharpen),
    "a first token that is looked at": ("qwen2", sink),
    "large norms of heads": ("qwen3", enlarge_head_norms),
    "keys far above queries": ("llama", enlarge_keys),
    "values far above the others": ("llama", enlarge_values),
}
CASES = [(kind, 64, torch.bfloat16) for kind in KINDS] + [
    ("biases of keys", 128, torch.float16),
    ("biases of keys", 64, torch.float32),
    ("large activations of all tokens", 128, torch.float32),
    ("a first token that is looked at", 128, torch.bfloat16),
    ("large norms of heads", 128, torch.bfloat16),
]


class Nasty(NamedTuple):
    """exact: transformers in float64; plain: in float32."""

    folder: Path
    exact: Any
    plain: Any


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}, {case[1]}, {case[2]}")
def nasty(request: pytest.FixtureRequest, make_checkpoint: MakeCheckpoint) -> Nasty:
    name, dim, dtype = request.param
    kind, change = KINDS[name]
    folder, model = make_checkpoint(kind, head_dim=dim, **SIZES)
    with torch.no_grad():
        for layer in model.model.layers:
            if kind == "qwen2":
                layer.self_attn.k_proj.bias.sub_(1)
                layer.self_attn.q_proj.bias.sub_(1)
        change(model, dim)
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    copy.deepcopy(model).to(dtype).save_pretrained(folder)
    return Nasty(folder, in_float64(model), model)


def in_float64(model: Any) -> Any:
    """A copy; its norms would go through float32."""
    exact = copy.deepcopy(model).double()
    for module in exact.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = functools.partial(normed, module)
    return exact


def normed(norm: Any, x: Tensor) -> Tensor:
    scale = x.pow(2).mean(-1, keepdim=True).add(norm.variance_epsilon).rsqrt()
    weight: Tensor = norm.weight
    return weight * (x * scale)


def prompt(length: int, seed: int = 0) -> list[int]:
    return [FIRST, *np.random.default_rng(seed).integers(3, 199, length - 1).tolist()]


@torch.inference_mode()
def said(model: Any, ids: list[int]) -> Tensor:
    logits: Tensor = model(torch.tensor([ids])).logits[0]
    return logits.double()


def size(errors: Tensor) -> float:
    return errors.pow(2).mean().sqrt().item()


def test_logits_are_as_near_to_the_truth_as_those_of_transformers(nasty: Nasty) -> None:
    ids = prompt(600)
    exact, plain = said(nasty.exact, ids), said(nasty.plain, ids)
    top = exact.topk(2).values
    is_sure = top[:, 0] - top[:, 1] > 4 * (plain - exact).abs().max()
    assert is_sure.float().mean() > 0.8
    ours = load(nasty.folder)
    for cuts in ([600], [40, 1, 190, *[1] * 20, 349]):
        machine, placement = Machine(ours), Placement(len(cuts), CONTEXT_LEN)
        sequence = placement.add(ids)
        found = torch.cat([machine.logits(placement.batch({sequence: cut}))[0] for cut in cuts])
        assert size(found - exact) <= WORSE * size(plain - exact)
        assert (found.argmax(-1) == exact.argmax(-1))[is_sure].all()


def test_greedy_answers_are_those_of_generate(nasty: Nasty) -> None:
    runner, placement = ModelRunner(load(nasty.folder), NUM_SLOTS), Placement(3, CONTEXT_LEN)
    prompts = [prompt(length, length) for length in (45, 230, 3)]
    for ids in prompts:
        placement.add(ids)
    write(runner, placement, 12)
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    for s, ids in enumerate(prompts):
        assert placement.ids[s] == nasty.plain.generate(torch.tensor([ids]), **options)[0].tolist()
