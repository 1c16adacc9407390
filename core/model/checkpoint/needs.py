"""How much memory a model's weights take, and how much of them a token uses. Knows no torch."""

from __future__ import annotations

from ..config import ModelConfig
from ..sizes import DTYPE_BYTES, Sizes


def weight_bytes(sizes: Sizes, dtype: str, device: str = "cpu") -> int:
    """Bytes that the weights take once they are loaded.

    Our own code on a CPU copies matrices into the order in which it reads them: in half precision
    where they are stored so, whatever they are computed in. A table of embeddings stays as it is
    beside the output matrix, also if these are tied.
    """
    if not isinstance(sizes, ModelConfig) or not device.startswith("cpu"):
        return sizes.num_parameters() * DTYPE_BYTES[dtype]
    table = sizes.vocabulary_size * sizes.hidden_size
    matrices = sizes.num_parameters() - table + (table if sizes.is_tied else 0)
    return table * DTYPE_BYTES[dtype] + matrices * number_bytes(sizes, dtype, device)


def number_bytes(sizes: Sizes, dtype: str, device: str = "cpu") -> int:
    """Bytes of a number in a matrix as it is held."""
    is_own = isinstance(sizes, ModelConfig) and device.startswith("cpu")
    if is_own and dtype == "float32" and sizes.dtype == "bfloat16":
        return DTYPE_BYTES["bfloat16"]
    return DTYPE_BYTES[dtype]


def matrix_parameters(sizes: Sizes, of_experts: int = 0, share: float = 1.0) -> tuple[int, int]:
    """How many numbers one token is multiplied with: where it is written, and where it is only
    read, without the output matrix. of_experts: numbers of experts. share: of these, in use."""
    active = sizes.num_parameters() - round(of_experts * (1 - share))
    if not isinstance(sizes, ModelConfig):
        return active, active
    table = sizes.vocabulary_size * sizes.hidden_size
    written = active if sizes.is_tied else active - table
    return written, written - table
