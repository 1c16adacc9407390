"""What a mask of transformers hides, found by asking its rule: the rule must be that of our
kernels, which know positions and a sliding window. Knows no models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

_FEW = 6  # positions in a row that are looked at, here and there
_FAR = (64, 1000, 5000, 100_000)


class Told(Tensor):
    """A mask without data. window: how many tokens up to itself a token sees; None: all. is_known:
    whether it hides just what lies beyond, and what comes later."""

    window: int | None
    is_known: bool


def tell(
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Tensor],
    local_size: int | None = None,
    **_: Any,
) -> Told:
    """The mask function that transformers knows while a model is tried."""
    mask = torch.empty(1, 1, q_length, kv_length, device="meta").as_subclass(Told)
    mask.window, mask.is_known = local_size, _is_window(mask_function, local_size)
    return mask


def told(mask: Tensor | None) -> Told | None:
    """What this mask, or the one that it is a view of, says of itself."""
    for it in (mask, None if mask is None else mask._base):
        if isinstance(it, Told) and hasattr(it, "window"):
            return it
    return None


def _is_window(rule: Callable[..., Tensor], window: int | None) -> bool:
    with torch.device("cpu"):
        places = torch.tensor(sorted(set(_places(window))))
        q, k, none = places[:, None], places[None], torch.tensor(0)
        wanted = (k <= q) & (k > q - window) if window is not None else k <= q
        try:
            found = rule(none, none, q, k)
            return bool((found == wanted).all())
        except (RuntimeError, IndexError, TypeError):
            return False  # it asks for more than positions


def _places(window: int | None) -> Iterator[int]:
    """Positions at which a rule may change: the first ones, and about one and two windows on."""
    for start in (0, *_FAR, *(() if window is None else (window, 2 * window))):
        yield from range(max(0, start - _FEW), start + _FEW)
