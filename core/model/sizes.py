"""What a runtime must know of a model, whoever's code it runs by. Knows no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
STAGING_BYTES = 64 << 20  # of a device, for keys and values on their way to the host or back


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes(ABC):
    """The sizes of one decoder model.

    num_layers, num_kv_heads, head_dim: of what is cached; head_dim is the wider one of keys and
      values where these differ.
    context_len: positions of a sequence: those the model was made for, or fewer.
    is_length_assumed: the checkpoint does not state how many it was made for.
    dtype: of the stored weights.
    eos_ids: tokens that end an answer, in the checkpoint's order.
    feature_size: numbers of a picture's feature. tower_numbers: those that exist of a token at a
      time in the tower that makes these. 0 where pictures are not taken.
    """

    architecture: str
    vocabulary_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    context_len: int
    dtype: str
    bos_id: int | None
    eos_ids: tuple[int, ...]
    is_length_assumed: bool = False
    feature_size: int = 0
    tower_numbers: int = 0

    @property
    @abstractmethod
    def path(self) -> str:
        """Whose code it runs by, in words."""

    @property
    def group(self) -> int:
        """Query heads that share a head of keys and values, where that is known."""
        return 1

    @abstractmethod
    def num_parameters(self) -> int:
        """Numbers that the checkpoint holds, a tied output matrix counted once."""

    def kv_bytes_per_token(self, dtype: str) -> int:
        """Bytes of one slot over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * DTYPE_BYTES[dtype]
