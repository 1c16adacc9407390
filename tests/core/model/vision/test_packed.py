"""Matrices of towers, packed for AMX: the same features, and a proof that they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from forkroot.core.api.media import Media
from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.transformers.packed import PackedLinear
from forkroot.core.model.vision import load as load_processor
from forkroot.kernels.cpu.linear.linear import multiplies_faster

from ..conftest import load
from . import tiny

HALF = torch.arange(64.0).view(8, 8)  # numbers of bfloat16


@pytest.fixture(scope="module", params=["llava", "qwen2_vl"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A checkpoint whose weights are bfloat16 numbers, and the model of transformers."""
    if not multiplies_faster(HALF):
        pytest.skip("only where compiled loops use AMX")
    folder = tmp_path_factory.mktemp(request.param)
    theirs = tiny.save(request.param, folder).bfloat16().float()
    theirs.save_pretrained(folder)
    return folder, theirs


def test_packed_matrices_give_the_features_of_transformers(stored: tuple[Path, Any]) -> None:
    folder, theirs = stored
    processor, tower = load_processor(folder), load(folder).tower  # type: ignore[attr-defined]
    assert processor is not None
    frames = np.random.default_rng(4).integers(0, 256, (1, 40, 60, 3), np.uint8)
    pixels = processor.pixels(Media.of("image", frames))
    units = range(len(pixels.layout.unit_costs))
    with torch.inference_mode():
        found = tower.features(pixels, tower.encode([pixels], [units])[0])
        given = list(tower.arguments("image", pixels, torch.empty(0)).values())[:2]
        wanted = theirs.model.get_image_features(*given, return_dict=True).pooler_output[0]
    assert (found - wanted.flatten(0, -2)).abs().max() <= 1e-5 * max(1.0, float(wanted.abs().max()))
    kinds = {type(it) for it in tower._model.modules()}
    assert PackedLinear in kinds and torch.nn.Linear not in kinds


def test_packed_matrices_that_differ_are_found_when_a_model_is_loaded(
    stored: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = PackedLinear.forward
    monkeypatch.setattr(PackedLinear, "forward", lambda self, x: forward(self, x) * 1.01)
    with pytest.raises(InvalidModel, match="has other features of pictures"):
        load(stored[0])


def test_other_numbers_stay_with_torch() -> None:
    assert not multiplies_faster(HALF + 1e-7 * torch.rand(8, 8) + 0.1)
    assert not multiplies_faster(HALF.bfloat16())
