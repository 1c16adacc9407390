"""Which tokens a step computes: chunks, sharing inside a batch, memory, retraction."""

from __future__ import annotations

from itertools import count

import pytest

from forkroot.benchmarks.common.fake_runner import FakeRunner
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.protocol import Call, ForkHint, Sampling, Text
from forkroot.core.engine.preemption import NewTokenRatio

PROMPT = "a prompt that nobody has computed before, and that all of these calls want now, at once"


class Recorder:
    """A runner that remembers the sizes of its batches: new tokens of each sequence."""

    def __init__(self, num_slots: int = 600) -> None:
        self.runner = FakeRunner(num_slots)
        self.batches: list[list[int]] = []
        self.num_sampled: list[int] = []

    def run(self, batch: Batch) -> Outcome:
        self.batches.append(batch.lens.tolist())
        self.num_sampled.append(len(batch.sampled))
        assert len(batch.ids) == len(batch.positions) == len(batch.slots) == sum(batch.lens)
        assert len(set(batch.slots.tolist())) == len(batch.slots)
        assert len(batch.sampling_params) == len(batch.sampled)
        return self.runner.run(batch)


def test_a_long_prompt_is_computed_in_chunks_beside_decoding(bench, call):
    world = bench(Recorder(), chunk_tokens=10)
    world.submit(call("s", max_tokens=20))
    world.step()
    world.submit(call("l" * 35, max_tokens=2))
    world.drain()
    assert world.runner.batches[:6] == [[1], [1, 10], [1, 10], [1, 10], [1, 5], [1, 1]]
    assert world.runner.num_sampled[:6] == [1, 1, 1, 1, 2, 2]


def test_a_chunk_is_shared_by_prompts_that_fit_into_it(bench, call):
    world = bench(Recorder(), chunk_tokens=10)
    for size in (4, 9, 3):
        world.submit(call(str(size) * size, max_tokens=1))
    world.drain()
    assert world.runner.batches == [[4, 6], [3, 3]]


def test_no_more_run_than_there_are_rows(bench, call):
    world = bench(Recorder(), max_running=3, chunk_tokens=1000)
    world.run([call(f"{number}", max_tokens=number) for number in range(1, 9)])
    assert max(map(len, world.runner.batches)) == 3
    assert world.runner.batches[0] == [1, 1, 1]


def test_a_call_waits_for_one_that_computes_what_it_would_compute_again(bench, call):
    world = bench(Recorder(), chunk_tokens=1000)
    for end in "abc":
        world.submit(call(PROMPT + end, max_tokens=1))
    world.drain()
    size = len(PROMPT)
    assert world.runner.batches == [[size + 1], [1, 1]]


def test_a_call_waits_no_longer_than_until_what_it_shares_is_computed(bench, call):
    world = bench(Recorder(), chunk_tokens=12)
    world.submit(call("0123456789" + "x" * 10, max_tokens=1))
    world.submit(call("0123456789" + "y", max_tokens=1))
    world.drain()
    assert world.runner.batches == [[12], [1, 8]]


def test_sharing_less_than_hold_min_is_not_waited_for(bench, call):
    world = bench(Recorder(), hold_min=8)
    for text in ("1234567a", "1234567b"):
        world.submit(call(text, max_tokens=1))
    world.step()
    assert world.runner.batches == [[8, 8]]
    assert world.cache.counters.duplicated == 7


def test_a_prompt_that_runs_takes_over_what_another_cached_meanwhile(bench, call):
    world = bench(Recorder(), chunk_tokens=8, hold_min=8)
    calls = [call("s" * 12 + end, max_tokens=1) for end in ("a", "b" * 16, "b" * 16 + "c")]
    first = world.submit(calls[0])
    world.step()
    others = [world.submit(it) for it in calls[1:]]  # share 4 tokens with what the first computes
    world.drain()
    assert world.runner.batches == [[8], [5, 3], [8], [8], [1]]
    assert [it.result().usage.cached_tokens for it in (first, *others)] == [0, 9, 28]


