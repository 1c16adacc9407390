"""The three ways to choose, on literal numbers."""

import pytest

from forkroot.adapters.native.language.choices import (
    find_method,
    greedy_token_selection,
    mean_logprob,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from forkroot.core.api.protocol import InvalidCall, OptionScore


def score(ids, logprobs):
    return OptionScore("".join(map(chr, ids)), tuple(ids), tuple(logprobs))


def test_the_mean_wins_over_the_sum() -> None:
    long = score([65, 66, 67], [-1.0, -1.0, -1.0])
    short = score([68], [-1.5])
    decision = token_length_normalized([short, long])
    assert decision.index == 1
    assert decision.figures == (-1.5, -1.0)


def test_the_first_of_equal_means_wins() -> None:
    assert token_length_normalized([score([65], [-1.0]), score([66], [-1.0])]).index == 0


def test_an_option_without_tokens_of_its_own_has_the_mean_zero() -> None:
    assert mean_logprob(score([], [])) == 0.0


def test_greedy_takes_the_likeliest_first_token_though_its_mean_is_worse() -> None:
    best_start = score([65, 66], [-0.1, -9.0])
    best_mean = score([67, 68], [-0.2, -0.2])
    assert greedy_token_selection([best_mean, best_start]).index == 1
    assert token_length_normalized([best_mean, best_start]).index == 0


def test_greedy_goes_on_while_options_share_tokens() -> None:
    one = score([65, 66, 67], [-1.0, -2.0, -0.5])
    two = score([65, 66, 68], [-1.0, -2.0, -0.4])
    three = score([65, 69], [-1.0, -3.0])
    decision = greedy_token_selection([one, two, three])
    assert decision.index == 1
    assert decision.figures == (-0.5, -0.4, -3.0)


def test_greedy_keeps_options_that_share_a_token_despite_rounding() -> None:
    one = score([65, 66], [-1.0000001, -0.1])
    two = score([65, 67], [-1.0, -0.2])
    assert greedy_token_selection([one, two]).index == 0


def test_greedy_lets_a_prefix_compete_with_its_mean() -> None:
    prefix = score([65], [-1.0])
    worse = score([65, 66], [-1.0, -1.5])
    better = score([65, 66], [-1.0, -0.5])
    assert greedy_token_selection([worse, prefix]).index == 1
    assert greedy_token_selection([prefix, better]).index == 1


def test_greedy_keeps_the_first_of_options_that_stay_equal() -> None:
    assert greedy_token_selection([score([65], [-1.0]), score([65], [-1.0])]).index == 0
    assert greedy_token_selection([score([65], [-1.0]), score([66], [-1.0])]).index == 0


def test_unconditional_takes_the_option_that_the_prompt_helps_most() -> None:
    given = [score([65], [-1.0]), score([66, 67], [-2.0, -2.0])]
    alone = [score([65], [-1.5]), score([66, 67], [-4.0, -4.0])]
    decision = unconditional_likelihood_normalized(given, alone)
    assert decision.index == 1
    assert decision.figures == (0.5, 2.0)


def test_a_method_is_found_by_its_name() -> None:
    assert find_method("unconditional_likelihood_normalized").needs_unconditional
    assert not find_method("greedy_token_selection").needs_unconditional


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidCall, match=r"choices_method='best'.*token_length_normalized"):
        find_method("best")
    with pytest.raises(InvalidCall, match=r"choices_method='exct'.*; did you mean exact\?$"):
        find_method("exct")
    with pytest.raises(InvalidCall, match=r"choices_method=\['best'\]: expected token_length_"):
        find_method(["best"])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["exact", "canonical"])
def test_the_likeliest_wins_where_probabilities_are_whole(name: str) -> None:
    method = find_method(name)
    scores = [
        OptionScore("a", (), (), bounds=(-3.0, -2.0)),
        OptionScore("b", (), (), bounds=(-2.5, -2.5)),
    ]
    assert method.scoring == name
    assert method.decide(scores, ()).index == 1
    assert method.decide(scores, ()).figures == (-3.0, -2.5)
