"""What ended calls leave behind: what nobody uses again goes first, and short rests are first."""

from __future__ import annotations

import pytest

from forkroot.core.api.protocol import Call, ForkHint, Sampling, Tokens
from forkroot.core.engine.endings import FEWEST

SHARED = tuple(range(1, 41))


def ask(world, *ids, hint=None, max_tokens=2):
    """A call from start to end."""
    sampling = Sampling(max_tokens=max_tokens, temperature=0, ignore_eos=True)
    reply = world.submit(Call((Tokens(ids),), sampling, hint=hint))
    world.drain()
    return reply


def left(world, *ids):
    """How many of these tokens are cached."""
    return world.cache.match("", ids, len(ids)).length


@pytest.fixture
def crowded(bench):
    """A pool that shared tokens and a few calls fill."""

    def make(hints=True):
        world = bench(num_slots=120, max_running=1, hints=hints)
        ask(world, *SHARED, 200)
        return world

    return make


def test_text_that_a_hint_does_not_use_again_goes_before_older_text(crowded):
    world = crowded()
    chat = (*SHARED, *range(100, 115))
    ask(world, *chat, hint=ForkHint("", program="chat", next_use=1))
    for number in range(8):
        hint = ForkHint("", program=f"vote {number}", next_use=0)
        ask(world, *SHARED, *range(50, 62), 210 + number, hint=hint)
    assert left(world, *chat) == len(chat)


def test_without_hints_what_was_used_least_recently_goes_first(crowded):
    world = crowded(hints=False)
    chat = (*SHARED, *range(100, 115))
    ask(world, *chat, hint=ForkHint("", program="chat", next_use=1))
    for number in range(8):
        hint = ForkHint("", program=f"vote {number}", next_use=0)
        ask(world, *SHARED, 50 + number, *range(62, 74), hint=hint)
    assert left(world, *chat) < len(chat)


def test_calls_whose_text_is_never_found_again_stop_evicting_others(crowded):
    world = crowded()
    for number in range(3 * FEWEST):
        ask(world, *SHARED, 50 + number, *range(120, 126))
    chat = (*SHARED, *range(100, 130))
    ask(world, *chat)
    for number in range(7):
        ask(world, *SHARED, 130 + number, *range(120, 126))
    assert left(world, *chat) == len(chat)


def test_the_first_call_of_many_keeps_its_prefix(crowded):
    world = crowded()
    ask(world, *range(130, 170), hint=ForkHint("", program="first", next_use=0))
    ask(world, *SHARED, *range(60, 70))
    assert left(world, *range(130, 170)) == 40


def test_of_programs_the_shortest_rest_is_served_first(bench):
    world = bench(max_running=1)
    served = []
    for left_over in (900, 30, 200):
        hint = ForkHint("", program=f"program {left_over}", tokens_left=left_over)
        call = Call((Tokens((left_over % 250, 7)),), Sampling(max_tokens=2), hint=hint)
        reply = world.submit(call)
        reply.when_done(lambda reply: served.append(reply.call.hint.tokens_left))
    world.drain()
    assert served == [30, 200, 900]


@pytest.mark.parametrize("value", [-5, 0, 10**9])
def test_a_hint_that_lies_about_its_rest_is_served_within_the_bound(bench, call, value):
    world = bench(max_running=1, context_len=64, ageing=16)
    waiting = world.submit(call("an honest call", max_tokens=1))
    ended = []
    waiting.when_done(lambda reply: ended.append(num_sent))
    num_sent = 0
    while not ended and num_sent < 64:
        hint = ForkHint("", program="liar", tokens_left=value)
        world.submit(call(f"liar {num_sent}", max_tokens=1, hint=hint))
        num_sent += 1
        world.step()
    assert ended and ended[0] <= world.queue.bound + 2


def served(world, lie):
    """After how many steps each call of an honest tenant ended, beside one that sends three times
    as many calls, with hints to lie with."""
    ended, num_steps = [], 0
    for number in range(24):
        sampling = Sampling(max_tokens=6, temperature=0, ignore_eos=True)
        ids = (*range(number % 5, 30), number)
        honest = world.submit(Call((Tokens(ids),), sampling, namespace="honest"))
        honest.when_done(lambda reply: ended.append(num_steps))
        for other in range(3):
            ids, hint = (*range(other, 40), 100 + number), ForkHint("", program="liar", **lie)
            world.submit(Call((Tokens(ids),), sampling, namespace="liar", hint=hint))
    while len(ended) < 24:
        world.step()
        num_steps += 1
    return ended


@pytest.mark.parametrize(
    "lie",
    [
        {"tokens_left": 0, "calls_left": 0, "next_use": 1},
        {"tokens_left": -(10**9), "next_use": 10**9},
        {"tokens_left": 10**12, "calls_left": -1, "next_use": 0},
        {"pause": 1e300, "next_use": 1},
    ],
)
def test_hints_that_lie_take_nothing_of_another_tenant(bench, lie):
    sizes = {"num_slots": 1200, "max_running": 4}
    before, beside = served(bench(**sizes), {"pause": None}), served(bench(**sizes), lie)
    assert beside[-1] <= 1.03 * before[-1]
    assert sum(beside) <= 1.03 * sum(before)
