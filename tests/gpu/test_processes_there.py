"""A GPU that is used from a child process, and one model on two GPUs."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch

from forkroot.core.api.protocol import BackendClosed, Call, Sampling, Text
from forkroot.core.local import LocalBackend
from forkroot.core.process.client import ProcessBackend

from ..core.process.test_ranks import children
from .asking import SIZES, answers_of

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def test_a_child_process_gives_the_tokens_of_this_one(prompts, answers, device) -> None:
    wanted = answers(prompts, device=device)
    with ProcessBackend("tiny", device=device, dtype="float32", **SIZES) as backend:
        assert answers_of(backend, prompts) == wanted
        backend.check()


def test_two_gpus_give_the_tokens_of_one(prompts, answers, device) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    for graphs in (True, False):
        found = answers(prompts, device=device, ranks=2, graphs=graphs)
        assert found == answers(prompts, device=device, graphs=graphs)


@pytest.mark.parametrize("graphs", [True, False])
def test_a_rank_that_dies_while_the_devices_compute_ends_every_call(graphs, device) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    before = children()
    backend = LocalBackend.from_folder("tiny", device=device, ranks=2, graphs=graphs, **SIZES)
    (rank,) = children() - before
    sampling = Sampling(max_tokens=900, temperature=0.0, ignore_eos=True, n=4)
    replies = [backend.submit(Call((Text(word),), sampling)) for word in ("One", "Two", "Six")]
    time.sleep(0.5)
    os.kill(rank, signal.SIGKILL)
    for reply in replies:
        with pytest.raises(BackendClosed, match="rank"):
            reply.result(5)
    backend.close()
    assert children() == before
