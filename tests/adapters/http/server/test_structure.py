"""What a body of JSON has is counted in its bytes, before it is parsed."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkroot.adapters.http.server.runtime import Limits
from forkroot.adapters.http.server.structure import (
    Structure,
    check_json,
    check_structure,
    is_json,
    measure,
)
from forkroot.core.api.protocol import InvalidCall

TEXTS = st.text(st.sampled_from('ab"\\\n,:[]{} é\U0001f600'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + max(map(depth_of, inner), default=0)


def num_values(value: Any) -> int:
    """Values and keys."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(num_values, value.values()))
    return 1 + sum(map(num_values, value)) if isinstance(value, list) else 1


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_depth_is_exact_and_no_value_is_missed(value: Any, indent: int | None, is_ascii: bool):
    body = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode()
    found = measure(body)
    assert found.depth == depth_of(value)
    assert num_values(value) <= found.values <= 2 * num_values(value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32-le"])
def test_bodies_of_several_slices_are_counted_in_every_encoding(encoding: str):
    rng = random.Random(5)
    signs = ["\\", '"', "\\\\", '\\"', ",", "[", "}", ":", "x", "é"]
    texts = ["".join(rng.choices(signs, k=rng.randrange(400))) for _ in range(3000)]
    value = [{"a": text} for text in texts]
    body = json.dumps(value, ensure_ascii=False).encode(encoding)
    assert len(body) > 500_000
    mark = 3 if encoding == "utf-8-sig" else 0
    assert measure(body) == Structure(1 + 3000 * 3, 2, mark)


def test_backslashes_at_the_ends_of_slices_escape_what_follows():
    for shift in range(6):
        for num in range(1, 5):
            text = "x" * (65_530 + shift) + "\\" * num + '"' + ",[" * 50
            body = json.dumps([text, [1]]).encode()
            assert measure(body) == Structure(4, 2, 1)


def test_what_exceeds_a_limit_is_refused_by_its_number():
    limits = Limits(max_values=100, max_depth=10)
    check_structure(Structure(100, 10, 0), limits)
    for found, shown in (
        (Structure(101, 1, 0), "101 values"),
        (Structure(1, 11, 0), "11 levels"),
        (Structure(2, 1, 40_000), "numbers of many digits"),
    ):
        with pytest.raises(InvalidCall, match=shown) as caught:
            check_structure(found, limits)
        assert caught.value.field == "body"


def test_only_large_bodies_are_counted():
    limits = Limits(max_values=100)
    check_json(json.dumps([1] * 200).encode(), limits)
    with pytest.raises(InvalidCall, match="20001 values"):
        check_json(json.dumps([1] * 20_000).encode(), limits)
    check_json(json.dumps("[1], " * 20_000).encode(), limits)


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/vnd.own+json", True),
        ("text/plain", False),
        ("", False),
    ],
)
def test_json_is_known_by_its_content_type(content_type: str, expected: bool):
    assert is_json(content_type) is expected
