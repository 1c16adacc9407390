"""What a call may say: every field is checked by type and value, and named when it is refused."""

from __future__ import annotations

import dataclasses
import math
import types
from typing import Any

import pytest

from forkroot.core.api import protocol
from forkroot.core.api.protocol import (
    Call,
    CallTooLarge,
    Chat,
    Choices,
    ForkHint,
    ForkrootError,
    Image,
    InvalidCall,
    Message,
    OptionScore,
    Output,
    Sampling,
    Text,
    Tokens,
    UnsupportedCall,
    Usage,
    Video,
)

PROMPT = (Text("hello"),)
SURROGATE = "\ud800"

REFUSED_SAMPLING = [
    ("max_tokens", -1),
    ("max_tokens", 1.5),
    ("max_tokens", True),
    ("min_tokens", -1),
    ("min_tokens", None),
    ("temperature", -0.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("temperature", 10**400),
    ("temperature", "0"),
    ("temperature", False),
    ("top_p", 0),
    ("top_p", 1.01),
    ("top_p", math.nan),
    ("top_k", 0),
    ("top_k", -2),
    ("top_k", 2**40),
    ("top_k", 3.0),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("frequency_penalty", 2.1),
    ("presence_penalty", -2.1),
    ("presence_penalty", math.nan),
    ("repetition_penalty", 0),
    ("repetition_penalty", 10.5),
    ("logit_bias", {-1: 0.0}),
    ("logit_bias", {1: 101}),
    ("logit_bias", {1: math.nan}),
    ("logit_bias", {1: "5"}),
    ("logit_bias", {"1": 5}),
    ("logit_bias", [(1, 5)]),
    ("seed", -1),
    ("seed", 2**63),
    ("seed", 0.5),
    ("stop", "x"),
    ("stop", ["x"]),
    ("stop", ("",)),
    ("stop", (3,)),
    ("stop", (SURROGATE,)),
    ("stop", ("x",) * 65),
    ("stop_token_ids", (-1,)),
    ("stop_token_ids", (True,)),
    ("stop_token_ids", [1]),
    ("stop_token_ids", 1),
    ("ignore_eos", 1),
    ("ignore_eos", None),
    ("n", 0),
    ("n", 129),
    ("n", None),
    ("logprobs", -1),
    ("logprobs", 65),
    ("logprobs", True),
]


@pytest.mark.parametrize(("name", "value"), REFUSED_SAMPLING)
def test_a_sampling_that_is_not_allowed_is_named(name, value):
    with pytest.raises(InvalidCall) as caught:
        Sampling(**{name: value}).check()
    assert caught.value.field == name
    assert caught.value.value is value
    assert caught.value.allowed in str(caught.value)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(max_tokens=None, min_tokens=10**9),
        Sampling(max_tokens=0),
        Sampling(temperature=0, top_p=1, min_p=1, top_k=1, n=128, logprobs=64),
        Sampling(logit_bias=types.MappingProxyType({0: -100, 5: 100.0})),
        Sampling(seed=2**63 - 1, stop=("é",) * 64, stop_token_ids=(0,), ignore_eos=True),
        Sampling(frequency_penalty=-2, presence_penalty=2, repetition_penalty=10),
    ],
)
def test_values_at_the_edge_are_allowed(sampling):
    sampling.check()


def test_no_more_tokens_are_requested_than_allowed():
    with pytest.raises(InvalidCall, match=r"invalid min_tokens=5: .* max_tokens=4"):
        Sampling(min_tokens=5, max_tokens=4).check()


