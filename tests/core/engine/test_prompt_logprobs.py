"""Log-probabilities of a prompt's tokens: the same whatever is cached, cut or retracted."""

from __future__ import annotations

import pytest

from forkroot.core.api.protocol import Call, InvalidCall, Regex, TokenLogprob

TEXT = "a prompt of a few chunks, in which every token counts"


SHOTS = "".join(f"Q: question {i}? A: answer {i}. " for i in range(5))
OPTIONS = ("Q: six? A: one", "Q: six? A: two", "Q: six? A: six", "Q: six? A: nil")


def logprobs_of(answer) -> tuple[TokenLogprob, ...]:
    assert not isinstance(answer, BaseException), answer
    return answer.prompt_logprobs


def test_there_is_one_for_each_token_from_the_requested_position_on(bench, call):
    (whole,) = bench().run([call(TEXT, scored_from=0)])
    assert [one.id for one in logprobs_of(whole)] == list(TEXT[1:].encode())
    for start in (1, 2, 30, len(TEXT) - 1, len(TEXT), 10 * len(TEXT)):
        (answer,) = bench().run([call(TEXT, scored_from=start)])
        assert logprobs_of(answer) == logprobs_of(whole)[max(0, start - 1) :]
        assert answer.outputs == whole.outputs
    assert logprobs_of(bench().run([call(TEXT)])[0]) == ()


@pytest.mark.parametrize("chunk_tokens", [2, 7, 64])
@pytest.mark.parametrize("retract_every", [0, 1, 3])
def test_chunks_caches_and_retraction_change_none(bench, call, chunk_tokens, retract_every):
    wanted = call(TEXT, scored_from=1, logprobs=2)
    (alone,) = bench().run([wanted])
    assert all(len(one.top) == 2 for one in logprobs_of(alone))
    world = bench(chunk_tokens=chunk_tokens, retract_every=retract_every)
    others = [call(TEXT, scored_from=9), call(TEXT + "!", max_tokens=9), call(TEXT, logprobs=1)]
    for _ in range(2):
        answer, *rest = world.run([wanted, *others])
        assert logprobs_of(answer) == logprobs_of(alone)
        assert answer.outputs == alone.outputs
        assert [one.top for one in logprobs_of(rest[0])] == [()] * (len(TEXT) - 9)
        assert rest[2].outputs[0].ids == alone.outputs[0].ids


def test_a_prompt_can_be_scored_without_an_answer(bench, call):
    world = bench()
    first, again = (world.run([call(TEXT, max_tokens=0, scored_from=20)])[0] for _ in range(2))
    assert (
        logprobs_of(first)
        == logprobs_of(again)
        == logprobs_of(world.run([call(TEXT, scored_from=20)])[0])
    )
    assert first.outputs[0].ids == ()
    assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, len(TEXT))


def test_samples_of_one_prompt_share_its_scores(bench, call):
    (one,) = bench().run([call(TEXT, scored_from=1)])
    (many,) = bench().run([call(TEXT, scored_from=1, n=3)])
    assert logprobs_of(many) == logprobs_of(one)
    assert len(many.outputs) == 3


def test_a_constraint_leaves_them_as_they_are(bench, call):
    (plain,) = bench().run([call(TEXT, scored_from=1)])
    world = bench()
    world.pending_calls.constraints = world.constraints
    (held,) = world.run([call(TEXT, scored_from=1, constraint=Regex("forced [ab]"), max_tokens=20)])
    assert logprobs_of(held) == logprobs_of(plain)
    assert held.text[:-1] == "forced "


@pytest.mark.parametrize("place", [-1, 1.0, "1", True])
def test_an_invalid_position_is_refused(place, call):
    with pytest.raises(InvalidCall, match="scored_from"):
        call(TEXT, scored_from=place).check()


def test_options_have_scores_of_their_own(call):
    with pytest.raises(InvalidCall, match="scored_from"):
        Call(call(TEXT).prompt, options=("a",), scored_from=1).check()


def num_computed(world, calls) -> int:
    """How many tokens the runner computed for these calls, submitted together."""
    before = world.runner.num_computed
    for answer in world.run(calls):
        assert not isinstance(answer, BaseException), answer
    return world.runner.num_computed - before


def test_a_second_call_computes_only_the_token_that_its_answer_follows(bench, call):
    world, wanted = bench(), call(TEXT, scored_from=1, logprobs=1, max_tokens=1)
    first, again = (world.run([wanted])[0] for _ in range(2))
    assert logprobs_of(again) == logprobs_of(first)
    assert again.outputs == first.outputs
    assert again.usage.cached_tokens == len(TEXT) - 1
    assert num_computed(world, [wanted]) == 1
    assert num_computed(world, [call(TEXT, scored_from=1, logprobs=1, max_tokens=0)]) == 0


