"""Which attention, sampler and decoder backend a device has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..core.api.protocol import InvalidCall
from .backend import DecoderBackend
from .cpu.decoder.fused import CpuBackend
from .cpu.decoder.layerwise import LayerwiseBackend
from .cpu.linear.rows import PlainRows
from .gpu.launch import is_interpreted
from .interface import Attention
from .plain import PlainAttention

AUTO = "auto"


class Pool(NamedTuple):
    """What attention must know of a pool: device, dtype and slots; and of the queries: how
    many heads of them each head of keys serves."""

    device: torch.device
    dtype: torch.dtype
    num_slots: int
    num_kv_heads: int
    dim: int
    group: int = 1


class DeviceSampler(Protocol):
    """Samples tokens on the device of the logits, without waiting for them."""

    def __call__(
        self,
        logits: Tensor,
        temperatures: Tensor,
        top_ks: Tensor,
        top_ps: Tensor,
        min_ps: Tensor,
        numbers: Tensor,
    ) -> Tensor:
        """A token for each row of logits [N, vocabulary] (float32, left as they are): new [N]
        int32; -1 where a row has NaN or infinity, or allows nothing.

        temperatures, top_ps, min_ps: [N] float32; temperature 0 is greedy. top_ks: [N] int32, <= 0
        is off. numbers: [N] float64 in [0, 1), the random number of each row.
        """


def _cpu(pool: Pool) -> Attention:
    from .cpu.attention.attention import CpuAttention
    from .cpu.attention.decode import can_read
    from .cpu.attention.trial import is_attention_right

    if can_read(pool.dtype):
        attention = CpuAttention(pool.dtype, pool.dim)
        if is_attention_right(attention, pool.dtype, pool.num_kv_heads, pool.dim, pool.group):
            return attention
    return PlainAttention(pool.device)


def _deterministic(pool: Pool) -> Attention:
    from .cpu.attention.decode import can_read
    from .cpu.attention.deterministic import DeterministicAttention

    if not can_read(pool.dtype):
        raise InvalidCall("deterministic", True, "False: no loops can be compiled here")
    return DeterministicAttention(pool.dtype)


def _triton(pool: Pool) -> Attention:
    from .gpu.attention.attention import GpuAttention

    return GpuAttention(
        pool.device, pool.num_kv_heads, pool.dtype, pool.group, spare=pool.num_slots
    )


def _flashinfer(pool: Pool) -> Attention:
    from .gpu.attention.flashinfer import FlashInferAttention

    heads = pool.group * pool.num_kv_heads
    sizes = heads, pool.num_kv_heads, pool.dim
    return FlashInferAttention(pool.device, *sizes, pool.dtype, num_slots=pool.num_slots)


def _triton_sampler() -> DeviceSampler:
    from .gpu.sampler import sample_tokens

    return sample_tokens


def _flashinfer_sampler() -> DeviceSampler:
    from .gpu.flashinfer_sampler import FlashInferSampler

    return FlashInferSampler()


def _triton_backend(device: torch.device) -> DecoderBackend:
    from .gpu.rows import GpuRows

    return LayerwiseBackend(device, GpuRows())


BACKENDS: Mapping[str, Callable[[torch.device], DecoderBackend]] = MappingProxyType(
    {
        "cpu": lambda device: CpuBackend(),
        "plain": lambda device: LayerwiseBackend(device, PlainRows()),
        "triton": _triton_backend,
    }
)
KINDS: Mapping[str, Callable[[Pool], Attention]] = MappingProxyType(
    {
        "cpu": _cpu,
        "deterministic": _deterministic,
        "plain": lambda pool: PlainAttention(pool.device),
        "triton": _triton,
        "flashinfer": _flashinfer,
    }
)
SAMPLERS: Mapping[str, Callable[[], DeviceSampler | None]] = MappingProxyType(
    {"plain": lambda: None, "triton": _triton_sampler, "flashinfer": _flashinfer_sampler}
)
_NEEDS = MappingProxyType({"triton": "triton", "flashinfer": "flashinfer"})


def attention_for(pool: Pool, kind: str = AUTO) -> Attention:
    """The attention of a kind over a pool; "auto" is the quickest that its device has, and
    "module:Factory" what this factory makes of the pool.

    Raises InvalidCall for a kind that there is not, or not here.
    """
    if kind == AUTO:
        return KINDS[_best(pool.device)](pool)
    if ":" in kind:
        attention: Attention = _from_factory("attention", kind, pool)
        return attention
    if kind not in KINDS or not _is_here(kind, pool.device):
        here = [name for name in KINDS if _is_here(name, pool.device)]
        raise InvalidCall("attention", kind, f"{AUTO}, {', '.join(here)}")
    return KINDS[kind](pool)


def sampler_for(device: torch.device, kind: str = AUTO) -> DeviceSampler | None:
    """How tokens are sampled on a device: by kernels of a kind, "triton" or "flashinfer"; None for
    "plain": by torch's or numba's, which wait for the logits; "auto" is the fastest that gives a
    seed the same tokens in any batch; on a GPU "module:Factory": what this factory makes. Raises
    InvalidCall for a kind that does not exist, or not here."""
    if kind == AUTO:
        kind = _best(device) if device.type == "cuda" else "plain"
    if ":" in kind and device.type == "cuda":
        sampler: DeviceSampler = _from_factory("sampling", kind)
        return sampler
    if kind not in SAMPLERS or not _is_here(kind, device):
        here = [name for name in SAMPLERS if _is_here(name, device)]
        raise InvalidCall("sampling", kind, f"{AUTO}, {', '.join(here)}")
    return SAMPLERS[kind]()


def backend_for(device: torch.device, kind: str = AUTO) -> DecoderBackend:
    """What computes a decoder on a device, but for attention: "cpu", "plain" (torch's operators
    layer by layer) or "triton"; "auto" is the fastest that the device has. Raises InvalidCall for a
    kind that does not exist, or not here."""
    if kind == AUTO:
        kind = _best(device)
    if kind not in BACKENDS or not _is_here(kind, device):
        here = [name for name in BACKENDS if _is_here(name, device)]
        raise InvalidCall("backend", kind, f"{AUTO}, {', '.join(here)}")
    return BACKENDS[kind](device)


def has_triton(device: torch.device) -> bool:
    """Whether Triton's kernels run there."""
    return _is_here("triton", device)


def _from_factory(field: str, path: str, *given: Any) -> Any:
    """What the factory at this import path makes. Raises InvalidCall for the field."""
    try:
        return EntryPoint(field, path, "").load()(*given)
    except Exception as error:
        allowed = f"a factory of {field} that works here ({error!r})"
        raise InvalidCall(field, path, allowed) from error


def _best(device: torch.device) -> str:
    if device.type == "cpu":
        return "cpu"
    return "triton" if _is_here("triton", device) else "plain"


def _is_here(kind: str, device: torch.device) -> bool:
    """Whether this device can run it and its package is installed. Triton's kernels run on a CPU
    where its interpreter is asked for, in tests."""
    if kind in _NEEDS:
        can_run = device.type == "cuda" or (kind == "triton" and is_interpreted())
        return can_run and find_spec(_NEEDS[kind]) is not None
    return kind == "plain" or device.type == "cpu"


def why_no_gpu() -> str:
    """Why torch sees none, for who asked for one."""
    version = f"torch {torch.__version__}"
    if torch.version.cuda is None:
        return f"{version} was built without CUDA; install a CUDA build to use a GPU"
    return f"{version} has CUDA {torch.version.cuda} and sees no GPU (nvidia-smi shows those here)"
