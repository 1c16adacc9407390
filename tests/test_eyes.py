"""The embedded model that sees: small, the same text model, whole for transformers, and right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import forkroot
from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.hub.folders import model_folder, model_name
from forkroot.models.training.scenes.drawing import draw
from forkroot.models.training.scenes.scene import scene_of
from forkroot.models.training.tokenizer import IMAGE
from forkroot.models.training.vision.evaluate import Student, ask
from forkroot.models.training.vision.exams import SUBJECTS
from forkroot.models.training.vision.network import normalised
from forkroot.models.training.vision.rows import NUM_PATCHES, SIZE
from forkroot.models.training.world.document import BOS, END_TURN, TURN

MODELS = Path(forkroot.__file__).parent / "models"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        return model_folder("tiny-vision")


def test_both_models_together_take_ten_megabytes_at_most() -> None:
    files = [path for name in ("tiny", "tiny_vision") for path in (MODELS / name).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 10_000_000


def test_the_checkpoint_is_put_together_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = model_folder("tiny-vision")
    written = (first / "model.safetensors").stat().st_mtime_ns
    assert model_folder("tiny-vision") == first and model_name(first) == "tiny-vision"
    assert (first / "model.safetensors").stat().st_mtime_ns == written
    assert [path.name for path in first.parent.iterdir()] == ["tiny-vision"]  # nothing half written


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny-vision").mkdir()
    assert model_folder("tiny-vision") == Path("tiny-vision")


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InvalidModel, match=r"'tiny-vision' cannot be written to .*XDG_CACHE_HOME"):
        model_folder("tiny-vision")


def test_the_text_weights_are_those_of_tiny_and_the_changes_kept_beside_them(folder: Path) -> None:
    text = load_file(MODELS / "tiny" / "model.safetensors")
    kept = load_file(MODELS / "tiny_vision" / "vision.safetensors")
    whole = load_file(folder / "model.safetensors")
    for name, own in text.items():
        full = f"language_model.{name}"
        if f"{full}.a" in kept:
            b, a = kept[f"{full}.b"].float(), kept[f"{full}.a"].float()
            exact = own.float() + b @ a
            assert (whole[full].float() - exact).abs().max() <= exact.abs().max() / 256
            assert not torch.equal(whole[full], own)
        else:
            assert torch.equal(whole[full], own)
    seen = {name for name in kept if not name.endswith((".a", ".b"))}
    assert set(whole) == seen | {f"language_model.{name}" for name in text}
    assert all(torch.equal(whole[name], kept[name]) for name in seen)


@pytest.fixture(scope="module")
def student(folder: Path) -> Student:
    return Student(folder)


def test_transformers_finds_every_weight_and_no_other(student: Student) -> None:
    assert not student.missing


def test_transformers_makes_the_same_input_of_a_picture_as_the_training(folder: Path) -> None:
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    scene = scene_of(random.Random(8), "two", held_out=True)
    content = [{"type": "image"}, {"type": "text", "text": "Describe the picture."}]
    prompt = processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True
    )
    inputs = processor(
        text=prompt, images=draw(scene, SIZE), return_tensors="pt", add_special_tokens=False
    )
    said = processor.tokenizer.decode(inputs["input_ids"][0])
    assert said == (
        f"{BOS}{TURN}user\n{IMAGE * NUM_PATCHES}Describe the picture.{END_TURN}\n{TURN}assistant\n"
    )
    pixels = normalised(draw(scene, SIZE)[None], torch.float32)
    assert torch.allclose(inputs["pixel_values"], pixels, atol=1e-5)
    large = processor.image_processor(draw(scene, 4 * SIZE), return_tensors="pt")["pixel_values"]
    assert (large - pixels).abs().mean() < 0.05


@pytest.mark.parametrize(("title", "least"), [("Colour of a shape", 0.85), ("Digit", 0.95)])
def test_answers_about_held_out_scenes_are_right(
    title: str, least: float, folder: Path, student: Student
) -> None:
    subject = next(it for it in SUBJECTS if it.title == title)
    assert ask(student, subject, 24, seed=7, show=0).share >= least
