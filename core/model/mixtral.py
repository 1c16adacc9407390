"""The Mixtral decoder: Llama's, with a mixture of experts in place of one feed-forward."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .llama import FeedForward, Llama
from .parts import Parts


class Expert:
    """w2(silu(w1(x)) * w3(x)), w1 and w3 by one product."""

    def __init__(self, parts: Parts, name: str) -> None:
        self._w1_w3 = parts.split_rows([f"{name}.w1", f"{name}.w3"])
        self._w2 = parts.columns_part(f"{name}.w2")

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = self._w1_w3(x).chunk(2, dim=-1)  # [rows, ffn] each
        return self._w2(F.silu(gate).mul_(up))


class Experts:
    """Each token by the few experts that a router finds most likely, weighted by how likely."""

    def __init__(self, parts: Parts, layer: int) -> None:
        config, name = parts.config, f"model.layers.{layer}.block_sparse_moe"
        self._ranks = parts.ranks
        self._num_chosen = config.experts_per_token
        self._router = parts.linear(f"{name}.gate")
        self._experts = [
            Expert(parts, f"{name}.experts.{expert}") for expert in range(config.num_experts)
        ]

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """As `FeedForward.add_to`."""
        if not len(x):  # no row of the last layer is wanted
            return
        likelihoods = self._router(x).float().softmax(-1)  # [tokens, experts]
        shares, chosen = likelihoods.topk(self._num_chosen, dim=-1)
        shares /= shares.sum(-1, keepdim=True)
        results = self._grouped(x, chosen) * shares.unsqueeze(-1)
        residual += self._ranks.sum(results.sum(1).to(x.dtype))

    def _grouped(self, x: Tensor, chosen: Tensor) -> Tensor:
        """What the experts chosen [tokens, k] make of x [tokens, hidden]: [tokens, k, hidden].

        Pairs of token and expert are sorted by expert: one product for each that has tokens.
        """
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self._experts)).tolist()
        groups = x.index_select(0, order // self._num_chosen).split(counts)
        made = [
            expert(group) for expert, group in zip(self._experts, groups, strict=True) if len(group)
        ]
        results = torch.empty(len(order), x.shape[-1], dtype=x.dtype, device=x.device)
        results.index_copy_(0, order, torch.cat(made))
        return results.view(*chosen.shape, -1)


class Mixtral(Llama):
    """embed -> layers -> norm -> head, with experts in the layers."""

    @staticmethod
    def feed_forward(parts: Parts, layer: int) -> FeedForward:
        """As `Llama.feed_forward`."""
        return Experts(parts, layer)
