"""The interface between the runner and any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from ...kernels.interface import Attention
from ..api.batch import Ints
from ..api.media import Pixels
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


class Tower(Protocol):
    """The part of a model that makes features of pictures, in the model's dtype and on its
    device."""

    def encode(self, pixels: Sequence[Pixels], units: Sequence[range]) -> list[list[Tensor]]:
        """Of some units of each picture what the tower makes of them, each alone."""

    def features(self, pixels: Pixels, units: Sequence[Tensor]) -> Tensor:
        """[features, width] of a picture, from all its units in order. width: a multiple of the
        hidden size; what is behind that goes to layers, see `Spliced`."""


@runtime_checkable
class VisionModel(Model, Protocol):
    """A decoder whose inputs may hold features of pictures."""

    @property
    def tower(self) -> Tower | None:
        """What makes them; None: it takes text alone."""
