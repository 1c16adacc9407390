"""Models that are made instead of read, and the dtype of those for which nobody names one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.checkpoint import load
from forkroot.core.model.checkpoint.dummy import SHAPES, DummyWeights
from forkroot.core.model.checkpoint.load import auto_dtype, describe, load_model
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.model.parallel import Ranks
from forkroot.kernels.cpu.linear import half_precision, linear

from ..conftest import Machine, Placement, assert_near

CPU = torch.device("cpu")
PUBLISHED = {
    "56m": 56_369_664,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-8b": 8_030_261_248,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
}


def test_shapes_have_the_published_numbers_of_parameters() -> None:
    assert {name: shape.num_parameters() for name, shape in SHAPES.items()} == PUBLISHED


def small(name: str) -> ModelConfig:
    """The same architecture, a thousand times smaller."""
    sizes = {"vocabulary_size": 97, "num_layers": 2, "hidden_size": 64, "ffn_size": 48}
    heads = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "windows": SHAPES[name].windows[:2]}
    return replace(SHAPES[name], **sizes, **heads)


@pytest.mark.parametrize("name", list(SHAPES))
def test_a_dummy_runs_and_writes_the_same_in_every_run(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("forkroot.core.model.checkpoint.load.dummy_config", small)

    def logits() -> torch.Tensor:
        source = f"dummy:{name}"
        machine = Machine(load_model(source, describe(source), torch.float32, CPU, Ranks()))
        placement = Placement()
        return machine.logits(placement.batch({placement.add(list(range(3, 60))): 57}))[0]

    first = logits()
    assert_near(first, logits())
    assert 0.2 < first.std() < 5
    assert len(set(first.argmax(-1).tolist())) > 10


def test_parts_are_parts_of_the_whole() -> None:
    weights = DummyWeights(small("llama-3-8b"), torch.bfloat16, CPU)
    name = "model.layers.1.self_attn.q_proj.weight"
    whole = weights.take(name)
    assert torch.equal(weights.take_part(name, 0, slice(16, 32)), whole[16:32])
    assert torch.equal(weights.take_part(name, 1, slice(0, 32)), whole[:, :32])
    assert not torch.equal(weights.take("model.layers.0.self_attn.q_proj.weight"), whole)


def test_a_large_matrix_repeats_no_row() -> None:
    weights = DummyWeights(SHAPES["56m"], torch.float32, CPU)
    matrix = weights.take("model.embed_tokens.weight")
    assert len(np.unique(matrix[:, :4].numpy(), axis=0)) == len(matrix)
    assert float(matrix.std()) == pytest.approx(512**-0.5, rel=0.01)


def test_an_unknown_shape_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidModel, match=r"'gpt-5' is not known; expected 56m, llama-2-7b"):
        describe("dummy:gpt-5")


@pytest.mark.parametrize("is_quick", [True, False])
def test_auto_takes_half_precision_where_it_is_stored_and_multiplied(
    monkeypatch: pytest.MonkeyPatch, is_quick: bool
) -> None:
    monkeypatch.setattr(load, "is_native", lambda dtype: is_quick)
    large = SHAPES["llama-2-7b"]
    on_cpu = "bfloat16" if is_quick else "float32"
    assert auto_dtype(large, "cpu") == on_cpu
    assert auto_dtype(replace(large, dtype="float16"), "cpu") == on_cpu
    assert auto_dtype(replace(large, dtype="float32"), "cpu") == "float32"
    assert auto_dtype(describe(model_folder("tiny")), "cpu") == "float32"
    gpu = "cuda:0"
    assert auto_dtype(replace(large, dtype="float16"), gpu) == "float16"
    assert auto_dtype(describe(model_folder("tiny")), gpu) == "float32"


@pytest.mark.parametrize(
    ("names", "can_pack", "is_quick"),
    [
        ({"avx512bf16"}, True, True),
        ({"avx512bf16"}, False, False),
        ({"avx512f", "avx2"}, True, False),
        ({"bf16"}, True, True),
    ],
)
def test_bfloat16_is_quick_where_there_are_instructions_and_a_library_that_uses_them(
    monkeypatch: pytest.MonkeyPatch, names: set[str], can_pack: bool, is_quick: bool
) -> None:
    monkeypatch.setattr(linear, "_has_amx", lambda: False)
    monkeypatch.setattr(half_precision, "can_pack", lambda dtype: can_pack)
    monkeypatch.setattr(half_precision, "has", lambda *wanted: names.issuperset(wanted))
    assert linear.is_native(torch.bfloat16) is is_quick
