"""From batches to outcomes: scores, samples, and rows that are not finite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from forkroot.core.api.batch import Batch, Query, SamplingParams
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.kernels.cpu.jit.jit import can_compile
from forkroot.kernels.cpu.linear import linear
from forkroot.kernels.cpu.linear.linear import PackedLinear, Spans

from ..conftest import NUM_SLOTS, MakeCheckpoint, Placement, load, plain


@pytest.fixture(scope="module")
def pair(make_checkpoint: MakeCheckpoint) -> tuple[ModelRunner, Any]:
    folder, theirs = make_checkpoint(max_position_embeddings=600)
    return ModelRunner(load(folder), NUM_SLOTS), theirs


def scoring(batch: Batch, ids: list[int], scored: list[int]) -> Batch:
    targets = np.array([ids[i + 1] for i in scored], np.int64)
    return replace(batch, scored=np.array(scored, np.int32), targets=targets)


def test_scores_are_the_log_probabilities_of_transformers(pair: tuple[ModelRunner, Any]) -> None:
    runner, theirs = pair
    placement = Placement(5, context_len=600)
    ids = placement.random.integers(3, 97, 500).tolist()
    scored = [0, 1, 7, *range(100, 499)]
    outcome = runner.run(scoring(placement.batch({placement.add(ids): 500}), ids, scored))
    wanted = plain(theirs, ids).log_softmax(-1)
    for score, position in zip(outcome.scores.tolist(), scored, strict=True):
        assert score == pytest.approx(float(wanted[position, ids[position + 1]]), abs=1e-4)
    assert outcome.tokens.tolist() == [int(wanted[-1].argmax())]


def test_a_batch_may_sample_nothing_or_score_alone(pair: tuple[ModelRunner, Any]) -> None:
    runner, theirs = pair
    placement = Placement(6)
    ids = placement.random.integers(3, 97, 40).tolist()
    sequence = placement.add(ids)
    silent = replace(
        placement.batch({sequence: 20}), sampled=np.empty(0, np.int32), sampling_params=()
    )
    outcome = runner.run(silent)
    assert (len(outcome.tokens), len(outcome.logprobs), len(outcome.scores)) == (0, 0, 0)
    batch = replace(
        placement.batch({sequence: 19}), sampled=np.empty(0, np.int32), sampling_params=()
    )
    score = runner.run(replace(batch, scored=np.array([18]), targets=np.array([ids[39]]))).scores
    wanted = plain(theirs, ids).log_softmax(-1)[38, ids[39]]
    assert score.tolist() == [pytest.approx(float(wanted), abs=1e-4)]


def test_a_sampled_token_comes_with_its_log_probability_and_the_top_ones(
    pair: tuple[ModelRunner, Any],
) -> None:
    runner, theirs = pair
    placement = Placement(8)
    ids = placement.random.integers(3, 97, 30).tolist()
    params = SamplingParams(temperature=1.0, seed=4, top_k=9, logprobs=3)
    outcome = runner.run(placement.batch({placement.add(ids): 30}, params))
    wanted = plain(theirs, ids)[-1].log_softmax(-1)
    assert outcome.logprobs[0] == pytest.approx(float(wanted[outcome.tokens[0]]), abs=1e-4)
    assert [token for token, _ in outcome.tops[0]] == wanted.topk(3).indices.tolist()


def test_a_sample_is_the_same_alone_and_in_a_batch(pair: tuple[ModelRunner, Any]) -> None:
    runner, _ = pair

    def answers(company: int) -> list[int]:
        placement = Placement(company)
        random = np.random.default_rng(1)
        prompts = [random.integers(3, 97, n).tolist() for n in (25, 3, 60, 9, 14)][: 1 + company]
        sequences = [placement.add(prompt) for prompt in prompts]
        counts = {s: len(prompts[s]) for s in sequences}
        tokens = []
        for step in range(12):
            params = SamplingParams(temperature=1.3, seed=77, index=step, top_p=0.9)
            for s, token in enumerate(runner.run(placement.batch(counts, params)).tokens.tolist()):
                placement.ids[s].append(token)
            tokens.append(placement.ids[0][-1])
            counts = dict.fromkeys(sequences, 1)
        return tokens

    assert answers(0) == answers(2) == answers(4)


def test_only_logits_that_are_allowed_are_computed_and_change_nothing(
    make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "_WHOLE", 0)
    folder, _ = make_checkpoint(vocab_size=3000)
    if not can_compile():
        pytest.skip("needs numba")
    runner, columns, lanes = ModelRunner(load(folder), NUM_SLOTS), list[int](), set[int]()
    some = PackedLinear.some

    def noted(kernel: PackedLinear, x: torch.Tensor, spans: Spans) -> torch.Tensor:
        columns.append(kernel.lanes * sum(last - first for first, last in spans))
        lanes.add(kernel.lanes)
        return some(kernel, x, spans)

    monkeypatch.setattr(PackedLinear, "some", noted)
    words = np.zeros((2, 94), np.int32)
    words[0, [2, 50]], words[1, 71] = 0b1011, 0b110
    prompts = [[5, 6, 7], [8, 9], [10, 11, 12, 13]]

    def tokens(all_params: list[SamplingParams]) -> list[int]:
        placement = Placement(5)
        counts = {placement.add(ids): len(ids) for ids in prompts[: len(all_params)]}
        return runner.run(
            replace(placement.batch(counts), sampling_params=tuple(all_params))
        ).tokens.tolist()

    for params in (
        SamplingParams(),
        SamplingParams(temperature=1.5, seed=3),
        SamplingParams(repetition_penalty=1.3),
    ):
        used = {"generated": np.array([66, 67], np.int32)} if params.repetition_penalty > 1 else {}
        masked = [replace(params, mask=mask, **used) for mask in words]
        columns.clear()
        found = tokens(masked)
        assert len(columns) == 1
        assert columns[0] <= 3 * max(lanes)
        assert [words[row, token // 32] >> token % 32 & 1 for row, token in enumerate(found)] == [
            1,
            1,
        ]
        for extra in (
            SamplingParams(),
            SamplingParams(mask=words[0], logprobs=1),
            SamplingParams(mask=words[0], log_mass=True),
        ):
            assert tokens([*masked, extra])[:2] == found
        assert len(columns) == 1  # where more is requested, all are computed


def test_numbers_that_are_not_finite_end_one_sequence_only(
    make_checkpoint: MakeCheckpoint,
) -> None:
    folder, theirs = make_checkpoint()
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"][50] = torch.nan
    save_file(tensors, folder / "model.safetensors")
    runner, placement = ModelRunner(load(folder), NUM_SLOTS), Placement()
    good, bad = placement.add([5, 6, 7, 8]), placement.add([5, 50, 7, 8])
    batch = placement.batch({good: 4, bad: 4}, SamplingParams(logprobs=1))
    batch = replace(batch, scored=np.array([0, 5], np.int32), targets=np.array([6, 7]))
    outcome = runner.run(batch)
    assert outcome.tokens.tolist() == [int(plain(theirs, [5, 6, 7, 8])[-1].argmax()), -1]
    assert np.isfinite(outcome.scores).tolist() == [True, False]


def test_queries_are_answered_in_float64(pair: tuple[ModelRunner, Any]) -> None:
    runner, theirs = pair
    placement = Placement(12)
    prompts = [placement.random.integers(3, 97, size).tolist() for size in (9, 5, 30)]
    counts = {placement.add(ids): len(ids) for ids in prompts}
    batch = placement.batch(counts)
    ends = np.cumsum(batch.lens).astype(np.int32) - 1
    sets = (np.array([5, 7, 9], np.int32), np.empty(0, np.int32), np.arange(97, dtype=np.int32))
    queries = tuple(Query(np.array([4, token]), sets) for token in (1, 60, 96))
    silent = replace(batch, sampled=np.empty(0, np.int32), sampling_params=())
    answers = runner.run(replace(silent, queried=ends, queries=queries)).answers
    for ids, query, answer in zip(prompts, queries, answers, strict=True):
        wanted = plain(theirs, ids)[-1].double().log_softmax(-1)
        assert answer.logprobs.dtype == np.float64
        assert answer.logprobs == pytest.approx(wanted[query.tokens].numpy(), abs=1e-4)
        some, none, every = answer.log_masses
        assert some == pytest.approx(float(wanted[[5, 7, 9]].logsumexp(-1)), abs=1e-4)
        assert (none, every) == (-np.inf, pytest.approx(0.0, abs=1e-12))
