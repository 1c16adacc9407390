"""Whole runtimes of models that take pictures give the tokens that transformers generates."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tokenizers

from forkroot import connect
from forkroot.core.api.media import Media
from forkroot.core.api.protocol import (
    Backend,
    Call,
    Chat,
    Image,
    Message,
    Sampling,
    Segment,
    Text,
    Tokens,
)
from forkroot.core.model import vision

from . import tiny
from .prompts import Prompt, arguments_of

pytestmark = pytest.mark.usefixtures("preloaded")
NUM_NEW = 8
SIZES = {"num_slots": 1500, "context_len": 400, "chunk_tokens": 64}
# Numbers are seeds of pictures, lists are tokens.
PROMPTS: tuple[tuple[int | list[int], ...], ...] = (
    ([5, 6, 7], 1, [8, 9]),
    ([5, 6, 7], 1, [10, 11, 12]),
    (2, [20], 1, [30, 31]),
    ([40, 41, 42, 43], 3),
    ([50, 51], 3, 3, [52]),
    ([60, 61, 62, 63, 64, 65],),
)


def pixels(seed: int) -> np.ndarray:
    height, width = (30, 44) if seed % 2 else (33, 29)
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def png(seed: int) -> Image:
    from PIL import Image as Pillow

    data = io.BytesIO()
    Pillow.fromarray(pixels(seed)).save(data, "PNG")
    return Image(data.getvalue())


def call_of(pieces: Sequence[int | list[int]], **options: Any) -> Call:
    prompt: list[Segment] = [png(it) if isinstance(it, int) else Tokens(tuple(it)) for it in pieces]
    return Call(tuple(prompt), Sampling(max_tokens=NUM_NEW, temperature=0.0, ignore_eos=True))


class Model(NamedTuple):
    """A checkpoint, and what transformers answers to PROMPTS."""

    folder: Path
    answers: list[tuple[int, ...]]


@pytest.fixture(scope="module", params=["llava", "qwen2_vl"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    pytest.importorskip("PIL")
    folder = tmp_path_factory.mktemp(request.param)
    theirs = tiny.save(request.param, folder)
    processor = vision.load(folder)
    assert processor is not None
    answers = []
    for pieces in PROMPTS:
        media = [
            Media.of("image", pixels(it)[None]) if isinstance(it, int) else it for it in pieces
        ]
        given = arguments_of(request.param, Prompt.of(processor, media))
        ids = theirs.generate(**given, max_new_tokens=NUM_NEW, do_sample=False, eos_token_id=None)
        answers.append(tuple(ids[0, -NUM_NEW:].tolist()))
    return Model(folder, answers)


def answers_of(backend: Backend, indices: Sequence[int]) -> list[tuple[int, ...]]:
    replies = [backend.submit(call_of(PROMPTS[index])) for index in indices]
    return [reply.result(60).outputs[0].ids for reply in replies]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"chunk_tokens": 7},
        {"cache": False, "chunk_tokens": 7, "tower_tokens": 1},
        {"overlap": True, "chunk_tokens": 7, "feature_slots": 40},
    ],
)
def test_answers_are_those_of_transformers(model: Model, settings: dict[str, Any]) -> None:
    with connect(str(model.folder), **SIZES | settings) as backend:
        for count in (1, 4, 32):
            indices = [index % len(PROMPTS) for index in range(count)]
            found = answers_of(backend, indices)
            assert found == [model.answers[index] for index in indices]
        backend.check()


@pytest.mark.parametrize("model", ["llava"], indirect=True)
def test_a_chat_shows_pictures_where_its_template_has_them(model: Model) -> None:
    core = tokenizers.Tokenizer.from_file(str(model.folder / "tokenizer.json"))
    core.add_special_tokens([f"w{tiny.IMAGE}"])
    core.save(str(model.folder / "tokenizer.json"))
    parts = "{% if it.type == 'image' %}w110{% else %}{{ it.text }}{% endif %}"
    loops = "{% for m in messages %}{% for it in m.content %}", "{% endfor %}{% endfor %}ab"
    template = json.dumps({"chat_template": parts.join(loops)})
    (model.folder / "chat_template.json").write_text(template)
    chat = Chat((Message("user", (Text("on f"), png(1), Text("12"), png(2))),))
    with connect(str(model.folder), **SIZES) as backend:
        call = call_of([[1]])
        done = backend.submit(replace(call, prompt=chat)).result(60)
        assert done.usage.image_tokens == 32
        ids = backend.tokenizer.encode_prompt(chat)
        assert ids.count(tiny.IMAGE) == 32 and len(ids) == done.usage.prompt_tokens
        segments = Text("on f"), png(1), Text("12"), png(2), Text("ab")
        assert ids == backend.tokenizer.encode_prompt(segments)
        again = backend.submit(replace(call, prompt=segments)).result(60)
        assert again.outputs[0].ids == done.outputs[0].ids


@pytest.mark.parametrize("model", ["llava"], indirect=True)
def test_so_are_those_of_two_ranks(model: Model) -> None:
    with connect(str(model.folder), ranks=2, **SIZES) as backend:
        assert answers_of(backend, range(len(PROMPTS))) == model.answers


@pytest.mark.parametrize("model", ["qwen2_vl"], indirect=True)
def test_so_are_those_of_two_ranks_in_processes_of_their_own(model: Model) -> None:
    with connect(str(model.folder), process=True, ranks=2, **SIZES) as backend:
        assert "images" in backend.info().features
        assert answers_of(backend, range(len(PROMPTS))) == model.answers
        call = call_of(PROMPTS[2])
        count = len(backend.tokenizer.encode_prompt(call.prompt))
        assert count == backend.submit(call).result(60).usage.prompt_tokens
