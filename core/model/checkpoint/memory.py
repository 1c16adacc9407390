"""How much memory a model's weights take, and how much of a GPU's its steps need beside weights and
pool. Knows no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..config import ModelConfig
from ..sizes import DTYPE_BYTES, STAGING_BYTES, Sizes
from ..step_sizes import EXTEND_SIZES, num_graphs

FIXED = 768 << 20  # workspaces of libraries, compiled kernels, what torch cannot use of its blocks
WORKSPACES = 512 << 20  # of FlashInfer
PLAN_BYTES = 8 << 20  # of each plan of a wrapper of FlashInfer
NUM_PLANS = 5  # of a window: decode, prefill and roots, and recorded decode and roots
MAX_LISTED = 1 << 24  # slots of a recorded step, see `FlashInferAttention`
BLAS_WORKSPACE = 32 << 20  # of cuBLAS for a stream, on Hopper
LAUNCHES = 256 << 10  # a layer's launches in a recorded step, and their arguments
SCORED_ROWS = 256  # rows of logits that exist at a time where tokens are scored
SCORED_BYTES = 18  # of a logit there: half precision, float32, and float64 for answers
SAMPLING_BYTES = (
    34  # where tokens are sampled: changed and masked copies too, log-masses in float64
)
PROGRAMS = 320  # that fill the largest GPU
TILE = 128  # rows of a tile of queries, of shared prefixes or of extends
READS = 9  # partial results of a token on average: its own keys, and `ROOT_READS`
PLAN_NUMBERS = 32  # of each token of a recorded step: its ids and work items


@dataclass(frozen=True, slots=True)
class Load:
    """The largest steps. chunk_tokens: prompt tokens of one. max_running: sequences of one.
    has_graphs: whether steps are recorded. has_host: whether tokens are copied to a host tier.
    context_len: tokens of a sequence; 0: as many as the model has. tower_tokens: of a tower."""

    chunk_tokens: int
    max_running: int
    has_graphs: bool = True
    has_flashinfer: bool = False
    has_host: bool = False
    context_len: int = 0
    tower_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GraphBytes:
    """Memory of recorded steps. buffers: logits, hidden states and plans, which all of them share.
    transient: what the largest needs while it runs; the others use the same memory. launches: of
    all of them, which grow with their number, and the workspace of the stream that records."""

    buffers: int
    transient: int
    launches: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.buffers + self.transient + self.launches


def working_bytes(sizes: Sizes, dtype: str, load: Load, num_ranks: int = 1) -> int:
    """Bytes on each of so many ranks: an estimate from above, for steps as large as they may be.
    What does not do all the same is computed in pieces (`ModelRunner.launch`)."""
    row_bytes = max(load.max_running * SAMPLING_BYTES, SCORED_ROWS * SCORED_BYTES)
    total = FIXED + row_bytes * sizes.vocabulary_size
    num_tokens = load.chunk_tokens + load.max_running
    total += num_tokens * _numbers_per_token(sizes, num_ranks) * DTYPE_BYTES[dtype]
    total += _partial_bytes(sizes, load.max_running, num_ranks)
    total += load.tower_tokens * sizes.tower_numbers * DTYPE_BYTES[dtype]
    context_len = load.context_len or sizes.context_len
    total += (load.max_running + 1) * context_len * 4  # the slot table
    if load.has_graphs and isinstance(sizes, ModelConfig):  # others' code is not recorded
        total += graph_bytes(sizes, dtype, load.max_running, num_ranks).total
    total += STAGING_BYTES if load.has_host else 0
    return total + (flashinfer_bytes(sizes, load) if load.has_flashinfer else 0)


def flashinfer_bytes(sizes: Sizes, load: Load) -> int:
    """What attention by FlashInfer keeps beside all else."""
    windows = set(sizes.windows) if isinstance(sizes, ModelConfig) else {None}
    listed = min(load.max_running * (load.context_len or sizes.context_len), MAX_LISTED)
    lists = len(windows) + (None in windows)  # of roots too
    return WORKSPACES + len(windows) * NUM_PLANS * PLAN_BYTES + lists * 4 * listed


def largest_load(
    sizes: Sizes, dtype: str, loads: Iterable[Load], free: int, pool: int | None, num_ranks: int
) -> Load:
    """The first of some loads, from the largest to the smallest, that leaves the pool enough of the
    `free` bytes beside the weights: so many, or None: half of them. Else the last."""
    wanted = free // 2 if pool is None else pool
    for load in loads:
        if free - working_bytes(sizes, dtype, load, num_ranks) >= wanted:
            break
    return load


def graph_bytes(sizes: ModelConfig, dtype: str, max_running: int, num_ranks: int = 1) -> GraphBytes:
    """Memory of the recorded steps of up to `max_running` sequences, on each of so many ranks,
    beside that of `working_bytes` without graphs."""
    num_bytes, num_tokens = DTYPE_BYTES[dtype], max(max_running, *EXTEND_SIZES)
    logits = max_running * sizes.vocabulary_size
    plans = (num_tokens + PROGRAMS) * PLAN_NUMBERS * 4 * len(set(sizes.windows))
    layers = num_tokens * _numbers_per_token(sizes, num_ranks) * num_bytes
    layers += _partial_bytes(sizes, num_tokens, num_ranks)
    return GraphBytes(
        buffers=logits * 4 + num_tokens * sizes.hidden_size * num_bytes + plans,
        transient=layers + logits * (4 + num_bytes),
        launches=num_graphs(max_running) * sizes.num_layers * LAUNCHES + BLAS_WORKSPACE,
    )


def _partial_bytes(sizes: Sizes, num_decodes: int, num_ranks: int) -> int:
    """Partial attention results of a step: of programs that share a token's keys, or read a prefix
    for several tokens, and of what each token reads (`Planner.capacity`)."""
    rows = PROGRAMS * (sizes.group + 2 * TILE)
    rows += READS * num_decodes * sizes.num_kv_heads * sizes.group // num_ranks
    return rows * (sizes.head_dim + 1) * 4


def _numbers_per_token(sizes: Sizes, num_ranks: int) -> int:
    """Numbers that exist of a token at a time, inside a layer."""
    if not isinstance(sizes, ModelConfig):  # others' code: by how wide such a layer would be
        return 24 * math.isqrt(sizes.num_parameters() // sizes.num_layers)
    attention = (2 * sizes.num_heads + 2 * sizes.num_kv_heads) * sizes.head_dim
    ffn = (sizes.experts_per_token or 3) * sizes.ffn_size  # experts make no gate and up
    results = (4 + sizes.experts_per_token) * sizes.hidden_size
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
