"""What a layer with a mixture of experts launches on a GPU, and that its ranks add up."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():  # before Triton is first imported
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

from forkroot.core.model.arch.mixtral import Mixture
from forkroot.core.model.arch.parts import Parts
from forkroot.core.model.checkpoint.dummy import DummyWeights, dummy_config
from forkroot.core.model.parallel import Ranks
from forkroot.kernels.cpu.decoder.layerwise import LayerwiseBackend
from forkroot.kernels.cpu.linear.linear import TorchLinear
from forkroot.kernels.gpu.rows import GpuRows

from ....kernels.gpu.closeness import is_close
from ....kernels.gpu.launches import launches

CONFIG = replace(dummy_config("mixtral-8x7b"), vocabulary_size=8, hidden_size=64, ffn_size=48)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
KERNELS = ["_topk_softmax", "_sort_pairs", "_grouped_gemm", "_grouped_gemm", "_weighted_sum"]


class GpuBackend(LayerwiseBackend):
    """What a GPU has, its products of matrices too."""

    def __init__(self) -> None:
        super().__init__(DEVICE, GpuRows())

    def linear(self, weight: Tensor) -> TorchLinear:
        return TorchLinear(weight)


def mixture(ranks: Ranks, dtype: torch.dtype) -> Mixture:
    return Mixture(Parts(CONFIG, DummyWeights(CONFIG, dtype, DEVICE), ranks, GpuBackend()), 0)


def added(ranks: Ranks, x: Tensor) -> Tensor:
    residual = torch.zeros_like(x)
    mixture(ranks, x.dtype).add_to(residual, x)
    return residual


@pytest.mark.parametrize("num_tokens", [1, 20])
def test_a_mixture_of_experts_is_six_launches(num_tokens: int) -> None:
    x = torch.randn(num_tokens, CONFIG.hidden_size, dtype=torch.bfloat16, device=DEVICE)
    experts, residual = mixture(Ranks(), x.dtype), torch.zeros_like(x)
    with launches() as names:
        experts.add_to(residual, x)
    assert names == ["mm", *KERNELS]


def test_a_mixture_on_one_of_two_ranks_adds_only_the_sum_to_these() -> None:
    x = torch.randn(3, CONFIG.hidden_size, dtype=torch.bfloat16, device=DEVICE)
    experts, residual = mixture(Ranks(0, 2, lambda part: part), x.dtype), torch.zeros_like(x)
    with launches() as names:
        experts.add_to(residual, x)
    assert names == ["mm", *KERNELS, "add_"]


def test_the_parts_of_two_ranks_add_up_to_the_whole_mixture() -> None:
    x = torch.randn(5, CONFIG.hidden_size, device=DEVICE)
    parts = [added(Ranks(rank, 2, lambda part: part), x) for rank in range(2)]
    assert is_close(parts[0] + parts[1], added(Ranks(), x), x.dtype)
