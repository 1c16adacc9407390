"""Whole runtimes on models that are not the embedded one: by the code of transformers, and of
weights that mean nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forkroot.core.api.protocol import Call, InvalidModel, Regex, Sampling, Text
from forkroot.core.local import LocalBackend
from forkroot.core.model.hub.folders import model_folder

from ..checkpoint.test_dummy import small
from ..conftest import MakeCheckpoint

SIZES = {"num_slots": 512, "max_running": 4}
TEXT = "Paris is the capital of France."
VOCABULARY_SIZE = 4200  # more than the tokenizer has


@pytest.fixture(scope="module")
def made(make_checkpoint: MakeCheckpoint) -> tuple[Path, Any]:
    windows = {"sliding_window": 8, "query_pre_attn_scalar": 16}
    folder, theirs = make_checkpoint(
        kind="gemma2", vocab_size=VOCABULARY_SIZE, head_dim=16, **windows
    )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_folder("tiny") / name, folder)
    return folder, theirs


def greedy(count: int) -> Call:
    return Call((Text(TEXT),), Sampling(temperature=0, max_tokens=count, ignore_eos=True))


def test_a_model_of_transformers_answers_as_it_does_there(made: tuple[Path, Any]) -> None:
    folder, theirs = made
    with LocalBackend.from_folder(folder, **SIZES) as backend:
        cold, warm = (backend.submit(greedy(9)).result(60) for _ in range(2))
        backend.check()
        ids = torch.tensor([backend.tokenizer.encode_prompt((Text(TEXT),))])
    options = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    wanted = theirs.generate(ids, attention_mask=torch.ones_like(ids), **options)
    assert list(cold.outputs[0].ids) == wanted[0, ids.shape[1] :].tolist()
    assert warm.outputs == cold.outputs
    assert (cold.usage.cached_tokens, warm.usage.cached_tokens) == (0, ids.shape[1] - 1)


def test_a_vocabulary_wider_than_the_tokenizers_can_be_constrained(made: tuple[Path, Any]) -> None:
    with LocalBackend.from_folder(made[0], **SIZES) as backend:
        assert len(backend.tokenizer.token_bytes) == VOCABULARY_SIZE
        sampling = Sampling(temperature=1.0, seed=1, max_tokens=20)
        call = Call((Text(TEXT),), sampling, constraint=Regex("[a-f]{3} (yes|no)"))
        text = backend.submit(call).result(60).outputs[0].text
    assert text[:3].isalpha() and text[4:] in ("yes", "no")


def test_a_dummy_writes_as_many_tokens_as_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "forkroot.core.model.checkpoint.load.dummy_config",
        lambda name: replace(small(name), vocabulary_size=VOCABULARY_SIZE),
    )
    with LocalBackend.from_folder("dummy:mixtral-8x7b", **SIZES) as backend:
        assert backend.name == "dummy:mixtral-8x7b"
        completion = backend.submit(greedy(12)).result(60)
        backend.check()
    assert completion.usage.completion_tokens == 12


def test_a_missing_tokenizer_is_reported_before_weights_are_read(
    made: tuple[Path, Any], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(made[0], tmp_path / "bare"))
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").unlink()
    with pytest.raises(InvalidModel, match=r"tokenizer\.json is missing.*save_pretrained"):
        LocalBackend.from_folder(folder, **SIZES)


@pytest.mark.parametrize("key", ["hidden_size", "architectures", "num_attention_heads"])
def test_a_config_without_a_needed_key_is_refused_by_its_name(
    make_checkpoint: MakeCheckpoint, rewrite: Callable[..., None], tmp_path: Path, key: str
) -> None:
    folder = Path(shutil.copytree(make_checkpoint()[0], tmp_path / "llama"))
    rewrite(folder, **{key: None})
    with pytest.raises(InvalidModel, match=rf"config\.json: {key} is missing; expected "):
        LocalBackend.from_folder(folder, **SIZES)
