"""Which loops a model requires on this CPU: those that are compiled before its first call. Loops
that only some calls use (the intermediate steps of sampling, for log-probabilities and speculation)
are compiled by the first of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ..attention.decode import can_read, uses_amx
from ..attention.extend import has_longer_loops
from ..jit.loops import LOOPS, Loop
from ..linear.half_precision import is_multiplied
from ..linear.linear import has_bf16_loops

_TRIAL = ("rows.normalize",)  # of `jit.can_compile`
_SAMPLING = ("sampler.greedy", "sampler.sample", "masks._apply_mask", "masks._argmax")
_STEPS = "rows.apply_rotary", "rows.silu_mul"  # of layers not fused, or shared by threads


@dataclass(frozen=True, slots=True)
class LoopRequirements:
    """What the loops of a model depend on.

    dtype: that it is run in. stored: of the checkpoint's weights. dim: of a head. is_own: computed
    by the layers of this package. is_fused: all layers by one call (`fused`). is_read_in_place: by
    attention for a CPU.
    """

    dtype: str
    stored: str
    dim: int
    is_own: bool
    is_fused: bool
    is_read_in_place: bool


def required_loops(requirements: LoopRequirements) -> tuple[Loop, ...]:
    """The loops that such a model requires."""
    names = set(_names(requirements))
    return tuple(loop for loop in LOOPS if {loop.name, f"{loop.name}:{loop.signature}"} & names)


def _names(requirements: LoopRequirements) -> Iterator[str]:
    """Names of loops; of a loop with several signatures, with the one required."""
    from ..jit import amx

    yield from _TRIAL + _SAMPLING
    has_amx, dtype = amx.can_multiply(), requirements.dtype
    if requirements.is_read_in_place and can_read(getattr(torch, dtype)):
        yield from _attention(dtype, requirements.dim, has_amx)
    if not requirements.is_own:
        return
    is_converted = dtype != "float32" and not is_multiplied(getattr(torch, dtype))
    # as `linear.row_dtype`
    is_single = dtype == "float32" or (dtype == "bfloat16" and (has_bf16_loops() or is_converted))
    is_fused = is_single and requirements.is_fused
    if is_single:
        yield from _STEPS
    if is_fused:
        is_amx = dtype == "bfloat16" and uses_amx(torch.bfloat16, requirements.dim)
        yield "blocks.layers" if dtype == "float32" else f"blocks.layers_bf16{'_amx' * is_amx}"
        yield "blocks.end"
        if not has_longer_loops(getattr(torch, dtype)):
            yield f"blocks.extend_{'f32' if dtype == 'float32' else 'bf16'}"
    if is_single or is_converted:
        if dtype == "bfloat16" and not has_amx and has_bf16_loops():
            yield "bf16_pairs.multiply"
            yield from ("entries.packed_pairs",) if is_fused else ()
            return
        stored = requirements.stored if dtype == "float32" else dtype
        yield from _linear(stored, has_amx, is_fused)


def _attention(dtype: str, dim: int, has_amx: bool) -> Iterator[str]:
    """Of keys and values of such numbers."""
    from ..loops import int8_split

    yield "unshared_rows.plan"
    for module, name in (
        ("slots", "write"),
        ("extend_attention", "attend"),
    ):
        yield f"{module}.{name}:{module}.SIGNATURES.{dtype}"
    if uses_amx(getattr(torch, dtype), dim):
        yield "amx_decode_attention.attend"
    else:
        yield f"decode_attention.attend:decode_attention.SIGNATURES.{dtype}"
    if dtype == "bfloat16" and has_amx:
        yield "bf16_extend_attention.attend"
    if dtype == "float32" and int8_split.can_multiply():
        yield "int8_extend_attention.attend"


def _linear(stored: str, has_amx: bool, is_fused: bool) -> Iterator[str]:
    """Of float32 rows and weights that were stored as such numbers."""
    if stored != "float32" and has_amx:
        yield "bf16x3.multiply"
        yield from ("entries.bf16x3_linear", "fused_mlp.feed_forward") if is_fused else ()
        return
    is_bf16 = stored == "bfloat16"
    yield f"packed_linear.multiply:packed_linear.{'BF16_' if is_bf16 else ''}SIGNATURE"
    if is_fused:
        yield "entries.packed_bf16" if is_bf16 else "entries.packed_f32"
