"""Overlap on a GPU: a step is launched and sampled from without a wait, with all its options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from forkroot.core.api.batch import Batch, Query, SamplingParams
from forkroot.core.api.protocol import Call, Sampling, Text
from forkroot.core.local import model_folder
from forkroot.core.model.checkpoint.load import describe, load_model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.runner import ModelRunner

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

IDS = np.array([300, 301, 301], np.int32)
SAMPLING_PARAMS = (
    SamplingParams(),
    SamplingParams(1.0, seed=1, top_p=0.9, top_k=20, min_p=0.01, logprobs=3),
    SamplingParams(
        1.0, seed=2, frequency_penalty=0.5, presence_penalty=0.5, generated=IDS, logprobs=0
    ),
    SamplingParams(repetition_penalty=1.5, generated=IDS, prompt=IDS, logit_bias=((301, 2.0),)),
    SamplingParams(banned=(2, 3)),
    SamplingParams(mask=np.full(20, -2, np.int32), log_mass=True),
)


@pytest.fixture(params=["graphs", "no graphs"])
def runner(request: pytest.FixtureRequest, device: str) -> Iterator[ModelRunner]:
    place = torch.device(device)
    folder = model_folder("tiny")
    model = load_model(folder, describe(folder), torch.float32, place, Ranks())
    runner = ModelRunner(model, 4000, max_running=8, graphs=request.param == "graphs")
    yield runner
    torch.cuda.set_sync_debug_mode("default")
    runner.close()


def step(ids: list[int], start: int, table: Any) -> Batch:
    """One token for each sequence."""
    count = len(ids)
    rows, every = np.arange(count, dtype=np.int32), np.arange(count, dtype=np.int32)
    starts = np.full(count, start, np.int32)
    return Batch(
        ids=np.array(ids, np.int64),
        positions=starts.astype(np.int64),
        slots=table[rows, start],
        rows=rows,
        starts=starts,
        lens=np.ones(count, np.int32),
        table=table,
        sampled=every,
        sampling_params=(),
    )


def test_launches_and_sampling_wait_for_nothing(runner: ModelRunner) -> None:
    table = np.arange(8 * 16, dtype=np.int32).reshape(8, 16)
    ids = list(range(300, 306))
    runner.run(
        replace(step(ids, 0, table), sampling_params=SAMPLING_PARAMS)
    )  # compiles what is not compiled yet
    sampled_batch = replace(
        step(ids, 1, table),
        scored=np.array([0, 3], np.int32),
        targets=np.array([301, 302]),
        num_top_logprobs=2,
        queried=np.array([1], np.int32),
        queries=(Query(np.array([300, 301]), (np.array([5, 6], np.int32),)),),
    )
    runner.run(replace(sampled_batch, sampling_params=SAMPLING_PARAMS))
    torch.cuda.set_sync_debug_mode("error")
    first = runner.launch(step(ids, 2, table))
    first.sample(SAMPLING_PARAMS)
    second = runner.launch(replace(sampled_batch, ids=-1 - np.arange(6)))
    second.sample(SAMPLING_PARAMS)
    torch.cuda.set_sync_debug_mode("default")
    assert (first.result().tokens >= 0).all()
    assert (second.result().tokens >= 0).all()


def test_answers_with_every_sampling_parameter_are_those_without_overlap(
    answers: Any, device: str
) -> None:
    wishes: list[dict[str, Any]] = [
        {},
        {"temperature": 1.0, "seed": 3, "top_p": 0.9},
        {"frequency_penalty": 0.8, "presence_penalty": 0.3},
        {"repetition_penalty": 1.4, "min_tokens": 12},
        {"logit_bias": {400: 3.0}, "logprobs": 2},
    ]
    calls = [
        Call((Text(f"Number {index} says"),), Sampling(**{"temperature": 0.0, **wish}))
        for index, wish in enumerate(wishes * 3)
    ]
    wanted = answers(calls, device=device, overlap=False, sampling="plain")
    assert answers(calls, device=device, overlap=True) == wanted


def test_flashinfers_sampler_leaves_greedy_answers_as_they_are(prompts, answers, device) -> None:
    pytest.importorskip("flashinfer")
    wanted = answers(prompts, device=device)
    assert answers(prompts, device=device, sampling="flashinfer") == wanted
