"""The same answers from one engine, from several, and from a server over several."""

from __future__ import annotations

import os
import signal

import pytest

import forkroot
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.router.policies import POLICIES
from forkroot.adapters.router.router import Router

from ...serving import serving

SETTINGS = {"dtype": "float32", "num_slots": 4000}
QUESTIONS = [f"The river runs past the old stone house. Question {n}:" for n in range(6)]


def answers(backend: forkroot.Backend) -> list[str]:
    sampling = forkroot.Sampling(max_tokens=8, temperature=0.0)
    calls = [forkroot.Call((forkroot.Text(it),), sampling, stream=True) for it in QUESTIONS]
    replies = [backend.submit(call) for call in calls]
    return [reply.result(120).text for reply in replies]


@pytest.mark.slow
def test_four_replicas_give_the_answers_of_one_by_every_policy_here_and_over_http() -> None:
    with forkroot.connect("tiny", **SETTINGS) as one:
        expected = answers(one)
    for policy in POLICIES:
        with forkroot.connect("tiny", replicas=4, policy=policy, **SETTINGS) as four:
            assert answers(four) == expected
            assert isinstance(four, Router)
            server = serving(Runtime(four, four.tokenizer, ("tiny",)))
            with server as url, forkroot.connect(url) as remote:
                assert answers(remote) == expected


def test_one_two_and_served_replicas_give_the_same_answers_also_after_a_death() -> None:
    with forkroot.connect("tiny", **SETTINGS) as one:
        expected = answers(one)
    two = forkroot.connect("tiny", replicas=2, policy="round-robin", **SETTINGS)
    assert isinstance(two, Router)
    with two:
        assert answers(two) == expected
        assert {view.sent for view in two.replicas} == {3}
        with serving(Runtime(two, two.tokenizer, ("tiny",))) as url:
            with forkroot.connect([url]) as routed:
                assert answers(routed) == expected
            os.kill(two.fleet.named("0").backend.pid, signal.SIGKILL)
            with forkroot.connect(url) as remote:
                assert answers(remote) == expected
        two.check()
