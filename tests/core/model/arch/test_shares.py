"""A model shared out over ranks that are threads here: each reads its part, and sums are whole."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from forkroot.core.api.batch import Batch, Outcome, Query, SamplingParams
from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.arch.layers import SharedEmbedding
from forkroot.core.model.checkpoint.load import describe, load_model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.weights import Checkpoint

from ..conftest import NUM_SLOTS, Machine, MakeCheckpoint, Placement, assert_near, plain

T = TypeVar("T")


class Meeting:
    """Where threads add up and put together."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=60)
        self.parts: dict[int, Tensor] = {}

    def all(self, rank: int, part: Tensor) -> list[Tensor]:
        self.parts[rank] = part.clone()
        self.barrier.wait()
        parts = [self.parts[each] for each in range(self.barrier.parties)]
        self.barrier.wait()
        return parts


def threads(size: int = 2) -> list[Ranks]:
    meeting = Meeting(size)

    def ranks(rank: int) -> Ranks:
        def add(partial: Tensor) -> Tensor:
            return partial.copy_(sum(meeting.all(rank, partial)))

        def gather(part: Tensor) -> list[Tensor]:
            parts = meeting.all(rank, part)
            return [] if rank else parts

        return Ranks(rank, size, add, gather)

    return [ranks(rank) for rank in range(size)]


def on_each(size: int, run: Callable[[Ranks], T]) -> list[T]:
    """What it gives on each of so many ranks."""
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, threads(size)))


def load(folder: Path, ranks: Ranks, dtype: torch.dtype = torch.float32) -> Any:
    return load_model(folder, describe(folder), dtype, torch.device("cpu"), ranks)


KINDS: dict[str, dict[str, Any]] = {
    "llama with biases": {"attention_bias": True, "mlp_bias": True},
    "llama, tied": {"tie_word_embeddings": True},
    "llama with a vocabulary that divides": {"vocab_size": 128},
    "mistral": {"kind": "mistral", "sliding_window": 24},
    "qwen2": {"kind": "qwen2"},
    "qwen2, tied": {"kind": "qwen2", "tie_word_embeddings": True, "vocab_size": 200},
    "qwen3": {"kind": "qwen3", "head_dim": 16, "attention_bias": True},
    "mixtral": {"kind": "mixtral", "num_local_experts": 5},
}


def check_logits(folder: Path, theirs: Any, size: int) -> None:
    """Prefill and decode on so many ranks give on the first one what transformers says."""

    def run(ranks: Ranks) -> Tensor:
        machine, placement = Machine(load(folder, ranks), ranks), Placement()
        sequence = placement.add(list(range(3, 97)))
        return torch.cat([machine.logits(placement.batch({sequence: n}))[0] for n in (60, 1, 33)])

    first, *others = on_each(size, run)
    assert_near(first, plain(theirs, list(range(3, 97))))
    assert [other.shape for other in others] == [(94, 0)] * (size - 1)  # only rank 0 draws


@pytest.mark.parametrize("name", list(KINDS))
def test_two_ranks_compute_what_one_computes(make_checkpoint: MakeCheckpoint, name: str) -> None:
    check_logits(*make_checkpoint(**KINDS[name]), size=2)


@pytest.mark.parametrize("is_tied", [True, False])
def test_ranks_for_which_a_small_vocabulary_has_no_token_help_all_the_same(
    make_checkpoint: MakeCheckpoint, is_tied: bool
) -> None:
    sizes = {"num_key_value_heads": 4, "tie_word_embeddings": is_tied}
    check_logits(*make_checkpoint(**sizes), size=4)


@pytest.mark.parametrize(("count", "size"), [(97, 2), (97, 4), (128, 2), (4096, 3), (5, 2)])
def test_a_looked_up_row_is_exact_on_all_ranks(count: int, size: int) -> None:
    table = torch.randn(count, 8, generator=torch.Generator().manual_seed(1))
    ids = torch.randint(count, (40,), generator=torch.Generator().manual_seed(2))

    def run(ranks: Ranks) -> Tensor:
        rows = torch.zeros(ranks.block_len(count), 8)
        block = ranks.block(count)
        rows[: block.stop - block.start] = table[block]
        return SharedEmbedding(rows, rows.dtype, ranks.rank * len(rows), ranks)(ids)

    for found in on_each(size, run):
        assert torch.equal(found, table[ids])


# --- what a rank reads and holds -----------------------------------------------------------------

WHOLE = (
    *("norm.weight", "block_sparse_moe.gate.weight"),
    *("o_proj.bias", "down_proj.bias"),
)
TABLES = ("embed_tokens.weight", "lm_head.weight")
ROWS_OF_97 = (64, 33)  # in whole blocks


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """How many numbers of each tensor are read; a dictionary for whoever loads next is put behind
    the others."""
    read: list[dict[str, int]] = []
    take, take_part = Checkpoint.take, Checkpoint.take_part

    def spied(self: Checkpoint, name: str) -> Tensor:
        tensor = take(self, name)
        read[-1][name] = tensor.numel()
        return tensor

    def spied_part(self: Checkpoint, name: str, dim: int, part: slice) -> Tensor:
        tensor = take_part(self, name, dim, part)
        read[-1][name] = tensor.numel()
        return tensor

    monkeypatch.setattr(Checkpoint, "take", spied)
    monkeypatch.setattr(Checkpoint, "take_part", spied_part)
    return read


