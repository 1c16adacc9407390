"""Bad checkpoints end in InvalidModel that says what is wrong; good ones load whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.config import ModelConfig

from .conftest import Machine, MakeCheckpoint, Placement, assert_near, load


@pytest.fixture
def folder(make_checkpoint: MakeCheckpoint, tmp_path: Path) -> Path:
    """A checkpoint to be damaged."""
    return Path(shutil.copytree(make_checkpoint()[0], tmp_path / "checkpoint"))


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def shard(folder: Path, count: int) -> None:
    """Spread the weights over `count` files with an index, as large checkpoints do."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    homes = {name: f"part-{i % count}.safetensors" for i, name in enumerate(sorted(tensors))}
    for home in set(homes.values()):
        save_file({n: t for n, t in tensors.items() if homes[n] == home}, folder / home)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))


def test_missing_tensors_are_named(folder: Path) -> None:
    edit(folder, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(InvalidModel, match=r"lacks .* model\.layers\.1\.mlp\.up_proj\.weight"):
        load(folder)


def test_unknown_tensors_are_named(folder: Path) -> None:
    edit(folder, lambda tensors: tensors.update({"model.adapter": torch.ones(2)}))
    with pytest.raises(InvalidModel, match=r"no use for: model\.adapter"):
        load(folder)


def test_a_wrong_shape_is_shown_with_the_right_one(folder: Path) -> None:
    edit(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(5)}))
    with pytest.raises(InvalidModel, match=r"model\.norm\.weight has shape \(5,\).*\(48,\)"):
        load(folder)


def test_numbers_that_are_none_of_floating_types_are_refused(folder: Path) -> None:
    edit(folder, lambda it: it.update({"model.norm.weight": torch.ones(48, dtype=torch.int8)}))
    with pytest.raises(InvalidModel, match=r"model\.norm\.weight is stored as I8; expected F32"):
        load(folder)


def test_a_name_in_two_files_is_refused(folder: Path) -> None:
    shard(folder, 2)
    tensors = load_file(folder / "part-0.safetensors")
    tensors["model.norm.weight"] = torch.zeros(48)
    save_file(tensors, folder / "part-0.safetensors")
    other = load_file(folder / "part-1.safetensors")
    other["model.norm.weight"] = torch.ones(48)
    save_file(other, folder / "part-1.safetensors")
    message = r"part-1\.safetensors holds model\.norm\.weight, which part-0\.safetensors holds"
    with pytest.raises(InvalidModel, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("adapter_config.json", "this is an adapter"),
        ("model_index.json", "pipeline of diffusers"),
        ("some-model.q4.gguf", "weights as GGUF"),
        ("snapshots/0a1b/config.json", "did you mean '.*0a1b'"),
        ("notes.txt", "a checkpoint folder holds it$"),
    ],
)
def test_what_is_not_a_checkpoint_is_reported_as_what_it_is(
    tmp_path: Path, file: str, message: str
) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("{}")
    with pytest.raises(InvalidModel, match=message):
        ModelConfig.from_folder(tmp_path)


def test_weights_by_another_name_are_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    with pytest.raises(InvalidModel, match=r"neither .* it has consolidated\.safetensors: call"):
        load(folder)


def test_tensors_that_nobody_needs_are_passed_over(folder: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit(folder, lambda tensors: tensors.update({name: torch.ones(6)}))
    load(folder)


@pytest.mark.parametrize("kept", [0, 5, 1000, -9])
def test_a_file_cut_short_is_refused_with_advice(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InvalidModel, match=r"model\.safetensors .*download it again"):
        load(folder)


def test_pickled_weights_are_refused_by_name(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InvalidModel, match=r"pickled weights \(pytorch_model\.bin\)"):
        load(folder)


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(InvalidModel, match=r"neither model\.safetensors nor"):
        load(folder)


def test_sharded_weights_are_those_of_one_file(folder: Path) -> None:
    def logits() -> torch.Tensor:
        placement = Placement()
        return Machine(load(folder)).logits(
            placement.batch({placement.add(list(range(3, 30))): 27})
        )[0]

    whole = logits()
    shard(folder, 3)
    assert_near(logits(), whole)


def test_a_missing_shard_is_named(folder: Path) -> None:
    shard(folder, 3)
    (folder / "part-1.safetensors").unlink()
    with pytest.raises(InvalidModel, match=r"part-1\.safetensors is missing"):
        load(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "../b"}}']
)
def test_a_bad_index_is_refused(folder: Path, text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(InvalidModel, match=r"model\.safetensors\.index\.json"):
        load(folder)


def test_a_stored_head_of_a_tied_model_is_passed_over(make_checkpoint: MakeCheckpoint) -> None:
    folder, theirs = make_checkpoint(tie_word_embeddings=True)
    edit(folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(97, 48)}))
    placement = Placement()
    got = Machine(load(folder)).logits(placement.batch({placement.add([5, 6, 7]): 3}))[0]
    assert_near(got, theirs(torch.tensor([[5, 6, 7]])).logits[0].detach())


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_weights_are_loaded_in_the_requested_precision(folder: Path, stored: torch.dtype) -> None:
    edit(folder, lambda ts: ts.update({name: t.to(stored) for name, t in ts.items()}))
    assert load(folder).dtype == torch.float32
    assert load(folder, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["llama", "mistral", "mixtral", "qwen2", "qwen3"])
def test_a_config_counts_what_the_files_hold(make_checkpoint: MakeCheckpoint, kind: str) -> None:
    folder, theirs = make_checkpoint(kind=kind, tie_word_embeddings=True)
    config = ModelConfig.from_folder(folder)
    assert config.num_parameters() == sum(p.numel() for p in theirs.parameters())
    assert config.kv_bytes_per_token("bfloat16") == 3 * 2 * 2 * config.head_dim * 2


def test_config_is_read_from_both_generations_of_keys(
    folder: Path, rewrite: Callable[..., None]
) -> None:
    new = ModelConfig.from_folder(folder)
    keys = json.loads((folder / "config.json").read_text())
    assert "rope_parameters" in keys and "dtype" in keys
    rewrite(folder, rope_parameters=None, dtype=None, rope_theta=10000.0, torch_dtype="float32")
    assert ModelConfig.from_folder(folder) == new
