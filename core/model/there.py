"""Draws tokens where the logits are, by kernels of a GPU, and waits for nothing.

The same tokens as `sampler.sample` gives, for draws that ask for tokens only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...kernels.gpu.upload import uploaded
from .batch import Draw, Ints, Longs
from .sampler import Drawn, uniforms


def is_plain(draw: Draw) -> bool:
    """Whether nothing but a token is asked for, of logits that are changed by a mask at most."""
    has_penalty = draw.frequency_penalty or draw.presence_penalty or draw.repetition_penalty != 1
    has_more = draw.logit_bias or draw.banned or draw.logprobs is not None or draw.log_mass
    return not (has_penalty or has_more)


def draw_there(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """A token for each row of logits [N, vocabulary] (float32, left as they are), as int32 on their
    device; -1 as in `Drawn`. All of the draws are plain."""
    from ...kernels.gpu.draws import draw
    from ...kernels.gpu.masks import mask

    masked = [(row, it.mask) for row, it in enumerate(draws) if it.mask is not None]
    settings = [
        np.array([it.temperature for it in draws], np.float32).view(np.int32),
        np.array([it.top_k for it in draws], np.int32),
        np.array([it.top_p for it in draws], np.float32).view(np.int32),
        np.array([it.min_p for it in draws], np.float32).view(np.int32),
        uniforms(draws).view(np.int32),
        np.array([row for row, _ in masked], np.int32),
        _joined([words for _, words in masked], -(-logits.shape[-1] // 32)),
    ]
    cold, top_ks, top_ps, min_ps, numbers, rows, words = uploaded(settings, logits.device)
    if masked:
        logits = logits.clone()
        mask(logits, rows, words)
    floats = (them.view(torch.float32) for them in (cold, top_ps, min_ps))
    temperatures, shares, floors = floats
    return draw(logits, temperatures, top_ks, shares, floors, numbers.view(torch.float64))


def tokens_only(tokens: Tensor) -> Drawn:
    """What plain draws give, by their tokens on the host."""
    count = len(tokens)
    ids: Longs = tokens.numpy().astype(np.int64)
    return Drawn(ids, np.full(count, np.nan, np.float32), ((),) * count)


def _joined(masks: Sequence[Ints], num_words: int) -> Ints:
    """[masks, words]; past a mask's end nothing is allowed."""
    words = np.zeros((len(masks), num_words), np.int32)
    for row, mask in zip(words, masks, strict=True):
        row[: len(mask)] = mask[: len(row)]
    return words
