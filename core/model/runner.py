"""Runs batches on a model: the one place where a step meets the device."""

from __future__ import annotations

import numpy as np
import torch

from ...kernels import Attention
from ...kernels.cpu import CpuAttention
from ...kernels.plain import PlainAttention
from .batch import Batch, Outcome
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
        """Compute one batch: KV of its new tokens into their slots, tokens and scores out."""
        device = self._model.device
        inputs = Inputs.of(batch, self._model.rope, self._attention, device)
        hidden = self._model.hidden(inputs, self._pool, self._attention)
        drawn = Drawn(np.empty(0, np.int64), np.empty(0, np.float32), ())
        if len(batch.sampled):
            rows = to_tensor(batch.sampled, device)
            drawn = sample(self._model.logits(hidden.index_select(0, rows)), batch.draws)
        scores = np.empty(len(batch.scored), np.float32)
        for start in range(0, len(batch.scored), _SCORE_ROWS):
            part = slice(start, start + _SCORE_ROWS)
            rows, targets = (to_tensor(x[part], device) for x in (batch.scored, batch.targets))
            logits = self._model.logits(hidden.index_select(0, rows))
            chosen = logits.gather(1, targets[:, None])[:, 0]
            scores[part] = (chosen - logits.logsumexp(-1)).numpy(force=True)
        return Outcome(drawn.tokens, drawn.logprobs, drawn.tops, scores)

    def close(self) -> None:
        """Give the pool's memory back; the runner cannot run any more."""
        del self._pool, self._model


def _attention(config: ModelConfig, num_slots: int, device: torch.device) -> Attention:
    scale = config.head_dim**-0.5
    if device.type == "cpu":
        return CpuAttention(num_slots, config.num_kv_heads, scale)
    return PlainAttention(device, scale)
