"""The record of a call being run: what is cached, and how it is sampled."""

from __future__ import annotations

import numpy as np

from forkroot.core.api.batch import GREEDY
from forkroot.core.api.protocol import Call, Sampling, Text
from forkroot.core.api.reply import Mailbox
from forkroot.core.engine.sequence import Job, Sequence, StopRules


def start(sampling: Sampling | None = None, is_plain=False, score_start=None) -> Sequence:
    sampling = sampling or Sampling()
    call = Call((Text("abcd"),), sampling)
    max_new = sampling.max_tokens if score_start is None else 0
    rules = StopRules(frozenset({9, 8}), (b"xy", b"z"), sampling.min_tokens, max_new)
    ids = np.zeros(4 + max_new, np.int32)
    ids[:4] = [1, 2, 3, 4]
    job = Job(call, Mailbox(call))
    return Sequence(job, 0, ids, 4, 4, rules, 5, is_plain, score_start)


def test_a_generated_token_is_appended_to_the_prompt():
    sequence = start()
    sequence.append(7)
    assert sequence.tokens.tolist() == [1, 2, 3, 4, 7]
    assert sequence.generated.tolist() == [7]
    assert (sequence.num_new, sequence.num_pending) == (1, 5)


def test_the_last_token_of_a_prompt_to_be_continued_is_computed_for_its_logits():
    sequence = start()
    assert sequence.match_limit == 3
    sequence.append(7)
    assert sequence.match_limit == 4


def test_a_prefill_only_prompt_may_be_cached_whole():
    sequence = start(Sampling(max_tokens=0))
    assert sequence.match_limit == 4
    assert sequence.job.is_prefill_only


def test_what_is_scored_is_computed_from_the_token_before_it():
    sequence = start(score_start=2)
    assert not sequence.is_generating
    assert (sequence.next_scored, sequence.match_limit) == (1, 1)
    sequence.scores.append(-0.5)
    assert (sequence.next_scored, sequence.match_limit) == (2, 2)


def test_nothing_is_scored_of_a_sequence_that_generates():
    sequence = start()
    assert sequence.next_scored == sequence.num_ids


def test_the_sampling_parameters_of_a_plain_greedy_call_are_the_default():
    assert start(Sampling(temperature=0), is_plain=True).sampling_params() is GREEDY


def test_end_tokens_are_banned_before_the_least_tokens():
    sequence = start(Sampling(temperature=0, min_tokens=1), is_plain=True)
    assert sorted(sequence.sampling_params().banned) == [8, 9]
    sequence.append(7)
    assert sequence.sampling_params() is GREEDY


def test_sampling_parameters_have_all_that_was_requested():
    sampling = Sampling(
        temperature=0.5,
        top_k=3,
        top_p=0.9,
        min_p=0.1,
        logit_bias={4: -1.0},
        frequency_penalty=0.5,
        repetition_penalty=1.5,
        logprobs=2,
    )
    sequence = start(sampling)
    sequence.append(7)
    draw = sequence.sampling_params()
    assert (draw.temperature, draw.top_k, draw.top_p, draw.min_p) == (0.5, 3, 0.9, 0.1)
    assert (draw.seed, draw.index, draw.logprobs) == (5, 1, 2)
    assert (draw.logit_bias, draw.frequency_penalty) == (((4, -1.0),), 0.5)
    assert draw.generated is not None and draw.generated.tolist() == [7]
    assert draw.prompt is not None and draw.prompt.tolist() == [1, 2, 3, 4]
    sequence.append(6)
    assert draw.generated.tolist() == [7]


def test_earlier_tokens_are_passed_only_to_penalties():
    draw = start(Sampling(temperature=0.5)).sampling_params()
    assert draw.generated is None
    assert draw.prompt is None
    assert start(Sampling(presence_penalty=1.0)).sampling_params().prompt is None
    assert start(Sampling(presence_penalty=1.0)).sampling_params().generated is not None


def test_the_longest_stop_is_known():
    assert start().rules.longest_stop == 2
    assert StopRules(frozenset(), (), 0, 1).longest_stop == 0
