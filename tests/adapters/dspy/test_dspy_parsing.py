"""Typed answers parse, whatever the model says: random signatures in every format of DSPy."""

# ruff: noqa: E402
from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Optional

import pytest

dspy = pytest.importorskip("dspy")

import torch
from safetensors.torch import load_file, save_file

import forkroot
from forkroot.adapters.dspy import LM
from forkroot.core.api.protocol import Backend
from forkroot.core.model.hub.folders import model_folder

from .dspy_signatures import Colour, Level, random_signature

ADAPTERS = {
    "chat": lambda: dspy.ChatAdapter(use_json_adapter_fallback=False),
    "json": lambda: dspy.JSONAdapter(),
    "xml": lambda: dspy.XMLAdapter(use_json_adapter_fallback=False),
}


def random_weights(folder: Path) -> Path:
    """The embedded model's shape and tokenizer with weights that mean nothing."""
    shutil.copytree(model_folder("tiny"), folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    weights = load_file(folder / "model.safetensors")
    noise = {name: torch.randn(value.shape) * 0.2 for name, value in weights.items()}
    result = {name: value.to(weights[name].dtype) for name, value in noise.items()}
    save_file(result, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module", params=["embedded", "random weights"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    where = "tiny"
    if request.param == "random weights":
        where = str(random_weights(tmp_path_factory.mktemp("random")))
    backend = forkroot.connect(where, dtype="float32", num_slots=20_000)
    yield backend
    backend.close()


def failure(lm: LM, style: str, name: str) -> str | None:
    """What could not be parsed of the answer to a signature, which its name decides."""
    rng = random.Random(name)
    signature = random_signature(rng)
    config = {"temperature": rng.choice((0.0, 1.0, 2.0)), "max_tokens": rng.randint(160, 280)}
    with dspy.context(lm=lm, adapter=ADAPTERS[style]()):
        try:
            dspy.Predict(signature)(question=f"What is {name}?", config=config)
        except Exception as error:
            return f"{name}: {signature} {config} {type(error).__name__}: {error}"
    return None


def failures(lm: LM, style: str, count: int, seed: int) -> list[str]:
    """Those of so many signatures, called in threads."""
    with ThreadPoolExecutor(16) as pool:
        found = pool.map(lambda number: failure(lm, style, f"{seed} {number}"), range(count))
        return [text for text in found if text is not None]


@pytest.mark.parametrize("style", ADAPTERS)
def test_random_signatures_parse(model: Backend, style: str) -> None:
    assert failures(LM(model, cache=False), style, 3, seed=1) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("style", ADAPTERS)
def test_two_hundred_random_signatures_parse(model: Backend, style: str) -> None:
    assert failures(LM(model, cache=False), style, 200, seed=2) == []


Python = dspy.Code["python"]


class Typed(dspy.Signature):
    """Fill in the fields."""

    question: str = dspy.InputField()
    colour: Colour = dspy.OutputField()
    level: Level = dspy.OutputField()
    maybe: Optional[Literal["1", "null"]] = dspy.OutputField()  # noqa: UP045
    text: str = dspy.OutputField()
    code: Python = dspy.OutputField()


@pytest.mark.parametrize("style", ADAPTERS)
def test_values_of_listed_types_come_back_as_their_members(model: Backend, style: str) -> None:
    with dspy.context(lm=LM(model, cache=False, max_tokens=160), adapter=ADAPTERS[style]()):
        found = dspy.Predict(Typed, n=3, temperature=2.0)(question="Which?")
    for place in range(3):
        fields: dict[str, Any] = {key: found.completions[key][place] for key in Typed.output_fields}
        assert isinstance(fields["colour"], Colour)
        assert isinstance(fields["level"], Level)
        assert fields["maybe"] in (None, "1", "null")
        assert "[[ ## " not in fields["text"]
        assert isinstance(fields["code"], dspy.Code)