@pytest.mark.parametrize("name", ["llama with biases", "llama, tied", "qwen3", "mixtral"])
def test_a_rank_reads_its_part_of_every_matrix_and_no_more(
    make_checkpoint: MakeCheckpoint, read: list[dict[str, int]], name: str
) -> None:
    folder, _ = make_checkpoint(**KINDS[name])
    shapes = describe(folder).weight_shapes()  # type: ignore[union-attr]
    for ranks, num_rows in zip(threads(), ROWS_OF_97, strict=True):
        read.append({})
        load(folder, ranks)
        assert read[-1].keys() == shapes.keys()
        for tensor, size in read[-1].items():
            whole = torch.Size(shapes[tensor]).numel()
            part = num_rows * 48 if tensor.endswith(TABLES) else whole // 2
            assert size == (whole if tensor.endswith(WHOLE) else part), tensor


def num_held() -> int:
    """Bytes of all tensors that live now; views of the same ones count once."""
    tensors = [it for it in gc.get_objects() if type(it) is Tensor]
    packed = sum(it.nbytes for it in tensors if it.layout is not torch.strided)
    plain = sorted((it.nbytes, it.data_ptr()) for it in tensors if it.layout is torch.strided)
    return packed + sum({placement: count for count, placement in plain}.values())


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_rank_holds_its_rows_of_the_tables_and_no_more(
    make_checkpoint: MakeCheckpoint, is_tied: bool
) -> None:
    sizes = {"vocab_size": 10_000, "tie_word_embeddings": is_tied, "num_hidden_layers": 1}
    folder, _ = make_checkpoint(**sizes)
    gc.collect()
    held = []
    for ranks in (Ranks(), *threads()):
        before = num_held()
        model = load(folder, ranks, torch.bfloat16)  # not as in the file, whose tensors are mapped
        held.append(num_held() - before)
        del model
    whole, *parts = held
    size = torch.bfloat16.itemsize
    assert whole > 2 * 10_000 * 48 * size  # products have a copy, laid out otherwise
    for part in parts:
        assert part < 0.53 * whole


def test_heads_that_do_not_divide_are_refused_by_name(make_checkpoint: MakeCheckpoint) -> None:
    folder, _ = make_checkpoint(num_key_value_heads=1)
    with pytest.raises(InvalidModel, match="ranks=2 does not divide num_key_value_heads=1;"):
        load(folder, Ranks(0, 2))


# --- what all ranks give together ----------------------------------------------------------------


def run_on(size: int, folder: Path, batches: list[Batch]) -> list[Outcome]:
    """What a runner on so many ranks gives for batches, one after another."""

    def run(ranks: Ranks) -> list[Outcome]:
        runner = ModelRunner(load(folder, ranks), NUM_SLOTS, ranks)
        if ranks.rank == 0:
            return [runner.run(batch) for batch in batches]
        for batch in batches:
            runner.follow(replace(batch, sampling_params=(), targets=batch.targets[:0], queries=()))
        return []

    if size == 1:
        return run(Ranks())
    return on_each(size, run)[0]


def near(found: Any, wanted: Any) -> None:
    assert np.allclose(found, wanted, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}, KINDS["mixtral"]])
def test_draws_scores_and_answers_on_two_ranks_are_those_of_one(
    make_checkpoint: MakeCheckpoint, changes: dict[str, Any]
) -> None:
    folder, _ = make_checkpoint(**{**changes, "max_position_embeddings": 512})
    random = np.random.default_rng(3)
    placement = Placement(context_len=512)
    first, second, third = (
        placement.add(random.integers(3, 97, count).tolist()) for count in (300, 5, 40)
    )
    batch = placement.batch({first: 300, second: 4, third: 40})
    batch = replace(
        batch,
        sampling_params=(
            SamplingParams(),
            SamplingParams(temperature=0.9, top_p=0.8, seed=5, logprobs=3),
            SamplingParams(repetition_penalty=1.3, generated=np.array([70], np.int32), logprobs=0),
        ),
        scored=np.arange(290, dtype=np.int32),  # more rows than are looked at together
        targets=random.integers(0, 97, 290),
        num_top_logprobs=2,
        queried=np.arange(300, 340, dtype=np.int32),
        queries=(Query(np.array([0, 63, 64, 96]), (np.arange(60, 70, dtype=np.int32),)),) * 40,
    )
    sampled = placement.batch({second: 1})
    for one, two in zip(
        run_on(1, folder, [batch, sampled]), run_on(2, folder, [batch, sampled]), strict=True
    ):
        assert two.tokens.tolist() == one.tokens.tolist()
        near(two.logprobs, one.logprobs)
        near(two.scores, one.scores)
        found_tops, wanted_tops = (*two.tops, *two.score_tops), (*one.tops, *one.score_tops)
        for found, wanted in zip(found_tops, wanted_tops, strict=True):
            assert [token for token, _ in found] == [token for token, _ in wanted]
            near([log for _, log in found], [log for _, log in wanted])
        for mine, other in zip(two.answers, one.answers, strict=True):
            near(mine.logprobs, other.logprobs)
            near(mine.log_masses, other.log_masses)


def test_a_broken_row_of_a_table_harms_no_sequence_without_its_token(
    make_checkpoint: MakeCheckpoint,
) -> None:
    folder, model = make_checkpoint()
    placement = Placement()
    sequences = [placement.add(ids) for ids in ([5, 6, 7], [70, 71], [5, 0, 7], [64, 71])]
    batch = placement.batch({sequence: len(placement.ids[sequence]) for sequence in sequences})
    (sound,) = run_on(2, folder, [batch])
    with torch.no_grad():
        model.model.embed_tokens.weight[[0, 64]] = torch.nan  # first of each rank
    model.save_pretrained(folder)
    (found,) = run_on(2, folder, [batch])
    assert found.tokens.tolist() == [*sound.tokens.tolist()[:2], -1, -1]
