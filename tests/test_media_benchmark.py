"""The benchmark of pictures and clips, on small checkpoints: ours beside transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="pictures are decoded with Pillow")

from time import process_time
from types import SimpleNamespace

from forkroot.benchmarks.common.pictures import clip, picture
from forkroot.benchmarks.media.checkpoint import make
from forkroot.benchmarks.media.programs import Size, measure, questions, sampled

SIZES = {"image": Size(2, 6, 28, 1, 4), "video": Size(1, 3, 28, 4, 4)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", SIZES)
def test_answers_are_those_of_transformers_and_pictures_are_computed_once(
    kind: str, tmp_path: Path
) -> None:
    folder = make(kind, "tiny", 1, tmp_path / kind)
    args = SimpleNamespace(seed=3, repeats=1, no_rival=False, dtype="float32", sample=None)
    figures = measure(folder, kind, SIZES[kind], args, process_time)
    assert "skipped" not in figures
    assert figures["programs"] == SIZES[kind].questions
    assert figures["transformers"]["same_answers"] == SIZES[kind].questions
    for mode in ("features", "nothing"):
        assert figures[mode]["same_answers"] == SIZES[kind].questions
        assert figures[mode]["cached_tokens"] == 0 < figures["cache"]["cached_tokens"]
    encoded = [figures[mode]["pictures_encoded"] for mode in ("cache", "nothing")]
    assert encoded == [SIZES[kind].media, SIZES[kind].questions]


def test_a_sample_is_spread_over_all_questions() -> None:
    asked = questions("image", SIZES["image"], 1)
    assert sampled(asked, None) == sampled(asked, 9) == asked
    assert sampled(asked, 3) == asked[::2]


def test_pictures_and_questions_are_drawn_from_a_seed() -> None:
    first, second = (questions("image", SIZES["image"], 1) for _ in range(2))
    assert first == second != questions("image", SIZES["image"], 2)
    assert len({asked.media for asked in first}) == SIZES["image"].media
    frames = clip(5, 4, 32)
    assert len({frame.tobytes() for frame in frames}) == 4
    assert (picture(5, 32) == frames[0]).all()
