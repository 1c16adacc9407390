"""Runs batches on a model: the one place where a step meets the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...kernels import Attention
from ...kernels.cpu import CpuAttention
from ...kernels.plain import PlainAttention
from .batch import Batch, Floats, Outcome
from .config import ModelConfig
from .inputs import Inputs, to_tensor
from .llama import Llama
from .parallel import Ranks
from .pool import KVPool
from .sampler import Drawn, sample

_SCORE_ROWS = 256


class ModelRunner:
    """A model and its pool of `num_slots` slots."""

    def __init__(self, model: Llama, num_slots: int) -> None:
        config = model.config
        self._model = model
        self._pool = KVPool(config, num_slots, model.dtype, model.device, Ranks())
        self._attention = _attention(config, num_slots, model.device)

    @torch.inference_mode()
    def run(self, batch: Batch) -> Outcome:
        """Compute one batch: KV of its new tokens into their slots, tokens and scores out.

        A sequence whose numbers are not finite gets token -1, or score NaN, and harms no other.
        """
        inputs = Inputs.of(batch, self._model.rope, self._attention, self._model.device)
        hidden = self._model.hidden(inputs, self._pool, self._attention)
        num_sampled = len(batch.sampled)
        drawn = self._draw(hidden[:num_sampled], batch)
        scores = self._score(hidden[num_sampled:], batch)
        return Outcome(drawn.tokens, drawn.logprobs, drawn.tops, scores)

    def _draw(self, hidden: Tensor, batch: Batch) -> Drawn:
        if not len(hidden):
            return Drawn(np.empty(0, np.int64), np.empty(0, np.float32), ())
        return sample(self._model.logits(hidden), batch.draws)

    def _score(self, hidden: Tensor, batch: Batch) -> Floats:
        """Log-probabilities of the targets; few rows of logits exist at a time."""
        scores = np.empty(len(hidden), np.float32)
        targets = to_tensor(batch.targets, hidden.device)
        for start in range(0, len(hidden), _SCORE_ROWS):
            part = slice(start, start + _SCORE_ROWS)
            logits = self._model.logits(hidden[part])
            chosen = logits.gather(1, targets[part, None])[:, 0]
            scores[part] = (chosen - logits.logsumexp(-1)).numpy(force=True)
        return scores

    def close(self) -> None:
        """Give the pool's memory back; the runner cannot run any more."""
        del self._pool, self._model


def _attention(config: ModelConfig, num_slots: int, device: torch.device) -> Attention:
    scale = config.head_dim**-0.5
    if device.type == "cpu":
        return CpuAttention(num_slots, config.num_kv_heads, scale)
    return PlainAttention(device, scale)
