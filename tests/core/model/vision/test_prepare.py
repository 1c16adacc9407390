"""Pixels and layouts against the image processors of transformers."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forkroot.core.api.media import FEATURE, Media, rotary_parts
from forkroot.core.api.protocol import InvalidCall, InvalidModel
from forkroot.core.model.vision import load

from . import tiny

SIZES = ((28, 28), (50, 50), (61, 33), (30, 117), (200, 90))
PROCESSORS = {
    "llava": "llava.image_processing_pil_llava:LlavaImageProcessorPil",
    "llava_next": "llava_next.image_processing_pil_llava_next:LlavaNextImageProcessorPil",
    "llava_onevision": (
        "llava_onevision.image_processing_pil_llava_onevision:LlavaOnevisionImageProcessorPil"
    ),
    "qwen2_vl": "qwen2_vl.image_processing_pil_qwen2_vl:Qwen2VLImageProcessorPil",
}


def picture(size: tuple[int, int], seed: int = 0) -> Media:
    random = np.random.default_rng(seed)
    return Media.of("image", random.integers(0, 256, (1, *size, 3), np.uint8))


def processor_of(kind: str, settings: dict[str, Any]) -> Any:
    module, _, name = PROCESSORS[kind].partition(":")
    found = importlib.import_module(f"transformers.models.{module}")
    values = {key: value for key, value in settings.items() if not key.endswith("_type")}
    return getattr(found, name)(**values)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of each family a folder without weights."""
    made = {kind: tmp_path_factory.mktemp(kind) for kind in tiny.FAMILIES}
    for kind, folder in made.items():
        tiny.save_settings(kind, folder)
    return made


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", list(PROCESSORS))
def test_pixels_of_pictures_are_those_of_transformers(
    folders: dict[str, Path], kind: str, size: tuple[int, int]
) -> None:
    processor, media = load(folders[kind]), picture(size)
    assert processor is not None
    theirs = processor_of(kind, tiny.FAMILIES[kind][1])(
        images=[media.frames[0]], return_tensors="np", input_data_format="channels_last"
    )
    wanted = theirs["pixel_values"]
    found = processor.pixels(media)
    name = "patches" if kind == "qwen2_vl" else "tiles"
    ours = found.arrays[name]
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, np.asarray(wanted).reshape(ours.shape), atol=2e-6)
    if kind == "qwen2_vl":
        assert found.arrays["grid"].tolist() == theirs["image_grid_thw"][0].tolist()
    layout = processor.layout(media)
    assert np.array_equal(layout.ids, found.layout.ids)
    assert layout.unit_costs == found.layout.unit_costs
    assert len(layout.unit_costs) == (1 if kind == "qwen2_vl" else len(ours))


@pytest.mark.parametrize("kind", ["llava_next_video", "llava_onevision"])
def test_frames_of_clips_are_prepared_as_pictures_of_the_same_settings(
    folders: dict[str, Path], kind: str
) -> None:
    processor = load(folders[kind])
    assert processor is not None
    frames = np.random.default_rng(1).integers(0, 256, (8, 40, 64, 3), np.uint8)
    settings = tiny.FAMILIES[kind][2]
    assert settings is not None
    defaults = {} if "crop_size" in settings else {"do_center_crop": False}
    wanted = processor_of("llava", {**settings, **defaults})(
        images=list(frames), return_tensors="np", input_data_format="channels_last"
    )["pixel_values"]
    found = processor.pixels(Media.of("video", frames))
    np.testing.assert_allclose(found.arrays["tiles"], wanted, atol=2e-6)
    assert found.layout.num_features == (8 * 4 + 1 if kind == "llava_onevision" else 8 * 4)


