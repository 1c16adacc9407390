"""Runs batches on a model: the one place where a step meets the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...kernels.devices import AUTO, Pool, attention_for
from .batch import Answer, Batch, Doubles, Floats, Outcome
from .host import Host, HostStore
from .inputs import Inputs, to_tensor
from .model import Model
from .parallel import Ranks
from .pool import KVPool
from .sampler import Drawn, Top, can_draw, rivals, sample

_SCORE_ROWS = 256
_QUERY_ROWS = 32


class ModelRunner:
    """A model and its pool of `num_slots` slots.

    attention: which kind, see `kernels.devices`. host: where tokens go that have to leave the pool.
    """

    def __init__(
        self,
        model: Model,
        num_slots: int,
        ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
        attention: str = AUTO,
        host: Host = Host(),  # noqa: B008 (frozen)
    ) -> None:
        self._model = model
        self._pool = KVPool(model.config, num_slots, model.dtype, model.device, ranks)
        self._host = HostStore(self._pool.storage, host) if host.num_slots else None
        sizes, num_kv_heads = model.config, ranks.part(model.config.num_kv_heads)
        heads = num_kv_heads, sizes.head_dim, sizes.group
        self._attention = attention_for(
            Pool(model.device, model.dtype, num_slots, *heads), attention
        )
        can_draw(model.device)  # loops are compiled now, not in a call's time

    def run(self, batch: Batch) -> Outcome:
        """Compute one batch: KV of its new tokens into their slots, tokens and scores out.

        A sequence whose numbers are not finite gets token -1, or score NaN, and harms no other.
        """
        return self.outcome(self.hidden(batch), batch)

    @torch.inference_mode()
    def hidden(self, batch: Batch) -> Tensor:
        """Hidden states of the tokens after which something is wanted; with several ranks, each
        must compute the same batch."""
        model = self._model
        if self._host is not None:
            self._host.copy(batch.copies)
        inputs = Inputs.of(batch, model.windows, self._attention, model.device)
        return model.hidden(inputs, self._pool, self._attention)

    @torch.inference_mode()
    def outcome(self, hidden: Tensor, batch: Batch) -> Outcome:
        """What these hidden states give; one rank alone can tell."""
        num_sampled = len(batch.sampled)
        drawn = self._draw(hidden[:num_sampled], batch)
        num_told = num_sampled + len(batch.scored)
        scores, tops = self._score(hidden[num_sampled:num_told], batch)
        answers = self._answer(hidden[num_told:], batch)
        told = drawn.tokens, drawn.logprobs, drawn.tops
        return Outcome(*told, scores, drawn.log_masses, answers, tops)

    def _draw(self, hidden: Tensor, batch: Batch) -> Drawn:
        if not len(hidden):
            return Drawn(np.empty(0, np.int64), np.empty(0, np.float32), ())
        return sample(self._model.logits(hidden), batch.draws)

    def _score(self, hidden: Tensor, batch: Batch) -> tuple[Floats, tuple[Top, ...]]:
        """Log-probabilities of the targets and their rivals; few rows of logits exist at a time."""
        scores = np.empty(len(hidden), np.float32)
        tops: list[Top] = []
        targets = to_tensor(batch.targets, hidden.device)
        for start in range(0, len(hidden), _SCORE_ROWS):
            part = slice(start, start + _SCORE_ROWS)
            logits = self._model.logits(hidden[part])
            total = logits.logsumexp(-1, keepdim=True)
            chosen = logits.gather(1, targets[part, None]) - total
            scores[part] = chosen[:, 0].numpy(force=True)
            if batch.num_rivals:
                tops += rivals(logits, total, batch.num_rivals)
        return scores, tuple(tops)

    def _answer(self, hidden: Tensor, batch: Batch) -> tuple[Answer, ...]:
        """Answers to the queries, in float64; few rows of logits exist at a time."""
        answers = []
        for place, query in enumerate(batch.queries):
            if place % _QUERY_ROWS == 0:
                logits = self._model.logits(hidden[place : place + _QUERY_ROWS])
                rows = logits.double().log_softmax(-1).numpy(force=True)
            row = rows[place % _QUERY_ROWS]
            masses = [_log_sum(row[tokens]) for tokens in query.sets]
            answers.append(Answer(row[query.tokens], np.array(masses, np.float64)))
        return tuple(answers)

    def close(self) -> None:
        """Give the pool's memory back; the runner cannot run any more."""
        del self._pool, self._model, self._host


def _log_sum(logs: Doubles) -> float:
    """The logarithm of a sum of numbers given by their logarithms."""
    most = logs.max(initial=-np.inf)
    return most if most == -np.inf else float(most + np.log(np.exp(logs - most).sum()))