REFUSED_CALLS = [
    ("prompt", "text"),
    ("prompt", None),
    ("prompt", [Text("x")]),
    ("prompt", ("x",)),
    ("prompt", (Text(5),)),
    ("prompt", (Text("x", [1]),)),
    ("prompt", (Text("x", (1.0,)),)),
    ("prompt", (Text(SURROGATE),)),
    ("prompt", (Tokens((True,)),)),
    ("prompt", (Tokens(("1",)),)),
    ("prompt", (Tokens([1]),)),
    ("prompt", (Image("picture.png"),)),
    ("prompt", (Video(None, 3),)),
    *(("prompt", (Video(b"mp4", number),)) for number in ("3", 3.0, True, None, 0, -1)),
    ("prompt", Chat(())),
    ("prompt", Chat([Message("user", PROMPT)])),
    ("prompt", Chat((("user", "x"),))),
    ("prompt", Chat((Message("user", "x"),))),
    ("prompt", Chat((Message(None, PROMPT),))),
    ("prompt", Chat((Message(SURROGATE, PROMPT),))),
    ("prompt", Chat((Message("user", PROMPT),), open_last=1)),
    ("prompt", Chat((Message("user", PROMPT),), tools=[{}])),
    ("prompt", Chat((Message("user", PROMPT),), tools=("find",))),
    ("sampling", None),
    ("sampling", {"n": 2}),
    ("constraint", "a*"),
    ("options", "ab"),
    ("options", ["a"]),
    ("options", None),
    ("options", ("",)),
    ("options", (1,)),
    ("options", (SURROGATE,)),
    ("hint", "root"),
    ("hint", ForkHint(None)),
    ("hint", ForkHint(["root"])),
    ("hint", ForkHint("root", branches="3")),
    ("hint", ForkHint("root", prefix_end=1.5)),
    ("hint", ForkHint("root", prefix_end=True)),
    ("hint", ForkHint("", program="program", pause=float("nan"))),
    ("stream", 1),
    ("namespace", None),
    ("namespace", ["a"]),
    ("namespace", SURROGATE),
    ("priority", 101),
    ("priority", 0.5),
    ("priority", True),
    ("priority", None),
    ("deadline", 0),
    ("deadline", -1.0),
    ("deadline", math.nan),
    ("deadline", math.inf),
    ("deadline", "1"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED_CALLS)
def test_a_call_that_is_not_allowed_is_named(name, value):
    with pytest.raises(InvalidCall) as caught:
        Call(**{"prompt": PROMPT, name: value}).check()
    assert caught.value.field == name
    assert caught.value.value is value


def test_a_call_with_options_takes_no_constraint():
    with pytest.raises(InvalidCall, match=r"constraint=.* expected none beside options"):
        Call(PROMPT, options=("a",), constraint=Choices(("a",))).check()


@pytest.mark.parametrize(
    "call",
    [
        Call(PROMPT),
        Call(()),
        Call((Tokens((1,)), Text("", ()), Image(b""), Video(b"", 2))),
        Call(Chat((Message("user", ()),), open_last=True, tools=({"name": "find"},))),
        Call(PROMPT, hint=ForkHint("", branches=-5, prefix_end=10**9, version=99)),
        Call(PROMPT, priority=-100, deadline=1, namespace="a\0é"),
        Call(PROMPT, options=("a", "a")),
    ],
)
def test_unusual_calls_are_allowed(call):
    call.check()


def test_a_long_value_is_shortened_in_the_error_text():
    error = InvalidCall("prompt", "x" * 1000, "less")
    assert len(str(error)) < 150
    assert str(error).endswith(": expected less")
    assert error.value == "x" * 1000


def test_all_errors_have_one_base_and_a_builtin_one():
    errors = {
        "InvalidCall": ValueError,
        "UnsupportedCall": InvalidCall,
        "CallTooLarge": InvalidCall,
        "InvalidModel": ValueError,
        "ProgramError": RuntimeError,
        "DeadlineExceeded": TimeoutError,
        "Overloaded": RuntimeError,
        "CallFailed": RuntimeError,
        "BackendClosed": RuntimeError,
        "EngineDied": protocol.BackendClosed,
    }
    for name, base in errors.items():
        assert issubclass(getattr(protocol, name), (ForkrootError, base))
        assert issubclass(getattr(protocol, name), base)
    assert not issubclass(UnsupportedCall, CallTooLarge)


def test_every_value_of_the_protocol_is_frozen():
    values = [item for item in vars(protocol).values() if dataclasses.is_dataclass(item)]
    assert len(values) > 15
    for value in values:
        assert value.__dataclass_params__.frozen, value
        assert "__slots__" in vars(value), value


def test_usage_adds_up():
    assert Usage(3, 2, 1) + Usage(30, 20, 10) == Usage(33, 22, 11)


def test_an_options_probability_is_that_of_its_tokens():
    assert OptionScore("ab", (1, 2), (-0.5, -0.25)).logprob == -0.75


def test_the_text_of_a_completion_is_that_of_its_first_output():
    assert protocol.Completion((Output("one"), Output("two"))).text == "one"


@pytest.mark.parametrize(
    "tool",
    [
        {"name": SURROGATE},
        {"function": {"parameters": {"enum": ["a", SURROGATE]}}},
        types.MappingProxyType({"deep": {SURROGATE: 1}}),
    ],
)
def test_a_tool_whose_texts_no_encoding_holds_is_refused(tool: Any) -> None:
    messages = (Message("user", PROMPT),)
    with pytest.raises(InvalidCall, match="text without lone surrogates") as caught:
        Call(Chat(messages, tools=(tool,))).check()
    assert caught.value.field == "prompt"
    Call(Chat(messages, tools=({"name": "λ", "of no JSON": object()},))).check()


@pytest.mark.parametrize("value", ["Once upon a time", None, PROMPT])
def test_the_error_for_a_value_that_is_not_a_call_says_what_is_expected(value: object) -> None:
    with pytest.raises(InvalidCall, match=r"^invalid call=.*: expected a Call, as Call\(\(Text\("):
        protocol.check_call(value)
    protocol.check_call(Call(PROMPT))
