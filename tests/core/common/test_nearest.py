"""A name that nobody knows is answered by the one that is most like it, if any is."""

from __future__ import annotations

import pytest

from forkroot.core.common.nearest import did_you_mean, nearest

KNOWN = ("max_tokens", "min_tokens", "temperature", "ForkHint")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_token", "max_tokens"),
        ("min_tokns", "min_tokens"),
        ("TEMPRATURE", "temperature"),
        ("forkhint", "ForkHint"),
        ("tok", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_found_whatever_its_cases(name: str, meant: str | None) -> None:
    assert nearest(name, KNOWN) == meant
    assert did_you_mean(name, KNOWN) == (f"; did you mean {meant}?" if meant else "")


def test_a_larger_share_leaves_out_what_is_less_like_it() -> None:
    assert nearest("max_tok", KNOWN) == "max_tokens"
    assert nearest("max_tok", KNOWN, 0.9) is None


def test_the_order_of_the_known_names_does_not_matter() -> None:
    assert {nearest("mxn_tokens", names) for names in (KNOWN, KNOWN[::-1])} == {"min_tokens"}