def test_what_is_new_behind_a_shared_prefix_is_computed_and_the_token_before_it(bench, call):
    world = bench()
    world.run([call(SHOTS + OPTIONS[0], scored_from=1, logprobs=1, max_tokens=0)])
    for option in OPTIONS[1:]:
        wanted = call(SHOTS + option, scored_from=1, logprobs=1, max_tokens=0)
        (alone,) = bench(logprob_bytes=0).run([wanted])
        assert logprobs_of(world.run([wanted])[0]) == logprobs_of(alone)
        assert num_computed(world, [wanted]) == 0
    fresh = call(SHOTS + "Q: seven?", scored_from=1, logprobs=1, max_tokens=0)
    assert num_computed(world, [fresh]) == 1 + len("even?")


@pytest.mark.parametrize("max_tokens", [0, 1])
@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("chunk_tokens", [7, 64, 512])
def test_prompts_that_come_together_compute_what_they_share_once(
    bench, call, max_tokens, is_warm, overlap, chunk_tokens
):
    settings = {"chunk_tokens": chunk_tokens, "overlap": overlap, "hold_min": 1}
    world = bench(**settings)
    runner = world.runner.runner if overlap else world.runner
    options = {"scored_from": 1, "logprobs": 1, "max_tokens": max_tokens}
    if is_warm:
        world.run([call(SHOTS, **options)])
    calls = [call(SHOTS + option, **options) for option in OPTIONS]
    before = runner.num_computed
    answers = world.run(calls)
    alone = [bench(logprob_bytes=0).run([one])[0] for one in calls]
    assert [logprobs_of(answer) for answer in answers] == [logprobs_of(answer) for answer in alone]
    assert [answer.outputs for answer in answers] == [answer.outputs for answer in alone]
    shared, own = len(SHOTS + "Q: six? A: "), len("one")
    new = shared + 4 * own + 3  # the last shared token once for each later one
    known = len(SHOTS) - 1 if is_warm else 0
    assert runner.num_computed - before == new - known


def test_more_alternatives_than_are_kept_are_computed_and_kept(bench, call):
    world = bench()
    few, many = (call(TEXT, scored_from=1, logprobs=k, max_tokens=0) for k in (1, 3))
    assert num_computed(world, [few]) == len(TEXT)
    assert num_computed(world, [many]) == len(TEXT)
    assert num_computed(world, [many]) == num_computed(world, [few]) == 0
    assert [len(one.top) for one in logprobs_of(world.run([few])[0])] == [1] * (len(TEXT) - 1)


def test_calls_that_want_more_do_not_wait_for_one_that_wants_less(bench, call):
    world = bench()
    few, many = (call(TEXT, scored_from=1, logprobs=k, max_tokens=0) for k in (1, 3))
    assert num_computed(world, [few, many]) == 2 * len(TEXT)


def test_a_namespace_uses_no_scores_of_another(bench, call):
    world = bench()
    for namespace in ("", "tenant"):
        wanted = call(TEXT, scored_from=1, max_tokens=0, namespace=namespace)
        assert num_computed(world, [wanted]) == len(TEXT)
        assert num_computed(world, [wanted]) == 0


def test_cached_tokens_without_scores_are_computed_again_once(bench, call):
    world, wanted = bench(), call(TEXT, scored_from=30, max_tokens=0)
    world.run([call(TEXT, max_tokens=0)])
    assert num_computed(world, [wanted]) == len(TEXT) - 29
    assert num_computed(world, [wanted]) == 0
    assert num_computed(world, [call(TEXT, scored_from=1, max_tokens=0)]) == len(TEXT)


def test_the_scores_of_options_are_kept_too(bench, call):
    world = bench()
    wanted = Call(call(SHOTS).prompt, options=OPTIONS)
    (first,) = world.run([wanted])
    assert num_computed(world, [wanted]) == 0
    assert world.run([wanted])[0].scores == first.scores


def test_scores_outlive_a_stay_on_the_host(bench, call):
    world = bench(num_slots=150, host_slots=600)
    wanted = call(TEXT, scored_from=1, logprobs=1, max_tokens=0)
    (first,) = world.run([wanted])
    world.run([call("x" * 140, max_tokens=0)])
    assert world.cache.match("", world.jobs[next(iter(world.jobs))].sequences[0].ids, 9).length
    before = world.runner.num_computed
    assert logprobs_of(world.run([wanted])[0]) == logprobs_of(first)
    assert world.runner.num_computed == before


def test_scores_take_no_more_memory_than_is_allowed(bench, call):
    world = bench(logprob_bytes=2000)
    for text in (TEXT, SHOTS, *OPTIONS, TEXT):
        wanted = call(text, scored_from=1, logprobs=5, max_tokens=0)
        assert logprobs_of(world.run([wanted])[0]) == logprobs_of(bench().run([wanted])[0])
        assert world.engine.load()["logprob_bytes"] <= 2000


def test_none_are_kept_where_no_memory_is_given(bench, call):
    world, wanted = bench(logprob_bytes=0), call(TEXT, scored_from=1, max_tokens=0)
    assert [num_computed(world, [wanted]) for _ in range(2)] == [len(TEXT)] * 2
    assert world.engine.load()["logprob_bytes"] == 0
