"""The `forkroot` object of a request: what it says, and what it may not say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkroot.adapters.http.wire.hints import MAX_ROOT_LEN, hint_body, hint_of
from forkroot.core.api.program_report import MAX_KIND_LEN
from forkroot.core.api.protocol import ForkHint, InvalidCall

WHOLE = st.none() | st.integers(0, 2**40)
KINDS = st.text("ab(.) ", min_size=1, max_size=9)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=9)


@given(st.builds(ForkHint, NAMES, WHOLE, WHOLE))
def test_hints_come_through(hint: ForkHint) -> None:
    assert hint_of(hint_body(hint)) == hint


@given(
    st.builds(
        ForkHint,
        st.just("") | NAMES,
        program=NAMES,
        calls_left=WHOLE,
        tokens_left=WHOLE,
        next_use=WHOLE,
        pause=st.none() | st.floats(0, 1e6),
        kind=st.none() | KINDS,
    )
)
def test_what_a_program_does_next_comes_through(hint: ForkHint) -> None:
    assert hint_of(hint_body(hint)) == hint


def test_a_program_that_shares_nothing_needs_no_root() -> None:
    body = {"version": 2, "program": "p", "calls_left": 3, "next_use": 1}
    assert hint_of(body) == ForkHint("", program="p", calls_left=3, next_use=1)


def test_a_kind_alone_is_a_hint_of_a_later_version_than_needs_a_root() -> None:
    body = hint_body(ForkHint("", kind="writer"))
    assert body["version"] == 3
    assert (body["root"], body["kind"], "program" in body) == (None, "writer", False)
    assert hint_of(body) == ForkHint("", kind="writer")


def test_a_kind_is_sent_as_far_as_it_can_be_printed() -> None:
    body = hint_body(ForkHint("r", kind="a\nb\ud800" + 200 * "c"))
    assert body["kind"] == "a?b?" + 124 * "c"
    assert "kind" not in hint_body(ForkHint("r", kind=""))


@given(
    st.builds(
        ForkHint,
        st.text(st.characters()),
        st.integers(),
        st.integers(),
        program=st.none() | st.text(),
        kind=st.none() | st.text(st.characters()),
    )
)
def test_no_hint_makes_a_call_fail(hint: ForkHint) -> None:
    assert hint_of(hint_body(hint)) is not None


def test_a_name_that_is_too_long_is_sent_as_its_digest() -> None:
    first, second = (hint_body(ForkHint("x" * MAX_ROOT_LEN + end))["root"] for end in "ab")
    assert len(first) == len(second) == 64
    assert first != second


def test_null_is_not_a_hint() -> None:
    assert hint_of(None) is None


def test_unknown_fields_are_ignored() -> None:
    assert hint_of({"root": "r", "speed": 3}) == ForkHint("r")


def test_the_known_fields_of_a_later_version_are_read() -> None:
    body = {"version": 9, "root": "r", "branches": 2, "tree": {}}
    assert hint_of(body) == ForkHint("r", branches=2)
    assert hint_of({"version": 9, "roots": ["r"]}) is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "forkroot.root"),
        ({"root": ""}, "forkroot.root"),
        ({"root": 3}, "forkroot.root"),
        ({"root": "\ud800"}, "forkroot.root"),
        ({"root": "x" * (MAX_ROOT_LEN + 1)}, "forkroot.root"),
        ({"root": "r", "branches": -1}, "forkroot.branches"),
        ({"root": "r", "branches": True}, "forkroot.branches"),
        ({"root": "r", "prefix_end": "2"}, "forkroot.prefix_end"),
        ({"program": ""}, "forkroot.program"),
        ({"program": 3, "root": "r"}, "forkroot.program"),
        ({"program": "p", "calls_left": -1}, "forkroot.calls_left"),
        ({"program": "p", "tokens_left": "9"}, "forkroot.tokens_left"),
        ({"program": "p", "next_use": 0.5}, "forkroot.next_use"),
        ({"program": "p", "pause": -1.0}, "forkroot.pause"),
        ({"program": "p", "pause": float("inf")}, "forkroot.pause"),
        ({"root": "r", "kind": ""}, "forkroot.kind"),
        ({"kind": 3}, "forkroot.kind"),
        ({"kind": "two\nlines"}, "forkroot.kind"),
        ({"kind": "\ud800"}, "forkroot.kind"),
        ({"kind": "x" * (MAX_KIND_LEN + 1)}, "forkroot.kind"),
        ({"root": "r", "version": 0}, "forkroot.version"),
        ({"root": "r", "version": 1.0}, "forkroot.version"),
        (["r"], "forkroot"),
        ("r", "forkroot"),
    ],
    ids=str,
)
def test_what_is_malformed_is_named(body: Any, field: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        hint_of(body)
    assert caught.value.field == field
