"""The interface between the runner and any model."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ...kernels.interface import Attention
from ..api.batch import Ints
from .inputs import Inputs
from .pool import KVPool
from .sizes import Sizes


class Model(Protocol):
    """A decoder whose keys and values lie in a pool."""

    @property
    def config(self) -> Sizes:
        """Its sizes."""

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The different sliding windows of its layers, for which inputs carry plans."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights, and so of keys and values."""

    @property
    def device(self) -> torch.device:
        """Where its weights are."""

    def hidden(self, inputs: Inputs, pool: KVPool, attention: Attention) -> Tensor:
        """Last hidden states [rows, hidden] of the wanted tokens; KV of all goes to the pool."""

    def logits(
        self, hidden: Tensor, allowed: Ints | None = None, out: Tensor | None = None
    ) -> Tensor:
        """Logits [rows, vocabulary] in float32 of hidden states [rows, hidden]; into `out` or new
        memory. With several ranks each must ask for the same rows; those after the first get [rows,
        0]. allowed: packed bits, 32 tokens a word, of those whose logits are wanted; others' may be
        any finite number."""


@runtime_checkable
class RankedModel(Model, Protocol):
    """A decoder that several ranks can share."""

    def sum_rows(self, num_tokens: int, num_wanted: int) -> list[int]:
        """The number of rows of each sum over all ranks in one pass, in order; sums of no rows do
        not take place. num_tokens, num_wanted: of the inputs."""
