"""Samples tokens by FlashInfer's sampling kernels (0.6.14 to 0.7.2).

These take one seed for a call and distinguish rows by their index: up to 0.7.1 their kernels read
the first of the seeds that they are given, and no other. So what a row gets depends on the rows
beside it: the same batch samples the same tokens again, and so does a single row, but a seed
does not fix a call's answer within a batch. Greedy rows are as everywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor


class FlashInferSampler:
    """The `DeviceSampler` of FlashInfer. library: the module itself. Raises ImportError where it is
    not installed."""

    def __init__(self, library: Any = None) -> None:
        self._library = library or import_module("flashinfer.sampling")

    def __call__(
        self,
        logits: Tensor,
        temperatures: Tensor,
        top_ks: Tensor,
        top_ps: Tensor,
        min_ps: Tensor,
        numbers: Tensor,
    ) -> Tensor:
        """As `DeviceSampler`; numbers: together they are the seed."""
        highest, greedy_ids = logits.max(-1)  # NaN where a row has one
        is_sound, is_greedy = highest.isfinite(), temperatures <= 0
        sound = torch.where(is_sound[:, None], logits, 0.0)
        size, lib = logits.shape[1], self._library
        probs = lib.softmax(sound, torch.where(is_greedy, 1.0, temperatures))
        is_cut = (top_ks > 0) & (top_ks < size)
        probs = lib.top_k_renorm_probs(probs, torch.where(is_cut, top_ks, size))
        probs = lib.top_p_renorm_probs(probs, top_ps, is_deterministic=True)
        seed = numbers.view(torch.int64).sum(0, keepdim=True)
        tokens = lib.min_p_sampling_from_probs(
            probs, min_ps, deterministic=True, seed=seed, offset=torch.zeros_like(seed)
        )
        tokens = torch.where(is_greedy, greedy_ids.int(), tokens.int())
        return torch.where(is_sound, tokens, -1)
