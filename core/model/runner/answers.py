"""Scores of known tokens and answers to queries, beside the samples of a batch.

Few rows of logits exist at a time. Nothing waits for the device: each function returns a function
that gives the result once the fetch has waited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
from torch import Tensor

from ...api.batch import Answer, Batch, Doubles, Floats, Query
from ..inputs import to_tensor
from ..model import Model
from ..sampling.fetch import Fetch
from ..sampling.logprobs import Top, top_logprob_pairs, top_logprobs

_SCORE_ROWS = 256
_QUERY_ROWS = 32


def score(
    model: Model, hidden: Tensor, batch: Batch, fetch: Fetch
) -> Callable[[], tuple[Floats, tuple[Top, ...]]]:
    """Log-probabilities of the batch's targets, and the top ones. hidden: of its `scored`."""
    scores: list[Tensor] = []
    tops: list[tuple[Tensor, Tensor]] = []
    parts = _blocks(hidden, _SCORE_ROWS)
    targets = to_tensor(batch.targets, hidden.device).split(_SCORE_ROWS) if parts else ()
    for part, wanted in zip(parts, targets, strict=True):
        logits = model.logits(part)
        total = logits.logsumexp(-1, keepdim=True)
        chosen = logits.gather(1, wanted[:, None]) - total
        scores.append(fetch.add(chosen[:, 0]))
        if batch.num_top_logprobs:
            ids, logs = top_logprobs(logits, total, batch.num_top_logprobs)
            tops.append((fetch.add(ids), fetch.add(logs)))

    def result() -> tuple[Floats, tuple[Top, ...]]:
        found = [part.numpy() for part in scores]
        all_scores = np.concatenate(found) if found else np.empty(0, np.float32)
        return all_scores, tuple(top for pair in tops for top in top_logprob_pairs(*pair))

    return result


def answer(
    model: Model, hidden: Tensor, batch: Batch, fetch: Fetch
) -> Callable[[], tuple[Answer, ...]]:
    """Answers to the batch's queries, in float64. hidden: of its `queried`."""
    found: list[tuple[Sequence[Query], Tensor]] = []
    for block, part in enumerate(_blocks(hidden, _QUERY_ROWS)):
        logs = model.logits(part).double().log_softmax(-1)
        queries = batch.queries[block * _QUERY_ROWS :][: len(part)]
        wanted = [_ids(query) + row * logs.shape[-1] for row, query in enumerate(queries)]
        index = to_tensor(np.concatenate(wanted), logs.device)
        found.append((queries, fetch.add(logs.flatten().index_select(0, index))))

    def result() -> tuple[Answer, ...]:
        return tuple(it for queries, logs in found for it in _answers(queries, logs.numpy()))

    return result


def blocks(scored: Tensor, queried: Tensor) -> tuple[Tensor, ...]:
    """The rows whose logits `score` computes together, one block after another, then those of
    `answer`."""
    return (*_blocks(scored, _SCORE_ROWS), *_blocks(queried, _QUERY_ROWS))


def _ids(query: Query) -> np.ndarray:
    """Its token ids, then those of its sets, concatenated."""
    return np.concatenate((query.tokens, *query.sets)).astype(np.int64, copy=False)


def _answers(queries: Sequence[Query], logs: Doubles) -> Iterator[Answer]:
    """Answers from the log-probabilities of the queries' ids."""
    start = 0
    for query in queries:
        lens = [len(query.tokens), *map(len, query.sets)]
        ends = list(accumulate(lens, initial=start))
        logprobs, *sets = (logs[a:b] for a, b in pairwise(ends))
        yield Answer(logprobs, np.array([_log_sum(part) for part in sets], np.float64))
        start = ends[-1]


def _blocks(rows: Tensor, size: int) -> tuple[Tensor, ...]:
    """The rows in blocks of `size`."""
    return rows.split(size) if len(rows) else ()


def _log_sum(logs: Doubles) -> float:
    """The logarithm of a sum of numbers given by their logarithms."""
    most = logs.max(initial=-np.inf)
    return most if most == -np.inf else float(most + np.log(np.exp(logs - most).sum()))
