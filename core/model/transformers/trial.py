"""Whether code of transformers can be run on our paged KV: tried before a weight is read, on
tensors without data, and proved on the loaded model.

A model must state all that a flash-attention kernel needs: which tokens see which must follow from
positions and a window. What a mask of transformers hides is found by evaluating its rule. Errors
name the option that is not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...api.protocol import InvalidModel
from .attention import AttentionCall, handling_attention

_SUPPORTED = {"sliding_window", "softcap"}
_IGNORED = {"position_ids", "use_cache", "dropout", "output_attentions", "deterministic"}
NUM_TRIED = 5  # tokens
_NUM_NEAR = 6  # positions that are checked on both sides of a start
_STARTS = (64, 1000, 5000, 100_000)


class NotCausal(InvalidModel):
    """A layer's attention is not causal: no other way of running it would help."""


@dataclass(frozen=True, slots=True)
class Layers:
    """What layers cache and how they look at it, layer by layer."""

    num_kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...]
    vocabulary_size: int


def _record(calls: list[AttentionCall], mask: Tensor | None, call: AttentionCall) -> Tensor:
    """Add a call to `calls` and compute nothing, as `AttentionHandler`. mask: the only one that
    calls may have. Raises InvalidModel for options that our kernels do not support."""
    if call.layer is None:
        raise InvalidModel(f"{call.module} does not say which layer it is")
    where = f"layer {call.layer} ({call.module})"
    if unknown := sorted(call.options.keys() - _SUPPORTED - _IGNORED):
        raise InvalidModel(
            f"{where} gives its attention {', '.join(unknown)}; expected "
            f"{', '.join(sorted(_SUPPORTED))}"
        )
    if not call.is_causal:
        raise NotCausal(f"{where} looks ahead; expected causal attention")
    if call.mask is not None and call.mask is not mask:
        call = _read(call, where)
    calls.append(call)
    num_heads, num_tokens = call.q.shape[:2]
    return call.v.new_empty(num_tokens, num_heads, call.v.shape[-1])


def _read(call: AttentionCall, where: str) -> AttentionCall:
    """The call with the window of its mask, which the code applies whatever other options are
    set."""
    mask = trial_mask_of(call.mask)
    if mask is None or not mask.is_known:
        raise InvalidModel(f"{where} has a mask or bias of its own; expected sliding windows")
    return call._replace(options={**call.options, "sliding_window": mask.window})


def layers_of(model: Any, intercepts_sdpa: bool) -> Layers | None:
    """Run a model without data once; None: it does not call attention in this way. Raises
    InvalidModel if it cannot be run on paged KV."""
    shape = (1, 1, NUM_TRIED, NUM_TRIED) if intercepts_sdpa else (1, NUM_TRIED)
    mask = torch.empty(shape, device="meta", dtype=model.dtype)  # nothing is hidden by padding
    calls: list[AttentionCall] = []
    record = partial(_record, calls, mask if intercepts_sdpa else None)
    ids = torch.empty(1, NUM_TRIED, dtype=torch.int64, device="meta")
    try:
        with (
            handling_attention(record, intercepts_sdpa),
            torch.inference_mode(),
            torch.device("meta"),
        ):
            states = model.states(ids, ids, mask)
            logits = model.logits(states)
    except InvalidModel:
        raise
    except Exception as error:  # foreign code may raise anything
        raise InvalidModel(
            f"{model.name} of transformers cannot be tried without weights: {error!r}"
        ) from error
    return _layers(calls, model.num_layers, logits.shape[-1]) if calls else None


def _layers(call: list[AttentionCall], num_layers: int, vocabulary_size: int) -> Layers:
    numbers = [it.layer for it in call]
    if sorted(set(numbers), key=str) != sorted(numbers, key=str):
        raise InvalidModel("a layer attends twice in one pass; expected once")
    if len(numbers) < num_layers or set(numbers) != set(range(len(numbers))):
        raise InvalidModel(
            f"{len(numbers)} of {num_layers} layers attend; expected models whose every layer "
            f"mixes tokens by attention, and by nothing else"
        )
    call = sorted(call, key=lambda it: it.layer or 0)
    heads = {it.k.shape[0] for it in call} | {it.v.shape[0] for it in call}
    if len(heads) > 1:
        raise InvalidModel(f"layers cache {sorted(heads)} heads; expected as many in every layer")
    dims = {x.shape[-1] for it in call for x in (it.k, it.v)}
    windows = tuple(it.options.get("sliding_window") for it in call)
    return Layers(heads.pop(), max(dims), windows, vocabulary_size)


class TrialMask(Tensor):
    """A mask without data. window: how many tokens up to itself a token sees; None: all. is_known:
    whether it hides just what lies beyond, and what comes later."""

    window: int | None
    is_known: bool


def trial_mask(
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Tensor],
    local_size: int | None = None,
    **_: Any,
) -> TrialMask:
    """The mask function that transformers knows while a model is tried."""
    mask = torch.empty(1, 1, q_length, kv_length, device="meta").as_subclass(TrialMask)
    mask.window, mask.is_known = local_size, _is_window(mask_function, local_size)
    return mask


def trial_mask_of(mask: Tensor | None) -> TrialMask | None:
    """This mask as a `TrialMask`, or the one that it is a view of; None for others."""
    for it in (mask, None if mask is None else mask._base):
        if isinstance(it, TrialMask) and hasattr(it, "window"):
            return it
    return None


def _is_window(rule: Callable[..., Tensor], window: int | None) -> bool:
    with torch.device("cpu"):
        # Positions at which a rule may change: the first ones, and about one and two windows on.
        starts = (0, *_STARTS, *(() if window is None else (window, 2 * window)))
        near = (range(max(0, start - _NUM_NEAR), start + _NUM_NEAR) for start in starts)
        positions = torch.tensor(sorted({position for each in near for position in each}))
        q, k, none = positions[:, None], positions[None], torch.tensor(0)
        wanted = (k <= q) & (k > q - window) if window is not None else k <= q
        try:
            found = rule(none, none, q, k)
            return bool((found == wanted).all())
        except (RuntimeError, IndexError, TypeError):
            return False  # it needs more than positions
