"""Every family on our paged KV against the whole model of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from forkroot.core.api.batch import SamplingParams
from forkroot.core.api.media import Media, MediaProcessor
from forkroot.core.model.checkpoint.load import describe
from forkroot.core.model.inputs import Inputs
from forkroot.core.model.runner.features import FeatureStore
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.vision import load as load_processor

from ..conftest import NUM_SLOTS, Machine, load
from . import tiny
from .prompts import Prompt, arguments_of, placed, with_media

SIZES = ((28, 28), (50, 50), (61, 33), (30, 90), (100, 45))
CLIPS = ("llava_next_video", "llava_onevision", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


class Family(NamedTuple):
    kind: str
    folder: Path
    theirs: Any
    runner: ModelRunner
    processor: MediaProcessor


@pytest.fixture(scope="module", params=list(tiny.FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp(request.param)
    theirs = tiny.save(request.param, folder)
    processor = load_processor(folder)
    assert processor is not None
    return Family(request.param, folder, theirs, ModelRunner(load(folder), NUM_SLOTS), processor)


def noise(kind: Any, size: tuple[int, int], seed: int, count: int = 1) -> Media:
    frames = np.random.default_rng(seed).integers(0, 256, (count, *size, 3), np.uint8)
    seconds = tuple(i * 0.7 for i in range(count)) if kind == "video" else ()
    return Media.of(kind, frames, seconds)


def words(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(30, 100, count).tolist()


def prompt_of(family: Family, *media: Media) -> Prompt:
    pieces: list[Any] = [words(1, 9)]
    for i, it in enumerate(media):
        pieces += [it, words(i + 2, 4 + 3 * i)]
    return Prompt.of(family.processor, pieces)


def logits(family: Family, prompt: Prompt, chunk: int) -> torch.Tensor:
    """After each token of a prompt that is computed in chunks."""
    machine, store = Machine(family.runner.model), FeatureStore(family.runner.model)
    placement, found = placed([prompt]), []
    for start in range(0, len(prompt.ids), chunk):
        count = min(chunk, len(prompt.ids) - start)
        encodes = {} if start else {"encodes": prompt.encodes}
        batch = with_media(placement.batch({0: count}), [prompt], **encodes)
        with torch.inference_mode():
            store.encode(batch)
            everything = np.arange(count, dtype=np.int32)
            arguments = machine.model.windows, machine.attention, machine.model.device
            features = store.of(batch.media)
            inputs = Inputs.of(batch, *arguments, features=features)
            inputs = type(inputs)(**{**_fields(inputs), "wanted": torch.from_numpy(everything)})
            hidden = machine.model.hidden(inputs, machine.pool, machine.attention)
            found.append(machine.model.logits(hidden))
    return torch.cat(found)


def _fields(inputs: Inputs) -> dict[str, Any]:
    return {name: getattr(inputs, name) for name in Inputs.__slots__}


def greedy(runner: ModelRunner, prompts: list[Prompt], count: int, chunk: int) -> list[list[int]]:
    """The next tokens of prompts that are computed together, in chunks."""
    placement = placed(prompts)
    encodes = tuple(it for prompt in prompts for it in prompt.encodes)
    written: list[list[int]] = [[] for _ in prompts]
    while any(len(tokens) < count for tokens in written):
        counts = {
            s: min(chunk, len(placement.ids[s]) - placement.computed[s])
            for s in range(len(prompts))
            if len(written[s]) < count
        }
        batch = placement.batch(counts, SamplingParams(banned=(2,)))
        batch = with_media(batch, [prompts[s] for s in counts], encodes=encodes)
        encodes = ()
        for s, token in zip(counts, runner.run(batch).tokens.tolist(), strict=True):
            if placement.computed[s] == len(placement.ids[s]):
                written[s].append(token)
                placement.ids[s].append(token)
    return written


def theirs_greedy(family: Family, prompt: Prompt, count: int) -> list[int]:
    with torch.inference_mode():
        arguments = arguments_of(family.kind, prompt)
        out = family.theirs.generate(
            **arguments,
            max_new_tokens=count,
            do_sample=False,
            suppress_tokens=[2],
            eos_token_id=None,
            pad_token_id=0,
        )
    found: list[int] = out[0, len(prompt.ids) :].tolist()
    return found


def assert_same_logits(family: Family, prompt: Prompt, chunk: int) -> None:
    with torch.inference_mode():
        wanted = family.theirs(**arguments_of(family.kind, prompt)).logits[0]
    found = logits(family, prompt, chunk)
    assert (found - wanted).abs().max() <= 1e-4 * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("size", SIZES)
def test_prompts_with_a_picture_get_the_logits_of_transformers(
    family: Family, size: tuple[int, int]
) -> None:
    assert_same_logits(family, prompt_of(family, noise("image", size, 5)), 64)


def test_chunks_may_be_cut_anywhere_in_two_pictures(family: Family) -> None:
    prompt = prompt_of(family, noise("image", (40, 60), 6), noise("image", (64, 30), 7))
    assert_same_logits(family, prompt, 7)


def test_clips_stand_beside_pictures(family: Family) -> None:
    if family.kind not in CLIPS:
        assert "video" not in family.processor.kinds
        return
    clip = noise("video", (36, 48), 8, 8)
    assert_same_logits(family, prompt_of(family, clip), 64)
    prompt = prompt_of(family, noise("image", (40, 60), 6), clip, noise("image", (30, 30), 9))
    assert_same_logits(family, prompt, 7)


def test_greedy_answers_are_those_of_transformers_in_a_batch_with_others(family: Family) -> None:
    prompts = [
        prompt_of(family, noise("image", (40, 60), 6)),
        Prompt.of(family.processor, [words(40, 30)]),
        prompt_of(family, noise("image", (28, 56), 10), noise("image", (50, 50), 11)),
    ]
    wanted = [theirs_greedy(family, prompt, 12) for prompt in prompts]
    assert greedy(family.runner, prompts, 12, 64) == wanted
    assert greedy(family.runner, prompts[:1], 12, 7) == wanted[:1]


def test_what_a_model_takes_is_known_before_it_is_loaded(family: Family) -> None:
    found = describe(family.folder)
    assert set(found.kinds) == family.processor.kinds
    assert "images" in found.path
    assert (found.bos_id, found.eos_ids) == (1, (2,))
