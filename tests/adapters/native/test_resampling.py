"""Answers resampled by their log-masses: in the right proportions, with all meta information."""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter

import pytest

from forkroot.adapters.native import function, gen
from forkroot.adapters.native.interpreter.resampling import (
    effective_sample_size,
    relative_weights,
    resampled,
)
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.keywords import UnknownKeyword
from forkroot.core.api.protocol import Completion, Output, Text, UnsupportedCall, Usage
from forkroot.core.local import LocalBackend

pytestmark = pytest.mark.timeout(180)


def weighed(*pairs: tuple[str, float]) -> Completion:
    outputs = (
        Output(text, (index,), segments=(Text(text, (index,)),), log_mass=log_mass)
        for index, (text, log_mass) in enumerate(pairs)
    )
    return Completion(tuple(outputs), Usage(5, 2, 7))


def test_samples_follow_the_weights_of_the_candidates() -> None:
    completion = weighed(("a", math.log(0.6)), ("b", math.log(0.3)), ("c", math.log(0.1)))
    found: Counter[str] = Counter()
    for seed in range(2000):
        found.update(output.text for output in resampled(completion, seed)[0].outputs)
    shares = [found[text] / found.total() for text in "abc"]
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.02)


def test_resampling_undoes_what_masking_distorts() -> None:
    """The model begins with x in 1 of 100 answers, y or z follows; or else with w, after which only
    one answer in 33 is valid: masked, wv comes 99 times as often as the other two together."""
    true = {"xy": 0.005, "xz": 0.005, "wv": 0.03}
    candidates = [("xy", 0.0)] * 5 + [("xz", 0.0)] * 5 + [("wv", math.log(0.03 / 0.99))] * 990
    found: Counter[str] = Counter()
    for seed in range(40):
        found.update(output.text for output in resampled(weighed(*candidates), seed)[0].outputs)
    for text, share in true.items():
        assert found[text] / found.total() == pytest.approx(share / sum(true.values()), abs=0.02)


def test_the_same_seed_samples_the_same_and_others_do_not() -> None:
    completion = weighed(*((f"{index}", 0.0) for index in range(8)))
    chosen = [resampled(completion, seed)[1]["chosen"] for seed in (7, 7, 8)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len({tuple(resampled(completion, None)[1]["chosen"]) for _ in range(20)}) > 1


def test_hopeless_answers_are_sampled_only_where_there_are_no_others() -> None:
    some, result = resampled(weighed(("a", -math.inf), ("b", -2000.0)), 0)
    assert [output.text for output in some.outputs] == ["b", "b"]
    assert result["effective_sample_size"] == 1.0
    assert relative_weights([-math.inf, -math.inf]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("weights", "size"), [([1, 1, 1, 1], 4), ([1, 0, 0, 0], 1), ([1, 0.5], 1.8)]
)
def test_the_effective_sample_size_counts_equal_weights(weights, size):
    assert effective_sample_size(weights) == pytest.approx(size)


def test_a_program_gets_the_resampled_answers_and_meta_of_all() -> None:
    @function
    def body(s):
        s += "?" + gen("x", n=3, resample=True, regex="[ab]", seed=1, stream=True) + "!"
        s += gen("y")

    first = weighed(("a", -1.0), ("b", -900.0), ("a", -900.0))
    backend = ScriptedBackend([first, "ok"])
    state = body.run(backend=backend)
    assert state["x"] == ["a", "a", "a"]
    assert state.text() == "?a!ok"
    assert list(state.text_iter("x")) == ["a"]
    assert "".join(state.text_iter()) == "?a!ok"
    call = backend.calls[0]
    assert (call.sampling.log_mass, call.sampling.n, call.stream) == (True, 3, False)
    assert backend.calls[1].prompt == (Text("?"), Text("a", (0,)), Text("!"))
    meta = state.get_meta_info("x")
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (5, 7)
    assert meta["log_mass"] == [-1.0, -1.0, -1.0]
    assert meta["ids"] == [(0,), (0,), (0,)]
    assert meta["forced"] == [(), (), ()]
    assert meta["candidates"] == ["a", "b", "a"]
    assert meta["candidate_log_masses"] == [-1.0, -900.0, -900.0]
    assert meta["chosen"] == [0, 0, 0]
    assert meta["effective_sample_size"] == 1.0


def test_a_backend_without_log_masses_ends_the_state() -> None:
    @function
    def body(s):
        s += gen("x", n=2, resample=True, regex="[ab]")

    with pytest.raises(UnsupportedCall, match="log-mass") as caught:
        body.run(backend=ScriptedBackend("a"))
    assert caught.value.__notes__ == ["in gen('x')"]


def test_an_unknown_keyword_survives_a_process_border() -> None:
    error = pickle.loads(pickle.dumps(UnknownKeyword("temprature", 1, {"temperature"})))
    assert str(error) == ("invalid temprature=1: expected temperature; did you mean temperature?")


def test_the_embedded_model_is_resampled_the_same_way_twice() -> None:
    @function
    def body(s):
        s += "The town of" + gen("x", 8, n=8, resample=True, regex=" [A-Z][a-z]{2,6}", seed=3)

    with LocalBackend.from_folder("tiny", num_slots=4096, context_len=256) as backend:
        states = [body.run(backend=backend, temperature=1.0) for _ in range(2)]
    one, other = states
    assert one["x"] == other["x"]
    assert all(re.fullmatch(" [A-Z][a-z]{2,6}", text) for text in one["x"])
    meta = one.get_meta_info("x")
    assert one["x"] == [meta["candidates"][index] for index in meta["chosen"]]
    assert all(log_mass < 0 for log_mass in meta["candidate_log_masses"])
    assert 1 <= meta["effective_sample_size"] < 7.9
