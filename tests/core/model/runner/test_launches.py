"""How many kernels a decode step launches where it is not replayed from a graph: each costs host
time. Kernels are counted, and not run."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():  # before Triton is first imported
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

from forkroot.core.api.batch import SamplingParams
from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.kernels.devices import backend_for
from forkroot.kernels.gpu.launch import Launch

from ..conftest import PLAIN, Placement

LAYERS = 32


class Zeros:
    """The `Weights` of a model whose every number is 0."""

    def __init__(self, config: ModelConfig) -> None:
        self._shapes = config.weight_shapes()

    def take(self, name: str) -> torch.Tensor:
        return torch.zeros(self._shapes[name])

    def take_part(self, name: str, dim: int, part: slice) -> torch.Tensor:
        raise NotImplementedError(name)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each kernel was launched."""
    counts: Counter[str] = Counter()

    def count(self: Launch, kernel: Any, grid: tuple[int, ...], *args: Any, **kinds: Any) -> None:
        counts[kernel.fn.__name__] += 1

    monkeypatch.setattr(Launch, "__call__", count)
    return counts


def decode_step(
    launches: Counter[str], prefix: int, num_new: int = 1, **changes: Any
) -> Counter[str]:
    """What a step of 32 layers launches for new tokens of three sequences behind a prefix each."""
    changes = {"num_layers": LAYERS, "windows": (None,) * LAYERS, "hidden_size": 48, **changes}
    config = replace(PLAIN, **changes)
    device = torch.device("cpu")
    model = Llama(config, Zeros(config), device, Ranks(), backend_for(device, "triton"))
    runner = ModelRunner(model, 700, attention="triton", sampling="triton", graphs=False)
    placement = Placement()
    sequences = [placement.add([5] * (prefix + num_new)) for _ in range(3)]
    runner.run(placement.batch(dict.fromkeys(sequences, prefix)))
    launches.clear()
    params = SamplingParams(temperature=1.0, top_p=0.9)
    assert len(runner.run(placement.batch(dict.fromkeys(sequences, num_new), params)).tokens) == 3
    return launches


@pytest.mark.parametrize("has_head_norms", [False, True])
def test_a_layer_launches_four_kernels(launches: Counter[str], has_head_norms: bool) -> None:
    found = decode_step(launches, 9, has_head_norms=has_head_norms)
    of_layers = {"_norm": 2, "_attend_decode": 1, "_silu_mul": 1}
    for kernel, count in of_layers.items():
        assert found[kernel] == count * LAYERS + (kernel == "_norm")  # one before the head
    assert found.total() - sum(of_layers.values()) * LAYERS <= 3  # that norm, and sampling


def test_split_keys_cost_a_layer_one_launch_more(launches: Counter[str]) -> None:
    assert decode_step(launches, 200).total() <= 5 * LAYERS + 3


def test_a_step_with_several_new_tokens_of_a_sequence_launches_five(
    launches: Counter[str],
) -> None:
    found = decode_step(launches, 9, num_new=2)
    assert found["_rotate_and_write"] == found["_attend_extend"] == LAYERS
    assert found.total() <= 5 * LAYERS + 3
