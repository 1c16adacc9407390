"""How much memory a model's weights take, and how much of a GPU's its steps need beside weights and
pool. Knows no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..config import ModelConfig
from ..sizes import DTYPE_BYTES, Sizes

FIXED = 768 << 20  # workspaces of libraries, compiled kernels, what torch cannot use of its blocks
WORKSPACES = 512 << 20  # of FlashInfer
GRAPH_BYTES = 16 << 20
SCORED_ROWS = 256  # rows of logits that exist at a time where tokens are scored
SCORED_BYTES = 18  # of a logit there: half precision, float32, and float64 for answers
SAMPLING_BYTES = (
    34  # where tokens are sampled: changed and masked copies too, log-masses in float64
)
LEVEL_ROWS = 8192  # see `Planner.splits`
ROOT_LEVELS = 32


@dataclass(frozen=True, slots=True)
class Load:
    """The largest steps. chunk_tokens: prompt tokens of one. max_running: sequences of one.
    has_graphs: whether those of single tokens are recorded."""

    chunk_tokens: int
    max_running: int
    has_graphs: bool = True
    has_flashinfer: bool = False


def working_bytes(sizes: Sizes, dtype: str, load: Load, num_ranks: int = 1) -> int:
    """Bytes on each of so many ranks: an estimate from above, for steps as large as they may be.
    What does not do all the same is computed in pieces (`ModelRunner.launch`)."""
    num_tokens = load.chunk_tokens + load.max_running
    row_bytes = max(load.max_running * SAMPLING_BYTES, SCORED_ROWS * SCORED_BYTES)
    total = FIXED + row_bytes * sizes.vocabulary_size
    total += num_tokens * _numbers_per_token(sizes, num_ranks) * DTYPE_BYTES[dtype]
    levels = max(LEVEL_ROWS, num_tokens) + ROOT_LEVELS * load.max_running
    total += levels * sizes.num_kv_heads * sizes.group * sizes.head_dim // num_ranks * 4
    if load.has_graphs:
        num_graphs = 2 * (load.max_running // 8 + 4)
        states = load.max_running * _numbers_per_token(sizes, num_ranks) * DTYPE_BYTES[dtype]
        logits = load.max_running * sizes.vocabulary_size * (4 + DTYPE_BYTES[dtype])
        total += num_graphs * GRAPH_BYTES + states + logits
    return total + (WORKSPACES if load.has_flashinfer else 0)


def _numbers_per_token(sizes: Sizes, num_ranks: int) -> int:
    """Numbers that exist of a token at a time, inside a layer."""
    if not isinstance(sizes, ModelConfig):  # others' code: by how wide such a layer would be
        return 24 * math.isqrt(sizes.num_parameters() // sizes.num_layers)
    attention = (2 * sizes.num_heads + 2 * sizes.num_kv_heads) * sizes.head_dim
    ffn = 3 * sizes.ffn_size * max(sizes.experts_per_token, 1)
    results = 4 * sizes.hidden_size * max(2 * sizes.experts_per_token, 1)
    return results + (attention + ffn) // num_ranks


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
