"""A GPU that is used from a child process, and one model on two GPUs."""

from __future__ import annotations

import pytest
import torch

from forkroot.core.process import ProcessBackend

from .asking import SIZES, told

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def test_a_child_process_gives_the_tokens_of_this_one(prompts, answers, device) -> None:
    wanted = answers(prompts, device=device)
    with ProcessBackend("tiny", device=device, dtype="float32", **SIZES) as backend:
        assert told(backend, prompts) == wanted
        backend.check()


def test_two_gpus_give_the_tokens_of_one(prompts, answers, device) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    for graphs in (True, False):
        found = answers(prompts, device=device, ranks=2, graphs=graphs)
        assert found == answers(prompts, device=device, graphs=graphs)
