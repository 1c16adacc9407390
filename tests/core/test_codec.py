"""Values of the door as bytes and back, with everything that they may hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkroot.core import protocol
from forkroot.core.codec import pack, unpack
from forkroot.core.fsm.refusals import NotRegular
from forkroot.core.protocol import (
    BackendClosed,
    BackendInfo,
    Call,
    CallTooLarge,
    Chat,
    Choices,
    Chunk,
    Completion,
    ForkHint,
    Grammar,
    Image,
    InvalidCall,
    JsonSchema,
    Message,
    OptionScore,
    Output,
    Regex,
    Sampling,
    Text,
    TokenLogprob,
    Tokens,
    UnsupportedCall,
    Usage,
    Video,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
IDS = st.lists(st.integers(0, 2**31), max_size=4).map(tuple)
SEGMENTS = st.lists(
    st.one_of(
        st.builds(Text, TEXT, st.none() | IDS),
        st.builds(Tokens, IDS),
        st.builds(Image, st.binary(max_size=9)),
        st.builds(Video, st.binary(max_size=9), st.integers(1, 9)),
    ),
    max_size=3,
).map(tuple)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
SCHEMA = st.dictionaries(TEXT, JSON, max_size=3)
CHATS = st.builds(
    Chat,
    st.lists(st.builds(Message, TEXT, SEGMENTS), min_size=1, max_size=3).map(tuple),
    st.booleans(),
    st.lists(SCHEMA.filter(bool), max_size=2).map(tuple),
)
CONSTRAINTS = st.one_of(
    st.none(),
    st.builds(Regex, TEXT),
    st.builds(Choices, st.lists(TEXT, max_size=3).map(tuple)),
    st.builds(Grammar, TEXT, st.sampled_from(["lark", "ebnf", "gbnf"])),
    st.builds(JsonSchema, SCHEMA.filter(bool) | st.booleans()),
    st.builds(JsonSchema, st.booleans(), st.just((", ", ": "))),
)
SAMPLINGS = st.builds(
    Sampling,
    max_tokens=st.none() | st.integers(0, 99),
    temperature=st.floats(0, 2),
    seed=st.none() | st.integers(0, 2**63 - 1),
    logit_bias=st.dictionaries(st.integers(0, 99), st.floats(-5, 5), max_size=2),
    stop=st.lists(TEXT, max_size=2).map(tuple),
    logprobs=st.none() | st.integers(0, 5),
    log_mass=st.booleans(),
)
CALLS = st.builds(
    Call,
    SEGMENTS | CHATS,
    SAMPLINGS,
    CONSTRAINTS,
    options=st.lists(TEXT, max_size=2).map(tuple),
    scoring=st.sampled_from(protocol.Scoring.__args__),
    hint=st.none() | st.builds(ForkHint, TEXT, st.none() | st.integers(0, 9)),
    stream=st.booleans(),
    deadline=st.none() | st.floats(0.1, 9),
    scored_from=st.none() | st.integers(0, 9),
)


@given(CALLS)
def test_calls_come_through(call: Call) -> None:
    assert unpack(pack(call)) == call


LOGPROB = TokenLogprob(3, -0.5, ((3, -0.5), (4, float("-inf"))))
ANSWERS = [
    Chunk("é", 2, (1, 2), (LOGPROB,)),
    Completion(
        (Output("a", (1,), "stop", "x", (Text("a", (1,)),), (LOGPROB,), ((0, 1),), -1.5),),
        Usage(1, 2, 3),
    ),
    Completion((Output(""),), prompt_logprobs=(LOGPROB, LOGPROB)),
    Completion(scores=(OptionScore("a", (1,), (-1.0,), (Text("a"),), (-2.0, -1.0)),)),
    BackendInfo("m", 10, 20, frozenset({"tokens", "hints"}), {"calls": 3, "run_seconds": 0.5}),
]


@pytest.mark.parametrize("value", ANSWERS, ids=lambda value: type(value).__name__)
def test_answers_come_through(value: object) -> None:
    number, found = unpack(pack([7, value]))
    assert number == 7
    if isinstance(value, BackendInfo):
        assert (frozenset(found.features), found.counters) == (value.features, value.counters)
    else:
        assert found == value


def test_defaults_are_left_out_and_unknown_fields_ignored() -> None:
    import msgpack

    plain = msgpack.unpackb(pack(Call((Text("a"),))))
    assert set(plain) == {"@", "prompt"}
    plain["speed"] = 3
    assert unpack(msgpack.packb(plain)) == Call((Text("a"),))


def test_an_error_of_a_room_comes_through_as_its_nearest_kin() -> None:
    found = unpack(pack(NotRegular("#/a", "schemas without recursion")))
    assert type(found) is UnsupportedCall
    assert str(found) == str(NotRegular("#/a", "schemas without recursion"))


@pytest.mark.parametrize(
    "error",
    [
        InvalidCall("temperature", -1.0, "a number >= 0"),
        InvalidCall("stop", ("a", object), "a tuple of texts"),
        InvalidCall("seed", 2**70, "0..2**63-1"),
        CallTooLarge("prompt", "900 tokens", "at most 100"),
        BackendClosed("the engine died"),
    ],
    ids=str,
)
def test_errors_come_through_with_type_and_text(error: Exception) -> None:
    found = unpack(pack(error))
    assert type(found) is type(error)
    assert str(found) == str(error)


@pytest.mark.parametrize("value", [object(), {"a": object()}, (1, {"b": b""})])
def test_what_cannot_cross_is_refused(value: object) -> None:
    with pytest.raises(InvalidCall):
        pack(value)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81\xa1@\xa5Popen", b"\x01\x02"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(data)
