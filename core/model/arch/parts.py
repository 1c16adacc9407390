"""Makes a model's layers from its stored weights: fused where one product can do for several, and
of every matrix that is shared out only this rank's part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from ....kernels.backend import DecoderBackend, LinearKernel, Norm
from ..config import ModelConfig
from ..parallel import Ranks
from .balance import balance
from .layers import Embedding, Linear, SharedEmbedding, SharedHead, SummedLinear
from .rotary import RotaryEmbedding


class Weights(Protocol):
    """Stored tensors by name; each is read once."""

    def take(self, name: str) -> Tensor:
        """Read one tensor."""

    def take_part(self, name: str, dim: int, part: slice) -> Tensor:
        """Read a part of its rows (dim 0) or columns (dim 1) only."""


class Parts:
    """Layers by the names that their weights have in the checkpoint. backend: what computes
    them."""

    def __init__(
        self, config: ModelConfig, weights: Weights, ranks: Ranks, backend: DecoderBackend
    ) -> None:
        self.config = config
        self.ranks = ranks
        self.rows = backend.rows
        self._backend = backend
        self._weights = weights
        self._shapes = config.weight_shapes()

    def embedding(self, name: str) -> Embedding:
        """The table of tokens, of which each rank has some rows."""
        weight = self._vocabulary_part(f"{name}.weight")
        dtype = self._backend.row_dtype(weight.dtype)
        if self.ranks.size == 1:
            return Embedding(weight, dtype)
        return SharedEmbedding(weight, dtype, self.ranks.rank * len(weight), self.ranks)

    def norm(self, name: str) -> Norm:
        weight = self._for_rows(self._weights.take(f"{name}.weight"))
        return self.rows.norm(weight, self.config.norm_eps)

    def attention(self, name: str) -> tuple[Linear, Norm | None, Linear]:
        """Queries, keys and values of all heads, one after another; the norm of each head of
        queries and keys, if there is one; and the output. Of each this rank's part, and columns of
        like size, see `balance`."""
        config, names = self.config, [f"{name}.{part}_proj" for part in "qkv"]
        weight = self._joined(names, "weight", num_turned=2)
        bias = self._joined_bias(names, num_turned=2) if config.has_qkv_bias else None
        norms = self._head_norms(name) if config.has_head_norms else None
        out = self._part(f"{name}.o_proj.weight", dim=1)
        if out.dtype is torch.float32:  # others are not read as digits, and could overflow
            out = balance(weight, bias, norms, out, self.ranks.part(config.num_heads))
        out_bias = self._bias(f"{name}.o_proj") if config.has_output_bias else None
        return (
            Linear(self._backend.linear(weight), bias),
            None if norms is None else self.rows.norm(norms, config.norm_eps),
            SummedLinear.of(self._backend.linear(out), out_bias, self.ranks),
        )

    def _head_norms(self, name: str) -> Tensor:
        """Of each head of queries, then of keys: [heads, dim]."""
        counts = self.config.num_heads, self.config.num_kv_heads
        weights = [
            RotaryEmbedding.interleave(
                self._weights.take(f"{name}.{part}_norm.weight"), self.config.head_dim
            ).expand(self.ranks.part(count), -1)
            for part, count in zip("qk", counts, strict=True)
        ]
        return self._for_rows(torch.cat(weights))

    def head(self, name: str, embedding: Embedding) -> Linear | SharedHead:
        """The output matrix, of which each rank has some rows; the embedding's own if the model
        ties them."""
        is_tied = self.config.is_tied
        weight = embedding.weight if is_tied else self._vocabulary_part(f"{name}.weight")
        kernel, count = self._backend.linear(weight), self.config.vocabulary_size
        return Linear(kernel) if self.ranks.size == 1 else SharedHead(kernel, count, self.ranks)

    def linear(self, name: str) -> Linear:
        """A layer that every rank has whole."""
        return Linear(self._backend.linear(self._weights.take(f"{name}.weight")))

    def split_rows(self, names: Sequence[str], has_bias: bool = False) -> Linear:
        """One layer for several with the same input, whose outputs follow one another: of each
        this rank's part."""
        weight = self._joined(names, "weight")
        bias = self._joined_bias(names) if has_bias else None
        return Linear(self._backend.linear(weight), bias)

    def split_columns(self, name: str, has_bias: bool = False) -> Linear:
        """A layer whose input is what this rank's part of another gave; ranks add up."""
        bias = self._bias(name) if has_bias else None
        return SummedLinear.of(self.columns_part(name), bias, self.ranks)

    def columns_part(self, name: str) -> LinearKernel:
        """A product as in `split_columns`; the caller adds up."""
        return self._backend.linear(self._part(f"{name}.weight", dim=1))

    def stacked_rows(self, names: Sequence[Sequence[str]]) -> Tensor:
        """The matrices of several layers as of `split_rows` in one piece: [layers, out, in]."""
        return _stacked(len(names), (self._joined(each, "weight") for each in names))

    def stacked_columns(self, names: Sequence[str]) -> Tensor:
        """The matrices of several layers as of `columns_part` in one piece: [layers, out, in]."""
        return _stacked(len(names), (self._part(f"{name}.weight", dim=1) for name in names))

    def _joined(self, names: Sequence[str], kind: str, num_turned: int = 0) -> Tensor:
        """One below another; those of the first `num_turned` are brought into rotary order."""
        tensors = [self._part(f"{name}.{kind}", dim=0) for name in names]
        for i in range(num_turned):
            tensors[i] = RotaryEmbedding.interleave(tensors[i], self.config.head_dim)
        return torch.cat(tensors) if len(tensors) > 1 else tensors[0]

    def _joined_bias(self, names: Sequence[str], num_turned: int = 0) -> Tensor:
        return self._for_rows(self._joined(names, "bias", num_turned))

    def _bias(self, name: str) -> Tensor:
        return self._for_rows(self._weights.take(f"{name}.bias"))

    def _for_rows(self, vector: Tensor) -> Tensor:
        """A vector in the dtype of the rows to which it is applied."""
        return vector.to(self._backend.row_dtype(vector.dtype))

    def _vocabulary_part(self, name: str) -> Tensor:
        """This rank's rows of a table of all tokens, with zeros up to what it has room for."""
        if self.ranks.size == 1:
            return self._weights.take(name)
        count = self._shapes[name][0]
        weight = self._weights.take_part(name, 0, self.ranks.block(count))
        missing = self.ranks.block_len(count) - len(weight)
        return torch.nn.functional.pad(weight, (0, 0, 0, missing)) if missing else weight

    def _part(self, name: str, dim: int) -> Tensor:
        if self.ranks.size == 1:
            return self._weights.take(name)
        return self._weights.take_part(name, dim, self.ranks.share(self._shapes[name][dim]))


def _stacked(count: int, tensors: Iterator[Tensor]) -> Tensor:
    """`count` tensors as one, filled as they come, so that only one of them exists twice."""
    first = next(tensors)
    stack = first.new_empty((count, *first.shape))
    stack[0] = first
    for index, tensor in enumerate(tensors, 1):
        stack[index] = tensor
    return stack
