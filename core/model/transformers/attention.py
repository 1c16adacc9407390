"""How attention in transformers' modelling code is answered by our kernels.

A seat is taken for one forward pass; every attention of every layer comes to who sits there. Code
that asks by `AttentionInterface` names its layer. Older code calls torch's own attention function,
which is caught; its layers are counted. Knows no checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ....kernels.interface import Attention
from ..inputs import Inputs
from ..pool import KVPool

NAME = "forkroot"  # of our attention, in transformers; its layers are given no masks
TRIAL = "forkroot_trial"  # the same while a model is tried; masks say what they hide


class Asked(NamedTuple):
    """One layer's attention. layer: its number; None: it has none, and `module` says who asks.

    q: [heads, tokens, dim]. k, v: [kv_heads, tokens, dim]. options: what else was said, without
    what is None.
    """

    layer: int | None
    module: str
    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    mask: Tensor | None
    is_causal: bool
    options: Mapping[str, Any]


class Seat(Protocol):
    """Answers attention."""

    def attend(self, asked: Asked) -> Tensor:
        """A new [tokens, heads, dim of v]."""


_seat: ContextVar[Seat] = ContextVar("forkroot_seat")


@contextmanager
def seated(seat: Seat, is_caught: bool) -> Iterator[None]:
    """Let `seat` answer the attention of one forward pass in this thread; is_caught: calls of
    torch's own attention function, too."""
    token = _seat.set(seat)
    try:
        if is_caught:
            with _Catcher(seat):
                yield
        else:
            yield
    finally:
        _seat.reset(token)


def answer(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers knows as `NAME`, for tensors [1, heads, tokens,
    dim]. Gives [1, tokens, heads, dim]."""
    asked = Asked(
        layer=getattr(module, "layer_idx", None),
        module=type(module).__name__,
        q=query[0],
        k=key[0],
        v=value[0],
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        mask=attention_mask,
        is_causal=getattr(module, "is_causal", True) if is_causal is None else is_causal,
        options={name: value for name, value in options.items() if value is not None},
    )
    return _seat.get().attend(asked)[None], None


class _Catcher(TorchFunctionMode):
    """Catches calls of torch's attention function, one for each layer, in order."""

    def __init__(self, seat: Seat) -> None:
        super().__init__()
        self._seat = seat
        self._num_layers = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return self._answer(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _answer(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        layer, self._num_layers = self._num_layers, self._num_layers + 1
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        name, causal = "scaled_dot_product_attention", is_causal or attn_mask is not None
        asked = Asked(layer, name, query[0], key[0], value[0], scale, attn_mask, causal, {})
        return self._seat.attend(asked).transpose(0, 1)[None]


class PagedSeat:
    """Answers from a pool. windows: of each layer, which of the inputs' plans is its own."""

    def __init__(
        self, inputs: Inputs, pool: KVPool, attention: Attention, windows: tuple[int, ...]
    ) -> None:
        self._inputs = inputs
        self._pool = pool
        self._attention = attention
        self._windows = windows

    def attend(self, asked: Asked) -> Tensor:
        """As `Seat.attend`; keys and values go into the pool, filled up with zeros to its width."""
        assert asked.layer is not None
        layer = self._pool.layers[asked.layer]
        dim = layer.shape[-1]
        q, k, v = (_widened(x, dim).transpose(0, 1) for x in (asked.q, asked.k, asked.v))
        self._pool.write(asked.layer, self._inputs.slots, torch.cat((k, v), 1).to(layer.dtype))
        plan = self._inputs.plans[self._windows[asked.layer]]
        softcap = asked.options.get("softcap")
        out = self._attention.attend(q.to(layer.dtype), layer, plan, asked.scale, softcap)
        return out[..., : asked.v.shape[-1]].to(asked.q.dtype)


def _widened(x: Tensor, dim: int) -> Tensor:
    return x if x.shape[-1] == dim else F.pad(x, (0, dim - x.shape[-1]))
