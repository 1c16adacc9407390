"""What a rank does of a step that its memory did not do for: its share of what all ranks do
together, with zeros, so that the others get through the step. What that gives is worth nothing.

Ranks that computed on as if nothing had happened could not: each waits for all others in every sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ...api.batch import Batch
from ..config import ModelConfig
from ..inputs import wanted_of
from ..model import Model
from ..parallel import Ranks
from .answers import compute_along


def finish(model: Model, ranks: Ranks, batch: Batch, num_met: int) -> None:
    """Take part in what comes after the first `num_met` sums, gathers and broadcasts of a step that
    is computed, and not repeated from a record. Raises RuntimeError where a rank is gone."""
    for meet in islice(_meetings(model, ranks, batch), num_met, None):
        meet()


def _meetings(model: Model, ranks: Ranks, batch: Batch) -> Iterator[Callable[[], object]]:
    """All that the ranks do at once for a batch, in order: tokens that are being drawn are told,
    embeddings and both halves of every layer are added up, logits are put together."""
    sizes = model.config
    assert isinstance(sizes, ModelConfig), "others' code runs on one rank"

    def zeros(*shape: int, dtype: torch.dtype = model.dtype) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=model.device)

    def add(count: int) -> None:
        ranks.sum(zeros(count, sizes.hidden_size))

    def gather(count: int) -> None:
        ranks.gathered(zeros(count, ranks.block_len(sizes.vocabulary_size)))

    num_named = -int(batch.ids.min(initial=0))
    if num_named:
        yield lambda: ranks.spread(zeros(num_named, dtype=torch.int64))
    wanted, num_tokens = wanted_of(batch), len(batch.ids)
    num_wanted = num_tokens if wanted is None else len(wanted)
    for count in [num_tokens] * (2 * sizes.num_layers - 1) + [num_wanted] * 2:
        if count:
            yield partial(add, count)
    for count in _logit_rows(batch):
        yield partial(gather, count)


def _logit_rows(batch: Batch) -> list[int]:
    """How many rows of logits are asked for at a time."""
    noted: Any = _Noting()
    rows = torch.empty(max(len(batch.scored), len(batch.queried)), 0, dtype=torch.float32)
    compute_along(noted, rows[: len(batch.scored)], rows[: len(batch.queried)])
    return [*noted.counts, *([len(batch.sampled)] if len(batch.sampled) else [])]


class _Noting:
    """A model that only notes how many rows of logits it is asked for."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def logits(self, hidden: Tensor) -> None:
        self.counts.append(len(hidden))
