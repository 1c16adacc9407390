"""What constraints allow: packed bits for each row, applied to the logits of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ....kernels.cpu.sampling.masks import Masker, masker
from ...api.batch import Ints, Longs, SamplingParams


def masked(logits: Tensor, params: Sequence[SamplingParams], is_compiled: bool = False) -> Tensor:
    """The logits [N, vocabulary] themselves if no row has a mask, else a copy in which what the
    masks do not allow is -inf. is_compiled: by a compiled loop, on a CPU that has it."""
    found = [(row, it.mask) for row, it in enumerate(params) if it.mask is not None]
    if not found:
        return logits
    rows, masks = zip(*found, strict=True)
    if len(rows) == len(params):
        return _under(logits, masks, is_compiled)
    index = torch.tensor(rows, device=logits.device)
    own = _under(logits.index_select(0, index), masks, is_compiled)
    return logits.index_copy(0, index, own)


def _under(logits: Tensor, masks: Sequence[Ints], is_compiled: bool) -> Tensor:
    """A copy of logits under one mask for each row."""
    size, loop = logits.shape[-1], masker() if is_compiled else None
    if loop is not None:
        return torch.from_numpy(loop.apply(logits.contiguous().numpy(), packed(masks, size)))
    bytes_ = packed(masks, size).view(np.uint8)
    flags = np.unpackbits(bytes_, axis=-1, count=size, bitorder="little")
    bits = torch.from_numpy(flags).to(logits.device)
    addends = 1 - bits.float().reciprocal_()  # 0 or -inf
    return addends.add_(logits)


def allowed(params: Sequence[SamplingParams], size: int) -> Ints | None:
    """Packed bits of the tokens, of a vocabulary of such a size, that the mask of any row allows;
    None where one has no mask, or wants to know more than its token."""
    if any(it.mask is None or it.logprobs is not None or it.log_mass for it in params):
        return None
    found: Ints = np.bitwise_or.reduce(packed([it.mask for it in params], size))
    return found


def allowed_argmax(logits: Tensor, params: Sequence[SamplingParams], loop: Masker) -> Longs:
    """[N] the likeliest token that each row's mask allows; -1 where all of these are -inf, or the
    row has a number that is not finite."""
    words = packed([it.mask for it in params], logits.shape[-1])
    return loop.argmax(logits.contiguous().numpy(), words)


def packed(masks: Sequence[Ints | None], size: int) -> Ints:
    """[masks, size / 32, rounded up] of bits; those past a mask's end are 0. None allows all."""
    words = np.zeros((len(masks), -(-size // 32)), np.int32)
    for row, mask in zip(words, masks, strict=True):
        row[: None if mask is None else len(mask)] = -1 if mask is None else mask[: len(row)]
    return words
