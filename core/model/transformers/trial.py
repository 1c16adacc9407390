"""Whether code of transformers can be run on our paged KV: tried before a weight is read, on
tensors without data, and proved on the loaded model.

What is asked for is everything that a flash-attention kernel would be told: which tokens see which
must follow from positions and a window. Whatever is refused is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...api.protocol import InvalidModel
from .attention import Asked, seated
from .masks import told

_HONOURED = {"sliding_window", "softcap"}
_IDLE = {"position_ids", "use_cache", "dropout", "output_attentions", "deterministic"}
NUM_TRIED = 5  # tokens


class LooksAhead(InvalidModel):
    """A layer's attention is not causal: no other way of running it would help."""


@dataclass(frozen=True, slots=True)
class Layers:
    """What layers cache and how they look at it, layer by layer."""

    num_kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...]
    vocabulary_size: int


@dataclass(slots=True)
class TrialSeat:
    """Answers nothing and notes what was asked. mask: the one that may be asked with."""

    mask: Tensor | None
    asked: list[Asked] = field(default_factory=list)

    def attend(self, asked: Asked) -> Tensor:
        """As `Seat.attend`. Raises InvalidModel for what our kernels cannot honour."""
        if asked.layer is None:
            raise InvalidModel(f"{asked.module} does not say which layer it is")
        where = f"layer {asked.layer} ({asked.module})"
        if unknown := sorted(asked.options.keys() - _HONOURED - _IDLE):
            raise InvalidModel(
                f"{where} gives its attention {', '.join(unknown)}; expected "
                f"{', '.join(sorted(_HONOURED))}"
            )
        if not asked.is_causal:
            raise LooksAhead(f"{where} looks ahead; expected causal attention")
        if asked.mask is not None and asked.mask is not self.mask:
            asked = _read(asked, where)
        self.asked.append(asked)
        num_heads, num_tokens = asked.q.shape[:2]
        return asked.v.new_empty(num_tokens, num_heads, asked.v.shape[-1])


def _read(asked: Asked, where: str) -> Asked:
    """The window is the mask's: code that honours masks obeys these, whatever else is said."""
    mask = told(asked.mask)
    if mask is None or not mask.is_known:
        raise InvalidModel(f"{where} has a mask or bias of its own; expected sliding windows")
    return asked._replace(options={**asked.options, "sliding_window": mask.window})


def layers_of(model: Any, is_caught: bool) -> Layers | None:
    """Run a model without data once; None: it does not ask for attention in this way. Raises
    InvalidModel if it cannot be run on paged KV."""
    shape = (1, 1, NUM_TRIED, NUM_TRIED) if is_caught else (1, NUM_TRIED)
    mask = torch.empty(shape, device="meta", dtype=model.dtype)  # nothing is hidden by padding
    seat = TrialSeat(mask if is_caught else None)
    ids = torch.empty(1, NUM_TRIED, dtype=torch.int64, device="meta")
    try:
        with seated(seat, is_caught), torch.inference_mode(), torch.device("meta"):
            states = model.states(ids, ids, mask)
            logits = model.logits(states)
    except InvalidModel:
        raise
    except Exception as error:  # whatever foreign code may raise
        raise InvalidModel(
            f"{model.name} of transformers cannot be tried without weights: {error!r}"
        ) from error
    if not seat.asked:
        return None
    return _layers(seat.asked, model.num_layers, logits.shape[-1])


def _layers(asked: list[Asked], num_layers: int, vocabulary_size: int) -> Layers:
    numbers = [it.layer for it in asked]
    if sorted(set(numbers), key=str) != sorted(numbers, key=str):
        raise InvalidModel("a layer attends twice in one pass; expected once")
    if len(numbers) < num_layers or set(numbers) != set(range(len(numbers))):
        raise InvalidModel(
            f"{len(numbers)} of {num_layers} layers attend; expected models whose every layer "
            f"mixes tokens by attention, and by nothing else"
        )
    asked = sorted(asked, key=lambda it: it.layer or 0)
    heads = {it.k.shape[0] for it in asked} | {it.v.shape[0] for it in asked}
    if len(heads) > 1:
        raise InvalidModel(f"layers cache {sorted(heads)} heads; expected as many in every layer")
    dims = {x.shape[-1] for it in asked for x in (it.k, it.v)}
    windows = tuple(it.options.get("sliding_window") for it in asked)
    return Layers(heads.pop(), max(dims), windows, vocabulary_size)
