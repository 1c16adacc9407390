"""How the eyes of the embedded model are trained: what is learned, kept and taken up again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from forkroot.models.training.train import TINY
from forkroot.models.training.vision.checkpoint import save_eyes
from forkroot.models.training.vision.network import (
    Seeing,
    llava_names,
    llava_tensors,
    load_eyes,
)
from forkroot.models.training.vision.rows import make_batch
from forkroot.models.training.vision.train import TINY_VISION, tensors_of


@pytest.fixture(scope="module")
def network() -> Seeing:
    torch.manual_seed(3)
    network = Seeing(TINY)
    load_eyes(network, TINY_VISION)
    return network


def test_eyes_that_are_saved_are_loaded_again(network: Seeing, tmp_path: Path) -> None:
    save_eyes(llava_tensors(network, {}), TINY, tmp_path, {"steps": 1})
    again = Seeing(TINY)
    load_eyes(again, tmp_path)
    kept, other = dict(network.named_parameters()), dict(again.named_parameters())
    names = llava_names(network)
    assert len(names) > 100 and len(set(names.values())) == len(names)
    assert all(torch.equal(kept[name], other[name]) for name in names)


@pytest.mark.parametrize("name", ["q_proj", "down_proj"])
def test_thin_changes_are_those_of_the_matrix_itself(network: Seeing, name: str) -> None:
    layer, change = network.text.layers[1], network.changes.get_parameter
    weight = layer.get_parameter(name)
    x = torch.randn(3, weight.shape[1], generator=torch.Generator().manual_seed(1))
    whole = weight + change(f"1_{name}_b") @ change(f"1_{name}_a")
    assert torch.allclose(layer.product(x, name), F.linear(x, whole), atol=1e-4)
    assert not torch.allclose(layer.product(x, name), F.linear(x, weight), atol=1e-2)


def test_a_token_that_training_never_has_gets_no_gradient(network: Seeing) -> None:
    """What would be the first token of a held-out answer is neither taught nor untaught."""
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    batch = tensors_of(make_batch(tokenizer, 1, 0, 4))
    assert (batch["unasked"] > 0).any()
    assert not ((batch["unasked"] == batch["targets"]) & (batch["weights"] > 0)).any()
    kept = list[torch.Tensor]()

    def read(asked: object, features: torch.Tensor) -> torch.Tensor:
        kept.append(network.logits(batch, features).detach().requires_grad_())
        return kept[0]

    _, answers = network.losses(batch, read, 4)
    (gradient,) = torch.autograd.grad(answers, kept)
    unasked, weights = batch["unasked"], batch["weights"]
    there = (unasked > 0) & (weights > 0)
    assert (gradient.gather(2, unasked[..., None])[..., 0][there] == 0).all()
    assert (gradient.gather(2, batch["targets"][..., None])[..., 0][there] < 0).any()


def test_a_batch_is_that_of_its_seed_and_step() -> None:
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    first, again, other = (make_batch(tokenizer, 1, step, 2) for step in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.pictures, other.pictures)
