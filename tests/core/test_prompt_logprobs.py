"""Log-probabilities of a prompt's tokens: the same whatever is cached, cut or retracted."""

from __future__ import annotations

import pytest

from forkroot.core.protocol import Call, InvalidCall, Regex, TokenLogprob

TEXT = "a prompt of a few chunks, in which every token counts"


def told(answer) -> tuple[TokenLogprob, ...]:
    assert not isinstance(answer, BaseException), answer
    return answer.prompt_logprobs


def test_there_is_one_for_each_token_from_the_place_that_is_asked_for(bench, call):
    (whole,) = bench().run([call(TEXT, scored_from=0)])
    assert [one.id for one in told(whole)] == list(TEXT[1:].encode())
    for start in (1, 2, 30, len(TEXT) - 1, len(TEXT), 10 * len(TEXT)):
        (answer,) = bench().run([call(TEXT, scored_from=start)])
        assert told(answer) == told(whole)[max(0, start - 1) :]
        assert answer.outputs == whole.outputs
    assert told(bench().run([call(TEXT)])[0]) == ()


@pytest.mark.parametrize("chunk_tokens", [2, 7, 64])
@pytest.mark.parametrize("retract_every", [0, 1, 3])
def test_chunks_caches_and_retraction_change_none(bench, call, chunk_tokens, retract_every):
    wanted = call(TEXT, scored_from=1, logprobs=2)
    (alone,) = bench().run([wanted])
    assert all(len(one.top) == 2 for one in told(alone))
    world = bench(chunk_tokens=chunk_tokens, retract_every=retract_every)
    others = [call(TEXT, scored_from=9), call(TEXT + "!", max_tokens=9), call(TEXT, logprobs=1)]
    for _ in range(2):
        answer, *rest = world.run([wanted, *others])
        assert told(answer) == told(alone)
        assert answer.outputs == alone.outputs
        assert [one.top for one in told(rest[0])] == [()] * (len(TEXT) - 9)
        assert rest[2].outputs[0].ids == alone.outputs[0].ids


def test_a_prompt_can_be_scored_without_an_answer(bench, call):
    world = bench()
    first, again = (world.run([call(TEXT, max_tokens=0, scored_from=20)])[0] for _ in range(2))
    assert told(first) == told(again) == told(world.run([call(TEXT, scored_from=20)])[0])
    assert first.outputs[0].ids == ()
    assert again.usage.cached_tokens == 19  # what comes before the first scored token


def test_samples_of_one_prompt_share_its_scores(bench, call):
    (one,) = bench().run([call(TEXT, scored_from=1)])
    (many,) = bench().run([call(TEXT, scored_from=1, n=3)])
    assert told(many) == told(one)
    assert len(many.outputs) == 3


def test_a_constraint_leaves_them_as_they_are(bench, call):
    (plain,) = bench().run([call(TEXT, scored_from=1)])
    world = bench()
    world.intake.constraints = world.constraints
    (held,) = world.run([call(TEXT, scored_from=1, constraint=Regex("forced [ab]"), max_tokens=20)])
    assert told(held) == told(plain)
    assert held.text[:-1] == "forced "


@pytest.mark.parametrize("place", [-1, 1.0, "1", True])
def test_a_place_that_is_none_is_refused(place, call):
    with pytest.raises(InvalidCall, match="scored_from"):
        call(TEXT, scored_from=place).check()


def test_options_have_scores_of_their_own(call):
    with pytest.raises(InvalidCall, match="scored_from"):
        Call(call(TEXT).prompt, options=("a",), scored_from=1).check()