@pytest.mark.parametrize("cancelled", [0, 1])
def test_who_waits_for_another_is_served_when_that_one_is_cancelled(bench, call, cancelled):
    world = bench(chunk_tokens=10)
    replies = [world.submit(call(PROMPT + end, max_tokens=1)) for end in "ab"]
    world.step()
    world.cancel(replies[cancelled])
    world.drain()
    assert (
        replies[1 - cancelled].result().text == bench().run([replies[1 - cancelled].call])[0].text
    )


def test_who_waits_for_another_is_served_when_that_one_fails(bench, call):
    world = bench(FakeRunner(600, fails_on=ord("F")), chunk_tokens=10)
    bad, good = (world.submit(call(PROMPT + end)) for end in ("F", "!"))
    world.drain()
    assert bad.error() is not None
    assert good.result().text == bench().run([good.call])[0].text


def test_when_memory_runs_out_the_newest_of_the_least_progressed_is_retracted(bench, call):
    world = bench(num_slots=60, max_running=8)
    ended = []
    replies = [world.submit(call(text, max_tokens=40)) for text in "ab"]
    for reply in replies:
        reply.when_done(ended.append)
    world.drain()
    assert world.scheduler.num_retracted > 0
    assert ended == replies
    for reply in replies:
        assert reply.result().text == bench().run([reply.call])[0].text


def test_after_a_retraction_more_slots_are_reserved_for_new_tokens(bench, call):
    world = bench(num_slots=200)
    for text in "abcdefgh":
        world.submit(call(text, max_tokens=60))
    world.step()
    assert len(world.scheduler.running) == 8
    world.engine.retract_all()
    world.step()
    assert len(world.scheduler.running) == 3
    world.drain()


def test_what_is_set_aside_falls_slowly_and_rises_at_once():
    estimate = NewTokenRatio()
    assert estimate.ratio == 0.4
    estimate.increase()
    assert estimate.ratio == pytest.approx(0.6)
    for _ in range(10):
        estimate.increase()
    assert estimate.ratio == 1.0
    for _ in range(5000):
        estimate.decay()
    assert estimate.ratio == estimate.low == 0.1


@pytest.mark.parametrize("order", ["lpm", "fcfs"])
def test_the_last_to_be_retracted_comes_back_first(bench, call, order):
    world = bench(order=order)
    for text in "abc":
        world.submit(call(text, max_tokens=20))
    world.step()
    first, second, third = world.scheduler.running
    for sequence in (third, second, first):
        world.scheduler.retract(sequence)
    world.step()
    assert world.scheduler.running == [first, second, third]
    world.drain()


def test_the_less_urgent_is_retracted_first(bench, call):
    world = bench(num_slots=60, max_running=8)
    ended = []
    for text, priority in (("a", 0), ("b", 1)):
        reply = world.submit(call(text, max_tokens=40, priority=priority))
        reply.when_done(lambda reply: ended.append(reply.call.priority))
    world.drain()
    assert world.scheduler.num_retracted > 0
    assert ended == [1, 0]


def test_a_retracted_sequence_goes_on_with_the_tokens_it_has(bench, call):
    world = bench(Recorder())
    reply = world.submit(call("text", max_tokens=10, temperature=1.0, seed=5, logprobs=0))
    for _ in range(4):
        world.step()
    world.scheduler.retract(world.scheduler.running[0])
    world.engine.check()
    world.drain()
    assert reply.result() == bench().run([reply.call])[0]
    # all but the last token were cached: that one is computed again, no other
    assert world.runner.batches == [[4]] + [[1]] * 9


def test_retracted_scoring_goes_on_with_the_scores_it_has(bench):
    world = bench(Recorder(), chunk_tokens=2, retract_every=3)
    call = Call((Text("text"),), options=("a very long option, far longer than three chunks",))
    answer = world.run([call])[0]
    assert world.scheduler.num_retracted > 5
    assert answer.scores == bench().run([call])[0].scores
    # a chunk is computed once; only its last token, before which the next score begins, again
    assert sum(map(sum, world.runner.batches)) <= 52 + world.scheduler.num_retracted


def test_slots_run_out_while_a_prompt_is_computed(bench, call):
    world = bench(num_slots=50, chunk_tokens=16)
    first = world.submit(call("f", max_tokens=45))
    for _ in range(20):
        world.step()
    large = world.submit(call("l" * 45, max_tokens=3))
    world.drain()
    assert first.result().text == bench().run([first.call])[0].text
    assert large.result().text == bench().run([large.call])[0].text


