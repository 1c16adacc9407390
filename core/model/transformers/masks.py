"""What a mask of transformers hides, found by evaluating its rule: it must be that of our kernels,
which know positions and a sliding window. Knows no models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_NUM_NEAR = 6  # positions that are checked on both sides of a start
_STARTS = (64, 1000, 5000, 100_000)


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
