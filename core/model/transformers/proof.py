"""The last word on a loaded model of transformers: a few tokens, cut into mixed batches on paged
KV, must get the logits that its own attention gives them. Fit for any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....kernels.devices import Pool, attention_for
from ...api.batch import Batch
from ...api.protocol import InvalidModel
from ..inputs import Inputs
from ..parallel import Ranks
from ..pool import KVPool

_LENGTHS = (11, 7, 7)
# How many tokens of each sequence a batch computes: some of one length, some behind one past.
_CUTS = ((0, 3, 3), (4, 1, 0), (0, 1, 1), (5, 0, 1), (2, 2, 2))
_NUM_SLOTS = 33
_TOLERANCE = {torch.float32: 2e-3, torch.float16: 0.1, torch.bfloat16: 0.15}


@torch.inference_mode()
def prove(model: Any, decoder: Any, attention: str) -> None:
    """Raise InvalidModel if paged KV changes a model's logits. attention: of transformers."""
    random = np.random.default_rng(0)
    low, high = min(10, model.config.vocabulary_size - 1), model.config.vocabulary_size
    sequences = [random.integers(low, high, length) for length in _LENGTHS]

    def both() -> tuple[list[Tensor], list[Tensor]]:
        tensors = [torch.from_numpy(ids)[None].to(model.device) for ids in sequences]
        return _paged(model, sequences), [decoder.alone(ids, attention) for ids in tensors]

    compare(model, decoder, both)


def compare(
    model: Any, decoder: Any, both: Callable[[], tuple[list[Tensor], list[Tensor]]]
) -> None:
    """Raise InvalidModel if our logits differ from those of transformers. both: gives these."""
    try:
        ours, theirs_alone = both()
        alone = [logits.float() for logits in theirs_alone]
    except Exception as fault:  # foreign code may raise anything
        text = str(fault).strip().partition("\n")[0][:200]
        raise InvalidModel(
            f"{decoder.name} cannot be proved on paged KV ({type(fault).__name__}: {text}): "
            "it does not run here"
        ) from fault
    if not all(logits.isfinite().all() for logits in alone):
        advice = "" if model.dtype is torch.float32 else ", or try dtype=float32"
        raise InvalidModel(
            f"{decoder.name} gives logits that are not finite, in transformers too: copy its "
            f"weights again{advice}"
        )
    for mine, theirs in zip(ours, alone, strict=True):
        error = float((mine - theirs).norm() / (theirs - theirs.mean(-1, keepdim=True)).norm())
        if not error <= _TOLERANCE[model.dtype]:
            raise InvalidModel(
                f"{decoder.name} has other logits on paged KV than on its own (relative error "
                f"{error:.2g}; expected {_TOLERANCE[model.dtype]:g}): it does not run here"
            )


def _paged(model: Any, sequences: list[Any]) -> list[Tensor]:
    """Logits [tokens, vocabulary] of each sequence, by batches over a pool of poison."""
    pool, attention = poisoned(model, _NUM_SLOTS)
    table = np.random.default_rng(1).permutation(_NUM_SLOTS).astype(np.int32)
    table = table.reshape(len(_LENGTHS), -1)
    logits: list[list[Tensor]] = [[] for _ in sequences]
    done = np.zeros(len(sequences), np.int32)
    for cuts in _CUTS:
        batch = _batch(sequences, table, done, np.array(cuts, np.int32))
        inputs = Inputs.of(batch, model.windows, attention, model.device)
        made = model.logits(model.hidden(inputs, pool, attention)).split(batch.lens.tolist())
        for row, part in zip(batch.rows.tolist(), made, strict=True):
            logits[row].append(part)
        done += np.array(cuts, np.int32)
    return [torch.cat(parts) for parts in logits]


def poisoned(model: Any, num_slots: int) -> tuple[KVPool, Any]:
    """A pool whose slots hold no numbers, and an attention over it."""
    config = model.config
    pool = KVPool(config, num_slots, model.dtype, model.device, Ranks())
    for layer in pool.layers:
        layer.fill_(torch.nan)
    heads = config.num_kv_heads, config.head_dim, config.group
    return pool, attention_for(Pool(model.device, model.dtype, num_slots, *heads))


def _batch(sequences: list[Any], table: Any, done: Any, cuts: Any) -> Batch:
    """The next tokens of some sequences, the later ones first."""
    rows = np.flatnonzero(cuts)[::-1].astype(np.int32)
    spans = [np.arange(done[row], done[row] + cuts[row]) for row in rows]
    positions = np.concatenate(spans).astype(np.int64)
    ids = [sequences[row][span] for row, span in zip(rows, spans, strict=True)]
    lens = cuts[rows]
    return Batch(
        ids=np.concatenate(ids).astype(np.int64),
        positions=positions,
        slots=table[np.repeat(rows, lens), positions],
        rows=rows,
        starts=done[rows],
        lens=lens,
        table=table,
        sampled=np.arange(len(positions), dtype=np.int32),
        sampling_params=(),
    )