@pytest.mark.parametrize("order", ["lpm", "dfs", "fcfs", "random"])
@pytest.mark.parametrize("hint", [None, ForkHint("root", prefix_end=1)])
@pytest.mark.parametrize("kind", ["long prompt", "long answer", "options", "shared"])
def test_a_large_call_is_served_under_an_endless_stream_of_small_ones(
    bench, call, order, hint, kind
):
    """At most `bound` are admitted before it, and then those that wait (10); once it is overdue
    nobody is admitted before it, and what runs drains."""
    world = bench(order=order, num_slots=240, context_len=200)
    number = count()

    def small() -> Call:
        index = next(number)
        own = None if hint is None else ForkHint(f"{hint.root}{index}", None, 1)
        return call(f"{index} is small" + "x" * (index % 20), max_tokens=1 + index % 29, hint=own)

    def keep_coming() -> None:
        while world.scheduler.num_waiting < 10:
            world.submit(small())
        world.step()
        world.now += 0.02

    for _ in range(5):
        keep_coming()
    large = world.submit(
        {
            "long prompt": call("y" * 190, max_tokens=8),
            "long answer": call("z", max_tokens=190),
            "options": Call((Text("y" * 150),), options=("a" * 40, "b" * 40, "ab" * 20)),
            "shared": call("0 is smallx" * 17, max_tokens=8),
        }[kind]
    )
    job, before = world.jobs[large], num_admitted(world)
    while not any(sequence.cached_len is not None for sequence in job.sequences):
        keep_coming()
        assert num_admitted(world) - before <= world.queue.bound + 10
    for _ in range(500):
        if large.done():
            break
        keep_coming()
    assert large.done()


def num_admitted(world) -> int:
    """Sequences that run or have run."""
    sequences = [sequence for job in world.jobs.values() for sequence in job.sequences]
    return sum(sequence.cached_len is not None for sequence in sequences)


def test_what_an_expired_root_held_is_given_to_those_that_wait(bench, call):
    world = bench(num_slots=200, root_timeout=5.0)
    world.submit(call("r" * 120, max_tokens=0, hint=ForkHint("root")))
    world.drain()
    running = world.submit(call("s", max_tokens=40))
    world.step()
    waiting = world.submit(call("w" * 70, max_tokens=5))
    world.step()
    assert len(world.scheduler.running) == 1
    world.now = 6.0
    world.step()
    assert len(world.scheduler.running) == 2
    assert not running.done() and not waiting.done()
    world.drain()


def test_pins_are_counted_once_a_step_for_all_calls_of_a_tenant_that_do_not_fit(
    bench, call, monkeypatch
):
    world = bench(num_slots=200, root_timeout=5.0)
    world.submit(call("r" * 120, max_tokens=0, hint=ForkHint("root")))
    world.drain()
    world.submit(call("s", max_tokens=40))
    world.step()
    for letter in "abcdefgh":
        world.submit(call(letter * 70, max_tokens=5))
    counted, held = [], world.roots.held
    monkeypatch.setattr(world.roots, "held", lambda: counted.append(None) or held())
    world.step()
    assert len(world.scheduler.running) == 1 and world.scheduler.num_waiting == 8
    assert len(counted) == 1


def test_who_found_no_budget_in_one_step_is_looked_at_in_the_next(bench, call):
    world = bench(chunk_tokens=1)
    for text in ("a", "b"):
        world.submit(call(text, max_tokens=20))
    while min((s.num_new for s in world.scheduler.running), default=0) < 2:
        world.step()
    for sequence in list(world.scheduler.running):
        world.scheduler.retract(sequence)
    world.step()
    assert len(world.scheduler.running) == 1
    world.step()
    assert len(world.scheduler.running) == 2
    world.drain()


def test_a_call_as_large_as_the_pool_runs_alone(bench, call):
    world = bench(num_slots=100, context_len=256)
    replies = [world.submit(call(text, max_tokens=51)) for text in ("a" * 50, "b" * 50)]
    plant = world.submit(Call((Text("p" * 100),), Sampling(max_tokens=0)))
    world.drain()
    for reply in replies:
        assert reply.result().text == bench().run([reply.call])[0].text
    assert plant.error() is None
