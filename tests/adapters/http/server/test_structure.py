"""What a body of JSON has is counted in its bytes, before it is parsed."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkroot.adapters.http.server.large_json import check_json, parsed
from forkroot.adapters.http.server.runtime import Limits
from forkroot.adapters.http.server.structure import Field, Outline, is_json, outline
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


def outlined(body: bytes, limits: Limits | None = None) -> Outline:
    return outline(body, limits or Limits(), lambda: None)


def read(body: bytes) -> Any:
    return parsed(outlined(body), lambda: None)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_depth_is_exact_and_no_value_is_missed(value: Any, indent: int | None, is_ascii: bool):
    body = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode()
    found = outlined(body)
    assert found.depth == depth_of(value)
    assert num_values(value) <= found.values <= 2 * num_values(value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32-le"])
def test_bodies_of_several_slices_are_read_in_every_encoding(encoding: str):
    rng = random.Random(5)
    signs = ["\\", '"', "\\\\", '\\"', ",", "[", "}", ":", "x", "é", "\U0001f600"]
    texts = ["".join(rng.choices(signs, k=rng.randrange(400))) for _ in range(3000)]
    value = [{"a": text} for text in texts]
    body = json.dumps(value, ensure_ascii=False).encode(encoding)
    assert len(body) > 500_000
    found = outlined(body)
    assert (found.values, found.containers, found.depth) == (1 + 3000 * 3, 3001, 2)
    assert parsed(found, lambda: None) == value


def test_backslashes_at_the_ends_of_slices_escape_what_follows():
    for shift in range(6):
        for num in range(1, 5):
            text = "x" * (65_530 + shift) + "\\" * num + '"' + ",[" * 50
            found = outlined(json.dumps([text, [1]]).encode())
            assert (found.values, found.containers, found.depth) == (4, 2, 2)


def large(rng: random.Random, depth: int = 6) -> Any:
    """A value of some 100 KB, with texts, lists and objects that are larger than a piece."""
    if depth == 0:
        signs = ["\\", '"', "\U0001f600", "\ud83d", "\n", "é", "x", ",[]{}:"]
        text = "".join(rng.choices(signs, k=rng.choice([1, 5, 50, 5000])))
        return rng.choice([text, 1, -2.5e3, None, True, text * 8])
    num = rng.choice([0, 1, 3])
    if rng.random() < 0.5:
        return [large(rng, depth - 1) for _ in range(num)] + [0] * rng.choice([0, 20_000])
    return {f"{i} é\\": large(rng, depth - 1) for i in range(num)}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_ascii", [False, True])
def test_what_is_parsed_in_pieces_is_what_json_loads_returns(seed: int, is_ascii: bool):
    rng = random.Random(seed)
    value = {"first": [large(rng) for _ in range(3)], "last": "\\\U0001f600" * 20_000}
    body = json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    assert repr(read(body)) == repr(json.loads(body))


@pytest.mark.parametrize(
    "text", ['"', "\\", "\\u12", ",", "]", "}", "[", "1", '"":', "\x00", "\xff"]
)
def test_a_broken_body_is_refused_as_by_json_loads(text: str):
    rng = random.Random(3)
    body = json.dumps({"a": [*range(9000)], "b": {str(i): "x" * 9 for i in range(5000)}}).encode()
    body += b" " * 70_000
    for _ in range(20):
        at = rng.randrange(len(body) - 70_000)
        broken = body[:at] + text.encode("latin-1") + body[at:]
        try:
            wanted = repr(json.loads(broken))
        except ValueError as error:
            wanted = type(error).__name__
        try:
            found = repr(read(broken))
        except ValueError as error:
            found = type(error).__name__
        assert found == wanted


def test_the_place_of_an_error_is_counted_in_characters():
    body = ('{"a": "' + "é" * 90_000 + '", "b": [' + "1, " * 90_000 + "oops]}").encode()
    with pytest.raises(json.JSONDecodeError) as caught:
        read(body)
    assert caught.value.pos == body.decode().index("oops")


def test_other_threads_run_after_each_piece():
    body = json.dumps({"a": "x" * 10**6, "b": [*range(10**5)]}).encode()
    rests: list[int] = []
    parsed(outlined(body), lambda: rests.append(1))
    assert len(rests) >= len(body) // 2**15


def test_fields_are_counted_before_they_are_parsed():
    body = b' {"a": [ {}, [1, 2]], "b, c" : {"x": [1, 2], "y": ""}, "d": 5, "e": "[{", "f": []}'
    found = [*outlined(body).fields()]
    assert found == [
        Field("a", b"[{", 2),
        Field("b, c", b'{"', 2),
        Field("d", b"5", 1),
        Field("e", b'"[', 1),
        Field("f", b"[]", 1),
    ]
    assert outlined(body).num_fields == 5
    assert [*outlined(b'[{"a": 1}]').fields()] == []


def test_what_exceeds_a_limit_is_refused_at_the_slice_that_does():
    limits = Limits(max_values=100, max_depth=10, max_containers=20)
    outlined(b"[" + b"1," * 97 + b"1]", limits)
    for body, shown in (
        (b"[1" + b",1" * 100 + b"]", "more than 100 values"),
        (b"[" * 11 + b"]" * 11, "more than 10 levels"),
        (b"[]," * 21, "more than 20 lists and objects"),
        (b"[" + b"7" * 2000 + b"]", "numbers of many digits"),
    ):
        with pytest.raises(InvalidCall, match=shown) as caught:
            outlined(body, limits)
        assert caught.value.field == "body"
    slices: list[int] = []
    with pytest.raises(InvalidCall):
        outline(b"[" * 10**6, limits, lambda: slices.append(1))
    assert not slices


def test_blanks_and_long_texts_are_no_numbers():
    outlined(b"[1," + b" " * 200_000 + b'"' + b"7" * 200_000 + b'"]')


def test_only_large_bodies_are_counted():
    limits = Limits(max_values=100)
    check_json(json.dumps([1] * 200).encode(), limits)
    with pytest.raises(InvalidCall, match="more than 100 values"):
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
