"""Calls with pictures: the same answers however they are computed, and the tower runs once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.benchmarks.common.fake_media import FakeProcessor, clip, picture
from forkroot.benchmarks.common.fake_runner import FakeRunner
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.protocol import (
    Call,
    CallFailed,
    CallTooLarge,
    Image,
    InvalidCall,
    Sampling,
    Text,
    Tokens,
    UnsupportedCall,
    Video,
)


class Watched(FakeRunner):
    """Notes what each batch has the tower compute, and what is stored after it.

    fails_at: numbers of batches that raise.
    """

    def __init__(self, num_slots: int = 600, fails_at: tuple[int, ...] = ()) -> None:
        super().__init__(num_slots)
        self.fails_at = fails_at
        self.batches: list[Batch] = []
        self.stored: list[int] = []
        self._sizes: dict[bytes, int] = {}

    def run(self, batch: Batch) -> Outcome:
        self.batches.append(batch)
        self._sizes |= {it.digest: it.pixels.layout.num_features for it in batch.encodes}
        if len(self.batches) in self.fails_at:
            self.forget()
            raise RuntimeError("this batch fails")
        outcome = super().run(batch)
        self.stored.append(sum(self._sizes[key] for key in self.features.stored))
        return outcome

    def costs(self) -> list[int]:
        """Tower tokens of each batch."""
        return [
            sum(sum(it.pixels.layout.unit_costs[unit] for unit in it.units) for it in batch.encodes)
            for batch in self.batches
        ]


def ask(*segments: Any, **options: Any) -> Call:
    """A greedy call of texts and pictures."""
    sampling = {"temperature": 0.0, "max_tokens": 5} | {
        name: options.pop(name) for name in list(options) if name in Sampling.__slots__
    }
    prompt = tuple(Text(it) if isinstance(it, str) else it for it in segments)
    return Call(prompt, Sampling(**sampling), **options)


CALLS = (
    ask("What is in ", picture(3, 7), "?"),
    ask("What is in ", picture(3, 7), "? And where?"),
    ask("Compare ", picture(3, 7), " with ", picture(2, 9, 1), ": "),
    ask("Compare ", picture(2, 9, 1), " with ", picture(3, 7), ": "),
    ask(picture(1, 30, 2)),
    ask("This moves: ", clip(2, 4, 3), " does it?", n=3, temperature=1.0, seed=4),
    ask("No picture here", repetition_penalty=1.2),
    ask("A picture ", picture(4, 4), " here", repetition_penalty=1.2),
)


@pytest.fixture
def shown(bench) -> Callable[..., Any]:
    """A bench whose model takes pictures, with these settings."""

    def make(is_rotary: bool = False, runner: FakeRunner | None = None, **options: Any) -> Any:
        runner = Watched() if runner is None else runner
        return bench(runner, processor=FakeProcessor(is_rotary), **options)

    return make


def texts(results: list[Any]) -> list[list[str]]:
    return [[output.text for output in result.outputs] for result in results]


@pytest.fixture(scope="module")
def answers(bench) -> list[list[str]]:
    """What each call answers by itself, in one piece and without a cache."""
    found = []
    for call in CALLS:
        alone = bench(Watched(), processor=FakeProcessor(), cache=False, chunk_tokens=250)
        found += texts(alone.run([call]))
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cache": False},
        {"chunk_tokens": 7},
        {"chunk_tokens": 1},
        {"retract_every": 3},
        {"retract_every": 3, "overlap": True},
        {"overlap": True, "chunk_tokens": 5},
        {"feature_slots": 30},
        {"feature_slots": 30, "overlap": True, "chunk_tokens": 9},
        {"feature_slots": 30, "retract_every": 3, "chunk_tokens": 9},
        {"tower_tokens": 1},
        {"tower_tokens": 20, "overlap": True},
        {"num_slots": 120, "max_running": 3},
        {"max_running": 1, "host_slots": 200, "num_slots": 100},
    ],
)
def test_answers_do_not_depend_on_how_pictures_are_computed(shown, answers, options):
    runner = None if options.get("overlap") else Watched(options.get("num_slots", 600))
    if runner is None or options.get("host_slots"):
        runner = FakeRunner(options.get("num_slots", 600), num_host=options.get("host_slots", 0))
    made = shown(runner=runner, **options)
    assert texts(made.run(CALLS)) == answers
    assert texts(made.run(CALLS)) == answers


@pytest.mark.parametrize("fails_at", [(1,), (2,), (3,), (2, 3), (4, 6), (1, 3, 5)])
def test_a_batch_that_fails_costs_time_and_no_answer(shown, answers, fails_at):
    runner = Watched(fails_at=fails_at)
    made = shown(runner=runner, tower_tokens=20, chunk_tokens=16)
    results = made.run(CALLS)
    failed = [it for it in results if isinstance(it, CallFailed)]
    kept = [
        (text, answer)
        for result, answer in zip(results, answers, strict=True)
        if not isinstance(result, CallFailed)
        for text, answer in zip(texts([result])[0], answer, strict=True)
    ]
    assert all(text == answer for text, answer in kept)
    assert len(failed) <= len(fails_at), "calls fail that are not at fault"
    assert texts(made.run(CALLS)) == answers


def test_the_second_question_on_a_picture_computes_none_of_it(shown):
    made = shown()
    made.run([ask("In the picture ", picture(4, 8), " who is it?")])
    assert made.runner.features.num_units == 4
    num_computed = made.runner.num_computed
    (result,) = made.run([ask("In the picture ", picture(4, 8), " what does it do?")])
    assert made.runner.features.num_units == 4
    assert result.usage.image_tokens == 32
    assert result.usage.cached_tokens >= len("In the picture ") + 1 + 32 + 3 + 1
    assert made.runner.num_computed - num_computed <= len("what does it do?") + 5 + 4
    assert made.engine.counters.pictures_encoded == 1
    assert made.engine.counters.tower_tokens == 64
    assert made.engine.counters.image_tokens == 64


def test_features_outlive_keys_and_values_that_were_evicted(shown):
    made = shown(num_slots=100)
    question = ask("Look: ", picture(5, 8), "?")
    (first,) = made.run([question])
    made.run([ask("x" * 90)])
    (second,) = made.run([question])
    assert second.usage.cached_tokens < 20
    assert made.runner.features.num_units == 5
    assert made.engine.counters.features_cached == 40
    assert first.text == second.text


def test_calls_of_a_picture_that_come_together_encode_it_once(shown):
    made = shown(cache=False)
    made.run([ask(f"Question {i}: ", picture(4, 8), "?") for i in range(6)])
    assert made.runner.features.num_units == 4


def test_samples_and_options_share_a_picture(shown):
    made = shown(cache=False)
    made.run(
        [
            ask("Who: ", picture(4, 8), "?", n=4, temperature=1.0),
            ask("Which: ", picture(4, 8), " ", options=("red", "green", "blue")),
            ask("Exactly: ", picture(4, 8), " ", options=("red", "green")),
        ]
    )
    assert made.runner.features.num_units == 4


def test_options_after_a_picture_have_the_scores_of_their_own_tokens(shown):
    options = ("red", "reddish", "blue")
    made = shown(chunk_tokens=9)
    scored = ask("It is ", picture(2, 5), options=options)
    (first,) = made.run([scored])
    (again,) = made.run([scored])
    assert [it.ids for it in first.scores] == [tuple(text.encode()) for text in options]
    assert first.scores == again.scores
    assert all(np.isfinite(it.logprobs).all() for it in first.scores)


def test_exact_scores_after_a_picture_need_it_once(constrained, bench):
    made = bench(Watched(), processor=FakeProcessor())
    made.pending_calls.constraints = made.constraints
    call = ask("It is ", picture(2, 5), " ", options=("a", "b"), scoring="exact")
    (result,) = made.run([call])
    assert all(it.bounds is not None for it in result.scores)
    assert made.runner.features.num_units == 2


def test_the_tower_computes_no_more_in_a_step_than_it_may(shown):
    made = shown(tower_tokens=40)
    made.run([ask(picture(3, 9, i), " and ", clip(3, 3, 4, i), "?") for i in range(5)])
    costs = made.runner.costs()
    assert max(costs) <= 40
    assert sum(costs) == 5 * (3 * 18 + 4 * 18)
    lone = shown(tower_tokens=5)
    lone.run([ask(picture(3, 9), "?")])
    assert [cost for cost in lone.runner.costs() if cost] == [18, 18, 18]


def test_no_more_features_are_stored_than_there_is_room_for(shown):
    made = shown(feature_slots=50, cache=False)
    made.run([ask(picture(3, 9, i), picture(2, 20, i), "?") for i in range(8)])
    assert 40 <= max(made.runner.stored) <= 50


def test_a_picture_of_more_features_than_there_is_room_for_is_refused(shown):
    made = shown(feature_slots=50)
    (result,) = made.run([ask(picture(3, 17), "?")])
    assert isinstance(result, CallTooLarge)
    assert "image of 51 features" in str(result) and "feature_slots" in str(result)


def test_equal_pictures_share_and_different_ones_do_not(shown):
    made = shown()
    same = [made.run([ask("See ", picture(2, 6), "!")])[0] for _ in range(2)]
    other, taller, moving = made.run(
        [ask("See ", it, "!") for it in (picture(2, 6, 1), picture(6, 2), clip(2, 6, 1))]
    )
    assert same[1].usage.cached_tokens == same[1].usage.prompt_tokens - 1
    for result in (other, taller, moving):
        assert result.usage.cached_tokens <= len("See ") + 1
    assert same[0].text == same[1].text != other.text


def test_namespaces_share_no_features_and_no_keys(shown):
    made = shown()
    for options in ({"namespace": "a"}, {"namespace": "b"}, {"tenant": "t"}, {"tenant": "u"}):
        made.run([ask("See ", picture(2, 6), "!", **options)])
        made.run([ask("Look: ", picture(2, 6), "!", **options)])
    assert made.runner.features.num_units == 6


def test_a_cleared_cache_forgets_features(shown):
    made = shown()
    made.run([ask("See ", picture(2, 6), "!")])
    made.engine.clear_cache()
    assert made.engine.load()["features"] == 0
    made.run([ask("No picture")])
    assert not made.runner.features.stored
    made.run([ask("See ", picture(2, 6), "!")])
    assert made.runner.features.num_units == 4


def test_a_call_that_ends_early_leaves_nothing_behind(shown):
    made = shown(tower_tokens=12, feature_slots=40)
    reply = made.submit(ask(picture(5, 6), "?"))
    made.step()
    made.cancel(reply)
    made.drain()
    assert reply.result().outputs[0].finish_reason == "abort"
    (result,) = made.run([ask(picture(4, 9), "?")])
    assert len(result.outputs[0].ids) == 5


def test_a_deadline_ends_a_call_whose_picture_is_being_encoded(shown):
    made = shown(tower_tokens=1)
    reply = made.submit(ask(picture(5, 6), "?", deadline=2.0))
    made.step()
    made.now = 3.0
    made.drain()
    assert "deadline" in str(reply.error())


def test_a_picture_whose_pixels_cannot_be_made_fails_its_calls_alone(shown):
    made = shown()

    def prepare(it: Any) -> None:
        if it.layout.num_features == 12:
            it.error = ValueError("no pixels")
        else:
            type(made).prepare(made, it)

    made.prepare = prepare
    made.scheduler.features._prepare = prepare
    bad, good = made.run([ask(picture(2, 6), "?"), ask(picture(2, 5), "?")])
    assert isinstance(bad, CallFailed) and "no pixels" in str(bad)
    assert len(good.outputs[0].ids) == 5


def test_penalties_and_prompts_leave_out_features(shown):
    made = shown()
    made.run([ask("ab", picture(2, 3), "cd", repetition_penalty=1.5)])
    prompts = [it.prompt for batch in made.runner.batches for it in batch.sampling_params]
    expected = [*b"ab", 253, 252, 251, *b"cd"]
    assert prompts and all(prompt.tolist() == expected for prompt in prompts)


def test_only_tokens_behind_the_last_picture_are_scored(shown):
    made = shown()
    call = ask("ab", picture(2, 3), "cdef", scored_from=12, max_tokens=0, logprobs=1)
    (result,) = made.run([call])
    assert [it.id for it in result.prompt_logprobs] == [*b"def"]
    (refused,) = made.run([ask("ab", picture(2, 3), "cdef", scored_from=9, max_tokens=0)])
    assert isinstance(refused, InvalidCall)
    assert "scored_from=9: expected at least 10" in str(refused)


@pytest.mark.parametrize("chunk_tokens", [64, 5])
@pytest.mark.parametrize("retract_every", [0, 3])
def test_rotary_positions_go_on_behind_pictures(shown, chunk_tokens, retract_every):
    made = shown(is_rotary=True, chunk_tokens=chunk_tokens, retract_every=retract_every)
    made.run([ask("abc", picture(2, 4), "de", max_tokens=4), ask("no picture", max_tokens=4)])
    seen: dict[int, tuple[int, ...]] = {}
    plain = []
    for batch in made.runner.batches:
        if batch.parts is None:
            continue
        for start, count, row in zip(batch.starts, batch.lens, batch.rows, strict=True):
            first = int(np.flatnonzero((batch.rows == row).repeat(batch.lens))[0])
            for i in range(first, first + count):
                seen_parts = tuple(batch.parts[:, i].tolist())
                if len(set(seen_parts)) == 1 == len({*seen_parts, int(batch.positions[i])}):
                    plain.append(i)
                else:
                    index = int(start) + i - first
                    assert seen.setdefault(index, seen_parts) == seen_parts
    rows = [(4, 4 + step, 4 + step) for step in (0, 0, 1, 1, 2, 2, 3, 3, 4)]
    expected = dict(enumerate(rows, 4)) | {13 + i: (9 + i,) * 3 for i in range(6)}
    del expected[4]  # the first is like any token's
    assert plain and seen == expected


@pytest.mark.parametrize(
    ("segment", "kinds"), [(Image(b"abc"), ("image",)), (Video(b"...", 2), ("image", "video"))]
)
def test_what_is_no_picture_is_refused(bench, segment, kinds):
    made = bench(processor=FakeProcessor(kinds=kinds))
    (result,) = made.run([ask("See ", segment)])
    assert isinstance(result, InvalidCall) and "a picture of 4 bytes" in str(result)


def test_a_clip_for_a_model_of_pictures_is_refused(bench):
    (result,) = bench(processor=FakeProcessor(kinds=("image",))).run([ask(clip(1, 1, 1))])
    assert isinstance(result, UnsupportedCall)
    assert "video" in str(result) and "tokens and images" in str(result)


@pytest.mark.parametrize("token", [255, 300, -1])
def test_no_ids_of_a_caller_stand_for_features(shown, token):
    (result,) = shown().run([ask(Tokens((65, token, 66)), picture(1, 2))])
    assert isinstance(result, InvalidCall)


@settings(max_examples=25)
@given(data=st.data())
def test_features_are_there_when_they_are_read_and_budgets_hold(bench, data):
    """`FakeFeatures` checks each batch, `Bench` each step."""
    sources = st.builds(picture, st.integers(1, 3), st.integers(1, 9), st.integers(0, 3))
    clips = st.builds(clip, st.integers(1, 2), st.integers(1, 3), st.integers(1, 3))
    segments = st.lists(
        st.one_of(sources, clips, st.sampled_from(("a", "bcd", "e" * 9))), max_size=5
    )
    slots = data.draw(st.integers(27, 60))
    runner = Watched()
    retract_every = data.draw(st.sampled_from((0, 0, 3, 5)))
    made = bench(
        runner,
        retract_every,
        processor=FakeProcessor(data.draw(st.booleans())),
        feature_slots=slots,
        tower_tokens=data.draw(st.integers(1, 60)),
        chunk_tokens=data.draw(st.sampled_from((3, 16, 64))),
        num_slots=data.draw(st.sampled_from((250, 600))),
        cache=retract_every > 0 or data.draw(st.booleans()),  # else no work outlives a retraction
        overlap=data.draw(st.booleans()),
    )
    replies = []
    for _ in range(data.draw(st.integers(1, 8))):
        prompt = data.draw(segments)
        namespace = data.draw(st.sampled_from(("", "other")))
        replies.append(made.submit(ask(*prompt, "?", namespace=namespace, max_tokens=3)))
        for _ in range(data.draw(st.integers(0, 3))):
            made.step()
        if data.draw(st.integers(0, 5)) == 0:
            made.cancel(data.draw(st.sampled_from(replies)))
        if data.draw(st.integers(0, 9)) == 0:
            made.engine.clear_cache()
    made.drain(2_000)
    assert [reply.error() for reply in replies if reply.error()] == []
    assert max(runner.stored, default=0) <= slots
    made.engine.clear_cache()
    assert made.engine.load()["features"] == 0
