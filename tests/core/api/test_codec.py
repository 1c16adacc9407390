"""Values of the protocol as bytes and back, with everything that they may hold."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given

from forkroot.core.api.codec import pack, unpack
from forkroot.core.api.protocol import Call, InvalidCall, Text, TokenLogprob, UnsupportedCall
from forkroot.core.fsm.regex.errors import NotRegular

from ...carried import ANSWERS, CALLS, ERRORS, INFO


@given(CALLS)
def test_calls_come_through(call: Call) -> None:
    assert unpack(pack(call)) == call


@pytest.mark.parametrize("value", ANSWERS, ids=lambda value: type(value).__name__)
def test_answers_come_through(value: object) -> None:
    assert unpack(pack((7, value))) == (7, value)


def test_what_a_backend_runs_comes_through() -> None:
    found = unpack(pack(INFO))
    assert (frozenset(found.features), found.counters) == (INFO.features, INFO.counters)


def test_defaults_are_left_out_and_unknown_fields_ignored() -> None:
    plain = msgpack.unpackb(pack(Call((Text("a"),))))
    assert set(plain) == {"@", "prompt"}
    plain["speed"] = 3
    assert unpack(msgpack.packb(plain)) == Call((Text("a"),))


def test_an_error_of_a_package_is_decoded_as_its_nearest_base_class() -> None:
    found = unpack(pack(NotRegular("#/a", "schemas without recursion")))
    assert type(found) is UnsupportedCall
    assert str(found) == str(NotRegular("#/a", "schemas without recursion"))


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_come_through_with_type_and_text(error: Exception) -> None:
    found = unpack(pack(error))
    assert type(found) is type(error)
    assert str(found) == str(error)


@pytest.mark.parametrize("value", [object(), {"a": object()}, (1, {"b": b""})])
def test_what_cannot_cross_is_refused(value: object) -> None:
    with pytest.raises(InvalidCall):
        pack(value)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81\xa1@\xa5Popen", b"\x01\x02"])
def test_bytes_that_are_not_a_message_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(data)


def test_many_log_probabilities_take_one_row_a_field() -> None:
    scored = tuple(TokenLogprob(i, -0.5, ((i, -0.5), (1, -2.0))[: i % 3]) for i in range(500))
    data = pack(scored)
    assert unpack(data) == scored
    assert data.count(b"logprob") == 1
    with pytest.raises(ValueError, match="zip"):
        unpack(msgpack.packb({"@logprobs": [[1, 2], [0.5], [[], []]]}))
