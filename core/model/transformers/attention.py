"""Runs the attention of transformers' modelling code by our kernels.

A handler is set for one forward pass; it computes the attention of every layer. Code that uses
`AttentionInterface` names its layer. Older code calls torch's own attention function, which is
intercepted; its layers are counted. Knows no checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ....kernels.interface import Attention
from ..inputs import Inputs
from ..pool import KVPool

NAME = "forkroot"  # of our attention, in transformers; its layers are given no masks
TRIAL = "forkroot_trial"  # the same while a model is tried; masks are `TrialMask`s


class AttentionCall(NamedTuple):
    """One call of attention. layer: its number; None: unknown. module: the class that calls.

    q: [heads, tokens, dim]. k, v: [kv_heads, tokens, dim]. options: all other arguments that are
    not None.
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


AttentionHandler: TypeAlias = Callable[[AttentionCall], Tensor]  # gives [tokens, heads, dim of v]

_handler: ContextVar[AttentionHandler] = ContextVar("forkroot_attention_handler")


@contextmanager
def handling_attention(handler: AttentionHandler, intercepts_sdpa: bool) -> Iterator[None]:
    """Let `handler` compute the attention of one forward pass in this thread; intercepts_sdpa:
    calls of torch's own attention function, too."""
    token = _handler.set(handler)
    try:
        with _SdpaInterceptor(handler) if intercepts_sdpa else nullcontext():
            yield
    finally:
        _handler.reset(token)


def attention_forward(
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
    call = AttentionCall(
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
    return _handler.get()(call)[None], None


class _SdpaInterceptor(TorchFunctionMode):
    """Intercepts calls of torch's attention function, one for each layer, in order."""

    def __init__(self, handler: AttentionHandler) -> None:
        super().__init__()
        self._handler = handler
        self._num_layers = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return self._forward(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _forward(
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
        call = AttentionCall(layer, name, query[0], key[0], value[0], scale, attn_mask, causal, {})
        return self._handler(call).transpose(0, 1)[None]


def attend_paged(
    inputs: Inputs,
    pool: KVPool,
    attention: Attention,
    windows: tuple[int, ...],
    call: AttentionCall,
) -> Tensor:
    """Attention over a pool, as `AttentionHandler`; keys and values go into the pool, padded with
    zeros to its width. windows: of each layer, which of the inputs' plans is its own."""
    assert call.layer is not None
    layer = pool.layers[call.layer]
    dim = layer.shape[-1]
    q, k, v = (_padded(x, dim).transpose(0, 1) for x in (call.q, call.k, call.v))
    pool.write(call.layer, inputs.slots, torch.cat((k, v), 1).to(layer.dtype))
    plan, softcap = inputs.plans[windows[call.layer]], call.options.get("softcap")
    out = attention.attend(q.to(layer.dtype), layer, plan, call.scale, softcap)
    return out[..., : call.v.shape[-1]].to(call.q.dtype)


def _padded(x: Tensor, dim: int) -> Tensor:
    return x if x.shape[-1] == dim else F.pad(x, (0, dim - x.shape[-1]))
