"""A model shared out over two ranks in this process: each reads its part, and sums are whole."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from forkroot.core.model.load import describe, load_model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.weights import Checkpoint
from forkroot.core.protocol import InvalidModel

from .conftest import Machine, MakeCheckpoint, Placement, assert_near, plain


class Meeting:
    """Where two threads add up."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=20)
        self.parts: dict[int, torch.Tensor] = {}


@dataclass(frozen=True, slots=True)
class Thread(Ranks):
    meeting: Meeting | None = None

    def sum(self, partial: torch.Tensor) -> torch.Tensor:
        assert self.meeting is not None
        self.meeting.parts[self.rank] = partial.clone()
        self.meeting.barrier.wait()
        total = self.meeting.parts[0] + self.meeting.parts[1]
        self.meeting.barrier.wait()
        return partial.copy_(total)


def threads() -> list[Thread]:
    meeting = Meeting()
    return [Thread(rank, 2, meeting=meeting) for rank in range(2)]


def load(folder: Path, ranks: Ranks) -> Any:
    return load_model(folder, describe(folder), torch.float32, torch.device("cpu"), ranks)


KINDS: dict[str, dict[str, Any]] = {
    "llama with biases": {"attention_bias": True, "mlp_bias": True},
    "llama, tied": {"tie_word_embeddings": True},
    "mistral": {"kind": "mistral", "sliding_window": 24},
    "qwen2": {"kind": "qwen2"},
    "qwen3": {"kind": "qwen3", "head_dim": 16, "attention_bias": True},
    "mixtral": {"kind": "mixtral", "num_local_experts": 5},
}


@pytest.mark.parametrize("name", list(KINDS))
def test_two_ranks_say_what_one_says(make_checkpoint: MakeCheckpoint, name: str) -> None:
    folder, theirs = make_checkpoint(**KINDS[name])

    def run(ranks: Ranks) -> torch.Tensor:
        machine, place = Machine(load(folder, ranks), ranks), Placement()
        sequence = place.add(list(range(3, 97)))
        return torch.cat([machine.logits(place.batch({sequence: n}))[0] for n in (60, 1, 33)])

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, threads())
    assert_near(first, second)
    assert_near(first, plain(theirs, list(range(3, 97))))


WHOLE = (
    *("norm.weight", "embed_tokens.weight", "lm_head.weight", "block_sparse_moe.gate.weight"),
    *("o_proj.bias", "down_proj.bias"),
)


@pytest.mark.parametrize("name", ["llama with biases", "mixtral"])
def test_a_rank_reads_its_part_of_every_matrix_and_no_more(
    make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder, _ = make_checkpoint(**KINDS[name])
    shapes = describe(folder).weight_shapes()  # type: ignore[union-attr]
    read: list[dict[str, int]] = []
    take, take_part = Checkpoint.take, Checkpoint.take_part

    def spied(self: Checkpoint, name: str) -> torch.Tensor:
        tensor = take(self, name)
        read[-1][name] = tensor.numel()
        return tensor

    def spied_part(self: Checkpoint, name: str, dim: int, part: slice) -> torch.Tensor:
        tensor = take_part(self, name, dim, part)
        read[-1][name] = tensor.numel()
        return tensor

    monkeypatch.setattr(Checkpoint, "take", spied)
    monkeypatch.setattr(Checkpoint, "take_part", spied_part)
    for ranks in threads():
        read.append({})
        load(folder, ranks)
    for sizes in read:
        assert sizes.keys() == shapes.keys()
        for tensor, size in sizes.items():
            whole = torch.Size(shapes[tensor]).numel()
            assert size == (whole if tensor.endswith(WHOLE) else whole // 2), tensor


def test_heads_that_do_not_divide_are_refused_by_name(make_checkpoint: MakeCheckpoint) -> None:
    folder, _ = make_checkpoint(num_key_value_heads=1)
    with pytest.raises(InvalidModel, match="num_key_value_heads is 1; allowed: a multiple of 2"):
        load(folder, Ranks(0, 2))
