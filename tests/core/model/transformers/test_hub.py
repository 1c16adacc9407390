"""Checkpoints that the code of transformers runs: what is refused, by name, and before what."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.checkpoint.load import describe, load_model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.transformers.model import HubConfig

from ..conftest import CONTEXT_LEN, Machine, MakeCheckpoint, Placement, assert_near, load, plain

LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 5.0],
}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a state space": ({"kind": "mamba"}, "MambaForCausalLM keeps a state beside its KV"),
    "looking ahead": ({"kind": "bert"}, r"layer 0 \(BertSelfAttention\) looks ahead"),
    "no cache": (
        {"kind": "openai-gpt", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 256},
        "OpenAIGPTLMHeadModel takes no cache; expected keys and values in one",
    ),
    "an index beside keys": (
        {"kind": "deepseek_v32", **MLA, "n_routed_experts": 4, "moe_intermediate_size": 24},
        "DeepseekV32ForCausalLM: a layer keeps a state beside keys and values; expected these",
    ),
    "convolutions": (
        {"kind": "lfm2", "layer_types": ["conv", "full_attention", "conv"], "conv_dim": 48},
        r"Lfm2ForCausalLM mixes tokens in layers\.0\.conv\.conv; expected attention only",
    ),
}


@pytest.fixture
def folder(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> Path:
    """A checkpoint that a test may damage."""
    made, _ = make_checkpoint(kind="olmo2")
    return Path(shutil.copytree(made, tmp_path / "olmo2"))


@pytest.mark.parametrize("name", list(REFUSED))
def test_options_that_paged_kv_does_not_support_are_refused_by_name_before_weights_are_read(
    make_checkpoint: MakeCheckpoint, name: str
) -> None:
    changes, message = REFUSED[name]
    folder, _ = make_checkpoint(**changes)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    with pytest.raises(InvalidModel, match=message):
        describe(folder)


def test_sizes_are_found_without_weights(make_checkpoint: MakeCheckpoint) -> None:
    folder, theirs = make_checkpoint(kind="olmo2")
    (folder / "model.safetensors").unlink()
    sizes = describe(folder)
    assert isinstance(sizes, HubConfig)
    assert (sizes.architecture, sizes.vocabulary_size) == ("Olmo2ForCausalLM", 97)
    assert (sizes.num_layers, sizes.num_kv_heads, sizes.head_dim) == (3, 2, 12)
    assert (sizes.context_len, sizes.dtype) == (CONTEXT_LEN, "float32")
    assert (sizes.bos_id, sizes.eos_ids) == (1, (2,))
    assert sizes.num_parameters() == sum(p.numel() for p in theirs.parameters())
    assert sizes.kv_bytes_per_token("bfloat16") == 3 * 2 * 2 * 12 * 2
    assert "transformers" in sizes.path


def test_longrope_follows_the_longest_sequence_that_may_come(
    make_checkpoint: MakeCheckpoint,
) -> None:
    folder, theirs = make_checkpoint(
        kind="phi3", rope_parameters=LONGROPE, original_max_position_embeddings=64
    )
    ids = np.random.default_rng(1).integers(3, 97, 150).tolist()
    for context_len, count in ((CONTEXT_LEN, 150), (64, 64)):
        sizes = replace(describe(folder), context_len=context_len)
        machine, placement = Machine(load(folder, config=sizes)), Placement()
        sequence = placement.add(ids[:count])
        cuts = (20, 1, count - 21)
        got = torch.cat([machine.logits(placement.batch({sequence: cut}))[0] for cut in cuts])
        assert_near(got, plain(theirs, ids[:count]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["olmo2", "falcon"])
def test_half_precision_stays_near(
    make_checkpoint: MakeCheckpoint, kind: str, dtype: torch.dtype
) -> None:
    folder, theirs = make_checkpoint(kind=kind, initializer_range=0.1, alibi=False)
    machine, placement = Machine(load(folder, dtype)), Placement()
    sequence = placement.add(placement.random.integers(3, 97, 80).tolist())
    got = [machine.logits(placement.batch({sequence: count}))[0] for count in (60, 1, 1, 18)]
    assert (torch.cat(got) - plain(theirs, placement.ids[sequence])).abs().max() < 0.2


def test_an_unknown_architecture_is_named_with_the_version_that_does_not_know_it(
    folder: Path, rewrite: Callable[..., None]
) -> None:
    rewrite(folder, architectures=["TomorrowForCausalLM"])
    with pytest.raises(InvalidModel, match=r"TomorrowForCausalLM.*that transformers 5\.\S+ knows"):
        describe(folder)
    rewrite(folder, model_type="tomorrow")
    with pytest.raises(InvalidModel, match=r"transformers 5\.\S+ cannot read .*Tomorrow"):
        describe(folder)


def test_code_in_a_checkpoint_is_not_run(folder: Path, rewrite: Callable[..., None]) -> None:
    (folder / "modeling.py").write_text("raise SystemExit")
    names = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"}
    rewrite(folder, model_type="tomorrow", auto_map=names)
    with pytest.raises(InvalidModel, match="cannot read this configuration"):
        describe(folder)


def test_an_encoder_is_refused(folder: Path, rewrite: Callable[..., None]) -> None:
    rewrite(folder, architectures=["T5ForConditionalGeneration"], model_type="t5")
    with pytest.raises(
        InvalidModel, match="T5ForConditionalGeneration has an encoder; expected decoders"
    ):
        describe(folder)


def test_a_missing_library_is_named_with_what_installs_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InvalidModel, match=r"pip install .*'\.\[hub\]'"):
        describe(folder)


def test_quantized_weights_are_refused(folder: Path, rewrite: Callable[..., None]) -> None:
    rewrite(folder, quantization_config={"quant_method": "awq"})
    with pytest.raises(InvalidModel, match=r"quantization_config is .*awq.*expected null"):
        describe(folder)


def test_more_ranks_than_one_are_refused(folder: Path) -> None:
    with pytest.raises(InvalidModel, match=r"Olmo2ForCausalLM on 2 ranks; expected 1"):
        load_model(folder, describe(folder), torch.float32, torch.device("cpu"), Ranks(0, 2))


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


NORM = "model.layers.1.self_attn.q_norm.weight"
CHANGES: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "missing": (lambda tensors: tensors.pop(NORM), r"lacks the tensors .*layers\.1.*q_norm"),
    "extra": (lambda tensors: tensors.update(more=torch.ones(2)), "has no use for: more"),
    "of another shape": (
        lambda tensors: tensors.update({NORM: torch.ones(5)}),
        r"layers\.1\.self_attn\.q_norm\.weight with shape \(5,\), where config\.json wants \(48,\)",
    ),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_tensors_that_do_not_fit_are_named(folder: Path, name: str) -> None:
    change, message = CHANGES[name]
    edit(folder, change)
    with pytest.raises(InvalidModel, match=message):
        load(folder)


def test_damaged_and_pickled_weights_are_refused_as_those_of_our_own_models(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(InvalidModel, match="download it again"):
        load(folder)
    path.rename(folder / "pytorch_model.bin")
    with pytest.raises(InvalidModel, match=r"pickled weights \(pytorch_model\.bin\)"):
        load(folder)
    (folder / "pytorch_model.bin").unlink()
    index = {"weight_map": {"model.norm.weight": "part-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidModel, match=r"part-1\.safetensors is missing"):
        load(folder)


def test_a_model_that_changes_on_paged_kv_is_refused_after_loading(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.olmo2 import modeling_olmo2

    once = modeling_olmo2.Olmo2Attention.forward

    def leaky(self: Any, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        out, weights = once(self, hidden_states, *args, **kwargs)
        return out + hidden_states.mean(1, keepdim=True), weights  # mixes tokens by itself

    monkeypatch.setattr(modeling_olmo2.Olmo2Attention, "forward", leaky)
    sizes = describe(folder)
    with pytest.raises(InvalidModel, match="Olmo2ForCausalLM has other logits on paged KV"):
        load(folder, config=sizes)
