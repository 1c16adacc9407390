"""Calls at random, and answers and errors of every kind: what a way to another process carries."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from forkroot.core.api import protocol
from forkroot.core.api.protocol import (
    BackendClosed,
    BackendInfo,
    Call,
    CallFailed,
    CallTooLarge,
    Chat,
    Choices,
    Chunk,
    Completion,
    DeadlineExceeded,
    ForkHint,
    ForkrootError,
    Grammar,
    Image,
    InvalidCall,
    JsonSchema,
    Message,
    OptionScore,
    Output,
    Overloaded,
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
WORD = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
IDS = st.lists(st.integers(0, 2**31), max_size=4).map(tuple)
WHOLE = st.none() | st.integers(0, 9)
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
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
SCHEMA = st.dictionaries(st.just("type") | TEXT, JSON | TEXT, max_size=3)
CHATS = st.builds(
    Chat,
    st.lists(st.builds(Message, TEXT, SEGMENTS), min_size=1, max_size=3).map(tuple),
    st.booleans(),
    st.lists(SCHEMA, max_size=2).map(tuple),
)
CONSTRAINTS = st.one_of(
    st.none(),
    st.builds(Regex, TEXT),
    st.builds(Choices, st.lists(WORD, min_size=1, max_size=3).map(tuple)),
    st.builds(Grammar, TEXT, st.sampled_from(["lark", "ebnf", "gbnf"])),
    st.builds(JsonSchema, SCHEMA | st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")])),
)
SAMPLINGS = st.builds(
    Sampling,
    max_tokens=st.none() | st.integers(0, 99),
    temperature=st.floats(0, 2) | st.integers(0, 2),
    top_p=st.floats(0.1, 1),
    top_k=st.just(-1) | st.integers(1, 2**31 - 1),
    seed=st.none() | st.integers(0, 2**63 - 1),
    logit_bias=st.dictionaries(st.integers(0, 99), st.floats(-5, 5), max_size=2),
    stop=st.lists(WORD, max_size=2).map(tuple),
    stop_token_ids=IDS,
    n=st.integers(1, 128),
    logprobs=st.none() | st.integers(0, 5),
    log_mass=st.booleans(),
)
CALLS = st.builds(
    Call,
    SEGMENTS | CHATS,
    SAMPLINGS,
    CONSTRAINTS,
    options=st.lists(WORD, max_size=2).map(tuple),
    scoring=st.sampled_from(protocol.Scoring.__args__),
    hint=st.none() | st.builds(ForkHint, WORD, WHOLE, WHOLE),
    stream=st.booleans(),
    namespace=TEXT,
    priority=st.integers(-100, 100),
    deadline=st.none() | st.floats(0.1, 9),
    scored_from=st.none() | st.integers(0, 9),
)
LOGPROB = TokenLogprob(3, -0.5, ((3, -0.5), (4, -math.inf)))
ANSWERS = [
    Chunk("é\u2028", 2, (1, 2), (LOGPROB,)),
    Completion(
        (Output("a", (1,), "stop", "x", (Text("a", (1,)),), (LOGPROB,), ((0, 1),), -1.5),),
        Usage(1, 2, 3),
    ),
    Completion((Output("a", matched=3, finish_reason="stop", log_mass=-math.inf),)),
    Completion((Output(""),), prompt_logprobs=(LOGPROB, LOGPROB)),
    Completion(scores=(OptionScore("a", (1,), (-1.0,), (Text("a"),), (-math.inf, -1.0)),)),
    Completion((Output("", finish_reason="abort"),)),
]
ERRORS = [
    InvalidCall("temperature", -1.0, "a number >= 0"),
    InvalidCall("temperature", math.inf, "a number >= 0"),
    InvalidCall("stop", ("a", object), "a tuple of texts"),
    InvalidCall("num_slots", protocol.Shown("9 (1.0 GiB of KV)"), "fewer"),
    InvalidCall("seed", 2**70, "0..2**63-1"),
    CallTooLarge("prompt", "900 tokens", "at most 100"),
    UnsupportedCall("constraint", None, "none"),
    BackendClosed("the engine died"),
    Overloaded("too many"),
    DeadlineExceeded("too late"),
    CallFailed("it broke"),
    ForkrootError("whatever"),
]
INFO = BackendInfo("m", 10, 20, frozenset({"tokens", "hints"}), {"calls": 3, "run_seconds": 0.5})
