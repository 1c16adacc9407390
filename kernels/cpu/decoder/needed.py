"""Which loops a model needs on this CPU: those that are compiled before its first call. Loops that
only some calls use (the steps on the way to a draw, for log-probabilities and speculation) are
compiled by the first of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from ..jit.loops import LOOPS, Loop
from ..linear.half_precision import is_multiplied

_TRIAL = ("norms.normalize",)  # of `jit.can_compile`
_SAMPLING = ("draws.likeliest", "draws.draw", "masks._hide", "masks._find")
_STEPS = ("turns.turn", "gates.silu_mul")  # of layers that are not fused, or shared by threads


@dataclass(frozen=True, slots=True)
class Needs:
    """What the loops of a model depend on.

    dtype: that it is run in. stored: of the checkpoint's weights. is_own: computed by the layers of
    this package. is_fused: all layers by one call (`fused`). is_read_in_place: by attention for a
    CPU.
    """

    dtype: str
    stored: str
    is_own: bool
    is_fused: bool
    is_read_in_place: bool


def needed(needs: Needs) -> tuple[Loop, ...]:
    """The loops that such a model needs; none without numba."""
    if find_spec("numba") is None:
        return ()
    names = set(_names(needs))
    return tuple(loop for loop in LOOPS if {loop.name, f"{loop.name}:{loop.signature}"} & names)


def _names(needs: Needs) -> Iterator[str]:
    """Of loops; those with several signatures with the one that is needed."""
    from ..jit import amx

    yield from _TRIAL + _SAMPLING
    has_tiles, dtype = amx.can_multiply(), needs.dtype
    if needs.is_read_in_place and dtype != "float16":
        yield from _attention(dtype, has_tiles)
    if not needs.is_own:
        return
    is_converted = dtype != "float32" and not is_multiplied(getattr(torch, dtype))
    # as `products.row_dtype`
    is_single = dtype == "float32" or (dtype == "bfloat16" and (has_tiles or is_converted))
    is_fused = is_single and needs.is_fused
    if is_single:
        yield from _STEPS
    if is_fused:
        yield "blocks.layers" if dtype == "float32" else "blocks.layers_halved"
        yield "blocks.end"
    if is_single or is_converted:
        stored = needs.stored if dtype == "float32" else dtype
        yield from _products(stored, has_tiles, is_fused)


def _attention(dtype: str, has_tiles: bool) -> Iterator[str]:
    """Of keys and values of such numbers."""
    from ..loops import digits

    yield "strangers.plan"
    for module, name in (("slots", "write"), ("singles", "attend"), ("tiles", "attend")):
        yield f"{module}.{name}:{module}.SIGNATURES.{dtype}"
    if dtype == "bfloat16" and has_tiles:
        yield "bfloat_tiles.attend"
    if dtype == "float32" and digits.can_multiply():
        yield "digit_tiles.attend"


def _products(stored: str, has_tiles: bool, is_fused: bool) -> Iterator[str]:
    """Of float32 rows and weights that were stored as such numbers."""
    if stored != "float32" and has_tiles:
        yield "thirds.multiply"
        yield from ("entries.in_thirds", "chains.feed_forward") if is_fused else ()
        return
    is_halved = stored == "bfloat16"
    yield f"panels.multiply:panels.{'HALVED_' if is_halved else ''}SIGNATURE"
    if is_fused:
        yield "entries.halved" if is_halved else "entries.paneled"
