"""Two ranks whose steps are recorded: both record the same in the same order, sums within recorded
steps run together, and samples in flight reach the other rank through the group."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():  # before Triton is first imported
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

from forkroot.core.api.batch import SamplingParams
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.ranks import RankedRunner, join
from forkroot.core.process.ipc import spawn

from ..conftest import MakeCheckpoint, Placement
from .following import Warming, runner_of
from .test_gpu_path import SMALL, take

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are not interpreted")


class Follower:
    """The other rank, in a process of its own."""

    def __init__(self, folder: str, store_path: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(Path(__file__).parent))
            self._child = spawn("following")
        self._child.connection.send(folder, store_path)

    def send(self, message: Any) -> None:
        self._child.connection.send(message)

    def check(self) -> None:
        assert self._child.process.poll() is None

    def when_gone(self, action: Callable[[], None]) -> None:
        """It lives as long as it is wanted."""

    def watch(self, report: Callable[[], Any]) -> None:
        """It does not hang."""

    def is_out_of_memory(self, number: int) -> bool:
        return False

    def counts(self) -> tuple[int, int]:
        """How many steps it recorded and repeated; it ends."""
        self._child.connection.send("end")
        (counts,) = list(self._child.connection.messages())
        self._child.connection.close()
        self._child.process.wait(60)
        return counts


@pytest.mark.usefixtures("preloaded")
def test_recorded_steps_of_two_ranks_give_the_tokens_of_one(
    make_checkpoint: MakeCheckpoint, tmp_path: Path
) -> None:
    sizes = {"num_key_value_heads": 2, "head_dim": 8}
    folder = str(make_checkpoint(**{**SMALL, **sizes})[0])
    alone = runner_of(folder, Ranks(), Warming())
    store_path, mine = str(tmp_path / "store"), Warming()
    follower = Follower(folder, store_path)
    ranks = join(0, 2, store_path, torch.device("cpu"))
    both = RankedRunner(runner_of(folder, ranks, mine), ranks, follower)
    recorded = mine.recorded

    placement = Placement(6, num_rows=2)
    prompts = [placement.random.integers(3, 61, size).tolist() for size in (4, 2)]
    sequences = [placement.add(prompt) for prompt in prompts]
    draw = SamplingParams(temperature=1.0, seed=9, logprobs=1)
    batch = placement.batch({s: len(prompts[s]) for s in sequences}, draw)
    expected, in_flight, before = (
        alone.run(batch),
        both.launch(replace(batch, sampling_params=())),
        sequences,
    )
    in_flight.sample(batch.sampling_params)
    for mine_now in ([1, 0], [0, 1], [1]):
        known = dict(zip(before, expected.tokens.tolist(), strict=True))
        batch = placement.batch(take(placement, mine_now, [known[s] for s in mine_now]), draw)
        references = np.array([-1 - before.index(s) for s in mine_now])
        launched = both.launch(replace(batch, ids=references, sampling_params=()))
        assert in_flight.result().tokens.tolist() == expected.tokens.tolist()
        launched.sample(batch.sampling_params)
        expected, in_flight, before = alone.run(batch), launched, mine_now
    found = in_flight.result()
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    assert recorded == mine.recorded == mine.repeated == 4
    assert follower.counts() == (mine.recorded, mine.repeated)
