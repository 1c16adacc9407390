"""An unknown name is answered with the closest known name, if any is close enough."""

from __future__ import annotations

import pytest

from forkroot.core.common.suggestions import closest, did_you_mean

KNOWN = ("max_tokens", "min_tokens", "temperature", "ForkHint")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("max_token", "max_tokens"),
        ("min_tokns", "min_tokens"),
        ("TEMPRATURE", "temperature"),
        ("forkhint", "ForkHint"),
        ("tok", None),
        ("", None),
    ],
)
def test_the_closest_name_is_found_whatever_its_case(name: str, expected: str | None) -> None:
    assert closest(name, KNOWN) == expected
    assert did_you_mean(name, KNOWN) == (f"; did you mean {expected}?" if expected else "")


def test_a_higher_cutoff_leaves_out_names_that_are_less_similar() -> None:
    assert closest("max_tok", KNOWN) == "max_tokens"
    assert closest("max_tok", KNOWN, 0.9) is None


def test_the_order_of_the_known_names_does_not_matter() -> None:
    assert {closest("mxn_tokens", names) for names in (KNOWN, KNOWN[::-1])} == {"min_tokens"}


def test_letters_in_another_order_are_close_whatever_the_cutoff() -> None:
    assert closest("lmp", ("dfs", "lpm")) == "lpm"
    assert closest("LMP", ("dfs", "lpm"), 0.9) == "lpm"
    assert closest("lxp", ("dfs", "lpm")) is None
