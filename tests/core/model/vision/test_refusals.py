"""Models with pictures that are refused, and what the proof at loading finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.checkpoint.load import describe, load_model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.transformers import picture_proof
from forkroot.core.model.transformers.towers import QwenTower, TileTower
from forkroot.core.model.vision import load as load_processor

from ..conftest import load
from . import tiny


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: tmp_path_factory.mktemp(kind) for kind in ("llava", "qwen2_vl", "qwen3_vl")}
    for kind, folder in made.items():
        tiny.save(kind, folder)
    return made


def save_config(kind: str, name: str, text: str, folder: Path) -> None:
    from transformers import AutoConfig

    sizes = {**tiny.TEXT, "model_type": text, "head_dim": 8}
    config = AutoConfig.for_model(kind, text_config=sizes, vision_config=tiny.SIGLIP)
    config.architectures = [name]
    config.save_pretrained(folder)


def test_pictures_whose_tokens_look_ahead_are_refused(tmp_path: Path) -> None:
    save_config("paligemma", "PaliGemmaForConditionalGeneration", "gemma", tmp_path)
    message = "see those after them in PaliGemmaForConditionalGeneration; expected causal"
    with pytest.raises(InvalidModel, match=message):
        describe(tmp_path)


def test_gemma_3_runs_on_text_alone_and_says_so(tmp_path: Path) -> None:
    save_config("gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", tmp_path)
    found = describe(tmp_path)
    assert (found.kinds, load_processor(tmp_path)) == ((), None)
    assert found.path.endswith("without images (their tokens see those after them)")


def test_other_models_with_pictures_are_refused_with_those_that_are_known(
    folders: dict[str, Path], tmp_path: Path, rewrite: Callable[..., None]
) -> None:
    tiny.save_settings("llava", tmp_path)
    rewrite(tmp_path, architectures=["VipLlavaForConditionalGeneration"])
    with pytest.raises(InvalidModel, match="or one of LlavaForConditionalGeneration, "):
        describe(tmp_path)


def test_features_for_several_layers_run_on_one_rank(folders: dict[str, Path]) -> None:
    found, place = describe(folders["qwen3_vl"]), torch.device("cpu")
    with pytest.raises(InvalidModel, match="Qwen3VLForConditionalGeneration on 2 ranks"):
        load_model(folders["qwen3_vl"], found, torch.float32, place, Ranks(0, 2))


@pytest.mark.parametrize(
    ("kind", "tower", "what"),
    [
        ("llava", TileTower, "features of pictures"),
        ("qwen2_vl", QwenTower, "features of pictures"),
        ("qwen3_vl", QwenTower, "logits"),
    ],
)
def test_a_tower_that_gives_other_features_is_found_when_it_is_loaded(
    folders: dict[str, Path], kind: str, tower: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = tower.features

    def turned(self: Any, *arguments: Any) -> Any:
        return features(self, *arguments).flip(0)

    monkeypatch.setattr(tower, "features", turned)
    with pytest.raises(InvalidModel, match=f"has other {what} on paged KV than on its own"):
        load(folders[kind])


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("qwen2_vl", "rotary positions here than in transformers"),
        ("qwen3_vl", "logits on paged KV than on its own"),
    ],
)
def test_rotary_positions_that_differ_are_found_when_a_model_is_loaded(
    folders: dict[str, Path], kind: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_proof, "rotary_parts", lambda *_: None)
    with pytest.raises(InvalidModel, match=f"has other {what}"):
        load(folders[kind])


def test_weights_by_their_newer_names_are_read(folders: dict[str, Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for path in folders["llava"].iterdir():
        if path.suffix == ".json":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = load_file(folders["llava"] / "model.safetensors")

    def newer(name: str) -> str:
        if name.startswith("language_model.lm_head."):
            return name.removeprefix("language_model.")
        return "model." + name.replace("language_model.model.", "language_model.")

    assert "language_model.lm_head.weight" in weights
    save_file({newer(name): it for name, it in weights.items()}, tmp_path / "model.safetensors")
    assert load(tmp_path).config.num_parameters() == sum(it.numel() for it in weights.values())
