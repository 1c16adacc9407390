"""The Mixtral decoder: Llama's, with a mixture of experts in place of one feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from ....kernels.backend import FusedMoE
from .llama import FeedForward, Llama, Matrices
from .parts import Parts

# For x [tokens, hidden] the sum of what its likeliest experts by router logits [tokens, experts]
# make: added to a total [tokens, hidden], or a new tensor of x's dtype; of each rank its part.
Experts: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Expert:
    """w2(silu(w1(x)) * w3(x)), w1 and w3 by one product."""

    def __init__(self, parts: Parts, name: str) -> None:
        self._w1_w3 = parts.split_rows([f"{name}.w1", f"{name}.w3"])
        self._w2 = parts.columns_part(f"{name}.w2")
        self._silu_mul = parts.rows.silu_mul

    def __call__(self, x: Tensor) -> Tensor:
        return self._w2(self._silu_mul(self._w1_w3(x)))  # [rows, ffn] between


class SortedExperts:
    """Pairs of token and expert are sorted by expert: one product for each that has tokens."""

    def __init__(self, parts: Parts, names: list[str], top_k: int) -> None:
        self._experts, self._top_k = [Expert(parts, name) for name in names], top_k

    def __call__(self, x: Tensor, router_logits: Tensor, total: Tensor | None = None) -> Tensor:
        likelihoods = router_logits.float().softmax(-1)  # [tokens, experts]
        topk_weights, topk_ids = likelihoods.topk(self._top_k, dim=-1)
        topk_weights /= topk_weights.sum(-1, keepdim=True)
        made = (self._grouped(x, topk_ids) * topk_weights.unsqueeze(-1)).sum(1).to(x.dtype)
        return made if total is None else total.add_(made)

    def _grouped(self, x: Tensor, topk_ids: Tensor) -> Tensor:
        """[tokens, k, hidden]."""
        order = topk_ids.flatten().argsort(stable=True)
        counts = topk_ids.flatten().bincount(minlength=len(self._experts)).tolist()
        groups = x.index_select(0, order // topk_ids.shape[1]).split(counts)
        made = [
            expert(group) for expert, group in zip(self._experts, groups, strict=True) if len(group)
        ]
        results = torch.empty(len(order), x.shape[-1], dtype=x.dtype, device=x.device)
        results.index_copy_(0, order, torch.cat(made))
        return results.view(*topk_ids.shape, -1)


class StackedExperts:
    """All by one launch for each product, and no number of tokens leaves the device."""

    def __init__(self, parts: Parts, names: list[str], top_k: int, fused_moe: FusedMoE) -> None:
        self._fused_moe, self._top_k = fused_moe, top_k
        self._w1 = parts.stacked_rows([(f"{name}.w1", f"{name}.w3") for name in names])
        self._w2 = parts.stacked_columns([f"{name}.w2" for name in names])

    def __call__(self, x: Tensor, router_logits: Tensor, total: Tensor | None = None) -> Tensor:
        return self._fused_moe(x, self._w1, self._w2, router_logits, self._top_k, total)


class Mixture:
    """Each token by the few experts that a router finds most likely, weighted by how likely."""

    num_sums = 1

    def __init__(self, parts: Parts, layer: int) -> None:
        config, name = parts.config, f"model.layers.{layer}.block_sparse_moe"
        names = [f"{name}.experts.{expert}" for expert in range(config.num_experts)]
        fused_moe = parts.rows.fused_moe
        self._ranks = parts.ranks
        self._router = parts.linear(f"{name}.gate")
        self._experts: Experts = (
            SortedExperts(parts, names, config.experts_per_token)
            if fused_moe is None
            else StackedExperts(parts, names, config.experts_per_token, fused_moe)
        )

    @property
    def matrices(self) -> Matrices:
        """As `FeedForward.matrices`."""
        return None, None

    def add_to(self, residual: Tensor, x: Tensor) -> None:
        """As `FeedForward.add_to`."""
        if not len(x):  # no row of the last layer is wanted
            return
        router_logits = self._router(x)
        if self._ranks.size == 1:
            self._experts(x, router_logits, residual)
        else:
            residual += self._ranks.sum(self._experts(x, router_logits, None))


class Mixtral(Llama):
    """embed -> layers -> norm -> head, with experts in the layers."""

    @staticmethod
    def feed_forward(parts: Parts, layer: int) -> FeedForward:
        """As `Llama.feed_forward`."""
        return Mixture(parts, layer)