@pytest.mark.parametrize("count", [2, 5, 8])
def test_pairs_of_frames_become_patches_one_after_another(
    folders: dict[str, Path], count: int
) -> None:
    """Both frames of a pair are equal, so that each pair is a picture of transformers."""
    processor = load(folders["qwen2_vl"])
    assert processor is not None
    random = np.random.default_rng(2)
    pairs = random.integers(0, 256, (-(-count // 2), 40, 64, 3), np.uint8)
    found = processor.pixels(Media.of("video", np.repeat(pairs, 2, axis=0)[:count]))
    settings = tiny.FAMILIES["qwen2_vl"][2]
    assert settings is not None
    theirs = processor_of("qwen2_vl", settings)(
        images=list(pairs), return_tensors="np", input_data_format="channels_last"
    )
    np.testing.assert_allclose(found.arrays["patches"], theirs["pixel_values"], atol=2e-6)
    _, rows, columns = theirs["image_grid_thw"][0].tolist()
    assert found.arrays["grid"].tolist() == [len(pairs), rows, columns]


def test_the_time_of_each_frame_stands_before_its_features(folders: dict[str, Path]) -> None:
    processor = load(folders["qwen3_vl"])
    assert processor is not None
    frames = np.zeros((4, 32, 32, 3), np.uint8)
    ids = processor.layout(Media.of("video", frames, (0.0, 0.5, 1.0, 12.4))).ids.tolist()
    text = "".join("0123456789.<> secondabfgh"[i] if 0 <= i < 25 else "|" for i in ids)
    assert text.replace("||", "|").replace("||", "|").count("|") >= 2
    first, second = ids.index(tiny.START), ids.index(tiny.START, ids.index(tiny.START) + 1)
    assert text[:first] == "<0.2 seconds>"
    assert text[ids.index(tiny.END) + 1 : second] == "<6.7 seconds>"
    assert ids[first + 1] == FEATURE and ids[-1] == tiny.END


def test_positions_of_clips_count_parts_of_a_second_and_text_goes_on_behind_their_edges(
    folders: dict[str, Path],
) -> None:
    processor = load(folders["qwen2_5_vl"])
    assert processor is not None
    frames = np.zeros((8, 16, 24, 3), np.uint8)
    layout = processor.layout(Media.of("video", frames, tuple(i * 0.7 for i in range(8))))
    assert layout.unit_costs == (24,) * 4
    assert layout.positions is not None
    times, rows, columns = layout.positions.reshape(3, 4, 2, 3)
    assert times[:, 0, 0].tolist() == [0, 5, 11, 16]  # 4 a second, 1.4 seconds apart
    assert (rows[1].tolist(), columns[1].tolist()) == ([[0] * 3, [1] * 3], [[0, 1, 2]] * 2)
    placed = rotary_parts(52, [2, 27], [layout, layout])
    assert placed is not None
    assert placed[:, [0, 1, 2, 26, 27, 51]].tolist() == [[0, 1, 2, 5, 6, 9]] * 3
    assert placed.max() == 6 + 16
    assert rotary_parts(2, [], []) is None


@pytest.mark.parametrize("kind", list(tiny.FAMILIES))
def test_very_narrow_pictures_are_refused(folders: dict[str, Path], kind: str) -> None:
    processor = load(folders[kind])
    assert processor is not None
    with pytest.raises(InvalidCall, match="image size='2010 x 10': expected edges"):
        processor.layout(picture((10, 2010)))


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("llava", {"crop_size": {"height": 14, "width": 14}}, r"of size \(14, 14\); expected 28 x"),
        ("llava", {"do_resize": False, "do_center_crop": False}, "of size None; expected 28 x 28"),
        ("llava", {"image_processor_type": "OtherImageProcessor"}, "has the image processor Other"),
        ("llava", {"image_mean": [0.1]}, "image_mean is .*; expected a list of 3"),
        ("qwen2_vl", {"patch_size": 8}, "patch_size 8; expected that of its tower"),
        ("qwen2_vl", {"do_resize": False}, "do_resize is False; expected true"),
    ],
)
def test_settings_that_do_not_fit_the_tower_are_refused(
    folders: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any], message: str
) -> None:
    tiny.save_settings(kind, tmp_path, **changes)
    with pytest.raises(InvalidModel, match=message):
        load(tmp_path)


def test_other_settings_make_other_keys(folders: dict[str, Path], tmp_path: Path) -> None:
    tiny.save_settings("llava", tmp_path, image_mean=[0.5, 0.5, 0.5])
    changed, plain = load(tmp_path), load(folders["llava"])
    assert changed is not None and plain is not None
    assert changed.settings != plain.settings
    (tmp_path / "preprocessor_config.json").unlink()
    assert load(tmp_path) is None
