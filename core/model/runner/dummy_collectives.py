"""Dummy collectives: lets a rank that ran out of memory take part in the rest of a step.

The rank contributes zeros to every remaining sum, gather and broadcast of the step, so that the
other ranks, each of which waits for all in every collective, get through it. The results of the
step are invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from ...api.batch import Batch
from ..config import ModelConfig
from ..inputs import wanted_of
from ..model import Model, RankedModel
from ..parallel import Ranks
from .answers import blocks


def run_remaining(model: Model, ranks: Ranks, batch: Batch, num_done: int) -> None:
    """Take part, with zeros, in the collectives of a step after the first `num_done`. The step must
    be computed, not replayed from a graph. Raises RuntimeError where a rank is gone."""
    for collective in islice(_collectives(model, ranks, batch), num_done, None):
        collective()


def _collectives(model: Model, ranks: Ranks, batch: Batch) -> Iterator[Callable[[], object]]:
    """All collectives of a batch, in order: the broadcast of sampled tokens, the sums of the
    embeddings and of both halves of every layer, and the gathers of logits."""
    sizes = model.config
    assert isinstance(sizes, ModelConfig), "others' code runs on one rank"
    assert isinstance(model, RankedModel)

    def zeros(*shape: int, dtype: torch.dtype = model.dtype) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=model.device)

    def add(count: int) -> None:
        ranks.sum(zeros(count, sizes.hidden_size))

    def gather(count: int) -> None:
        ranks.gathered(zeros(count, ranks.block_len(sizes.vocabulary_size)))

    num_references = -int(batch.ids.min(initial=0))
    if num_references:
        yield lambda: ranks.broadcast_from_first(zeros(num_references, dtype=torch.int64))
    wanted, num_tokens = wanted_of(batch), len(batch.ids)
    num_wanted = num_tokens if wanted is None else len(wanted)
    for count in model.sum_rows(num_tokens, num_wanted):
        if count:
            yield partial(add, count)
    for block in blocks(*(torch.empty(len(it), 0) for it in (batch.scored, batch.queried))):
        yield partial(gather, len(block))
    if len(batch.sampled):
        yield partial(gather, len(batch.sampled))
