"""What a runtime takes, as which sequences, and what it refuses in which words."""

from __future__ import annotations

import math

import pytest
import tokenizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from forkroot.benchmarks.common.fake_runner import byte_tokenizer
from forkroot.core.api.protocol import (
    Call,
    CallTooLarge,
    Chat,
    Choices,
    ForkHint,
    Grammar,
    Image,
    InvalidCall,
    JsonSchema,
    Message,
    Regex,
    Sampling,
    Text,
    Tokens,
    UnsupportedCall,
)
from forkroot.core.api.reply import Mailbox
from forkroot.core.engine.input import InputProcessor
from forkroot.core.text.chat_template import ChatTemplate
from forkroot.core.text.tokenizer import Tokenizer, byte_alphabet

END = 256
HELLO = (Text("hello"),)


def pending_calls(tokenizer: Tokenizer | None = None, **sizes) -> InputProcessor:
    sizes = {"context_len": 100, "num_slots": 1000, "vocabulary_size": 257} | sizes
    return InputProcessor(tokenizer or byte_tokenizer(), end_ids=frozenset({END}), **sizes)


def job(call: Call, taker: InputProcessor | None = None):
    return (taker or pending_calls()).job(call, Mailbox(call))


def prompts(job) -> list[bytes]:
    return [bytes(sequence.tokens.tolist()) for sequence in job.sequences]


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "field", "value", "allowed"),
    [
        (Call(()), InvalidCall, "prompt", "", "at least one token"),
        (Call((Text(""), Tokens(()))), InvalidCall, "prompt", "", "at least one token"),
        (Call((Tokens((5, 257)),)), InvalidCall, "prompt", 257, "token ids 0 to 256"),
        (Call((Tokens((-1, 5)),)), InvalidCall, "prompt", -1, "token ids 0 to 256"),
        (
            Call(HELLO, Sampling(top_k=0)),
            InvalidCall,
            "top_k",
            0,
            "an integer from 1 to 2**31-1, or -1 for off",
        ),
        (
            Call(HELLO, Sampling(max_tokens=-1)),
            InvalidCall,
            "max_tokens",
            -1,
            "an integer >= 0, or None",
        ),
        (
            Call(HELLO, Sampling(stop="x")),
            InvalidCall,
            "stop",
            "x",
            "a tuple of at most 64 non-empty texts",
        ),
        (
            Call(HELLO, Sampling(logit_bias={300: 1.0})),
            InvalidCall,
            "logit_bias",
            300,
            "token ids 0 to 256",
        ),
        (
            Call(HELLO, Sampling(stop_token_ids=(1, 257))),
            InvalidCall,
            "stop_token_ids",
            257,
            "token ids 0 to 256",
        ),
        (Call("hello"), InvalidCall, "prompt", "hello", None),
        (Call(HELLO, options="ab"), InvalidCall, "options", "ab", "a tuple of non-empty texts"),
        (
            Call((Text("x" * 100),)),
            CallTooLarge,
            "prompt",
            "100 tokens",
            "at most 99 tokens, as the context (context_len) has 100; a shorter prompt, fewer"
            " messages, or a model with a longer context",
        ),
        (
            Call((Text("x" * 101),), Sampling(max_tokens=0)),
            CallTooLarge,
            "prompt",
            "101 tokens",
            "at most 100 tokens, as the context (context_len) has 100; a shorter prompt, fewer"
            " messages, or a model with a longer context",
        ),
        (
            Call((Text("x" * 90),), Sampling(max_tokens=1)),
            CallTooLarge,
            "prompt",
            "90 tokens and 1 to generate",
            "80 slots in all (num_slots), 90 would be needed",
        ),
        (
            Call(HELLO, Sampling(max_tokens=77)),
            CallTooLarge,
            "prompt",
            "5 tokens and 77 to generate",
            "80 slots in all (num_slots), 81 would be needed",
        ),
        (
            Call(HELLO, options=("x" * 76,)),
            CallTooLarge,
            "prompt",
            "81 tokens and 0 to generate",
            "80 slots in all (num_slots), 81 would be needed",
        ),
        (
            Call(Chat((Message("user", HELLO),))),
            UnsupportedCall,
            "prompt",
            "a chat",
            "text, or a model that has a chat template: this one has none",
        ),
        (
            Call((Text("see"), Image(b"..."))),
            UnsupportedCall,
            "prompt",
            "a segment with image data",
            "text and tokens",
        ),
    ],
)
def test_a_refusal_names_field_value_and_what_is_allowed(call, kind, field, value, allowed):
    with pytest.raises(InvalidCall) as caught:
        job(call, pending_calls(num_slots=80))
    assert type(caught.value) is kind
    assert (caught.value.field, caught.value.value) == (field, value)
    assert allowed is None or caught.value.allowed == allowed


def test_nan_is_not_a_temperature():
    with pytest.raises(InvalidCall, match="invalid temperature=nan: expected a finite"):
        job(Call(HELLO, Sampling(temperature=math.nan)))


@pytest.mark.parametrize(
    "constraint", [Regex("a"), JsonSchema({}), Choices(("a",)), Grammar("start: 'a'")]
)
def test_a_constraint_that_this_runtime_does_not_know_is_refused_by_name(constraint):
    with pytest.raises(UnsupportedCall, match=type(constraint).__name__) as caught:
        job(Call(HELLO, constraint=constraint))
    assert caught.value.field == "constraint"


def test_tokens_that_the_model_lacks_are_refused_wherever_they_are():
    taker = pending_calls(vocabulary_size=110)
    with pytest.raises(InvalidCall, match=r"prompt=111: .* token ids 0 to 109"):
        job(Call((Text("doom"),)), taker)
    with pytest.raises(InvalidCall, match=r"options=122: .* token ids 0 to 109"):
        job(Call((Text("ab"),), options=("c", "z")), taker)


# --- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("max_tokens", "expected"), [(0, 0), (1, 1), (76, 76), (None, 76)])
def test_what_fits_is_taken(max_tokens, expected):
    taker = pending_calls(num_slots=80)
    (sequence,) = job(Call(HELLO, Sampling(max_tokens=max_tokens)), taker).sequences
    assert sequence.rules.max_new == expected
    assert len(sequence.ids) == 5 + expected
    assert bytes(sequence.tokens.tolist()) == b"hello"


def test_an_answer_goes_as_far_as_the_context_holds_it():
    taker = pending_calls()
    for max_tokens in (None, 500):
        (sequence,) = job(Call(HELLO, Sampling(max_tokens=max_tokens)), taker).sequences
        assert sequence.rules.max_new == 95
    (sequence,) = job(Call((Text("x" * 99),), Sampling(max_tokens=9)), taker).sequences
    assert sequence.rules.max_new == 1


def test_a_prefill_only_call_may_fill_the_context():
    planted = job(Call((Text("x" * 100),), Sampling(max_tokens=0)))
    assert planted.is_prefill_only
    assert not planted.sequences[0].is_generating


# --- samples -----------------------------------------------------------------------------------


def test_samples_have_one_prompt_and_their_own_seeds():
    first = job(Call(HELLO, Sampling(n=4, seed=7)))
    assert prompts(first) == [b"hello"] * 4
    seeds = [sequence.seed for sequence in first.sequences]
    assert seeds[0] == 7
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert [s.seed for s in job(Call(HELLO, Sampling(n=4, seed=7))).sequences] == seeds
    assert [sequence.index for sequence in first.sequences] == [0, 1, 2, 3]
    assert first.num_open == 4


def test_calls_without_a_seed_derive_theirs_in_turn():
    def seeds_of(seed):
        taker = pending_calls(seed=seed)
        jobs = [job(Call(HELLO, Sampling(n=5)), taker) for _ in range(3)]
        return [sequence.seed for job in jobs for sequence in job.sequences]

    assert seeds_of(5) == seeds_of(5)
    assert len(set(seeds_of(5) + seeds_of(6))) == 30


def test_end_tokens_are_the_models_and_the_calls():
    def end_ids(**sampling):
        return job(Call(HELLO, Sampling(**sampling))).sequences[0].rules.end_ids

    assert end_ids() == {END}
    assert end_ids(stop_token_ids=(3,)) == {3, END}
    assert end_ids(stop_token_ids=(3,), ignore_eos=True) == {3}


@pytest.mark.parametrize(
    ("sampling", "is_plain"),
    [
        (Sampling(temperature=0), True),
        (Sampling(temperature=0, top_p=0.5, top_k=9, seed=4, stop=("x",)), True),
        (Sampling(), False),
        (Sampling(temperature=0, logprobs=0), False),
        (Sampling(temperature=0, logit_bias={3: 1.0}), False),
        (Sampling(temperature=0, repetition_penalty=1.1), False),
        (Sampling(temperature=0, frequency_penalty=0.1), False),
        (Sampling(temperature=0, presence_penalty=-0.1), False),
    ],
)
def test_plain_greedy_calls_are_recognized(sampling, is_plain):
    assert job(Call(HELLO, sampling)).sequences[0].is_plain_greedy is is_plain


# --- options -----------------------------------------------------------------------------------


def merging_tokenizer(has_start: bool) -> Tokenizer:
    """Bytes, and one merge: "ab" is one token, id 256; "<s>" is 257."""
    core = tokenizers.Tokenizer(BPE(vocab=byte_alphabet() | {"ab": 256}, merges=[("a", "b")]))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    core.add_special_tokens(["<s>"])
    if has_start:
        core.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 257)])
    return Tokenizer(core, None)


def scored(job) -> list[tuple[list[int], int]]:
    return [(sequence.tokens.tolist(), sequence.score_start) for sequence in job.sequences]


def test_options_are_scored_after_the_prompt():
    first = job(Call(HELLO, options=("x", "yz")))
    assert prompts(first) == [b"hellox", b"helloyz"]
    assert [sequence.score_start for sequence in first.sequences] == [5, 5]
    assert [sequence.match_limit for sequence in first.sequences] == [4, 4]
    assert not first.is_prefill_only


def test_a_token_that_an_option_shares_with_the_prompt_is_scored_for_all():
    taker = pending_calls(merging_tokenizer(has_start=False), vocabulary_size=258)
    first = job(Call((Text("xa"),), options=("b", "c")), taker)
    assert scored(first) == [([120, 256], 1), ([120, 97, 99], 1)]


@pytest.mark.parametrize("has_start", [True, False])
def test_options_without_a_prompt_are_scored_after_a_start_or_end_token(has_start):
    taker = pending_calls(merging_tokenizer(has_start), vocabulary_size=258)
    lead = 257 if has_start else END
    for prompt in ((), (Text(""),)):
        first = job(Call(prompt, options=("b", "xy")), taker)
        assert scored(first) == [([lead, 98], 1), ([lead, 120, 121], 1)]


def test_options_that_leave_nothing_of_the_prompt_are_scored_after_a_lead():
    taker = pending_calls(merging_tokenizer(has_start=False), vocabulary_size=258)
    first = job(Call((Text("a"),), options=("b", "c")), taker)
    assert scored(first) == [([END, 256], 1), ([END, 97, 99], 1)]


def test_every_option_gets_the_lead_also_where_one_begins_with_it():
    first = job(Call((), options=("<|end|>a", "b")))
    assert scored(first) == [([END, END, 97], 1), ([END, 98], 1)]


# --- chats and hints ---------------------------------------------------------------------------

STRICT = (
    "{% if messages[0].role != 'user' %}{{ raise_exception('a user begins') }}{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
LOOSE = STRICT[STRICT.index("{% for") :]


def chat_intake(source: str) -> InputProcessor:
    core = tokenizers.Tokenizer(BPE(vocab=byte_alphabet(), merges=[]))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    return pending_calls(Tokenizer(core, ChatTemplate(source, {})))


def chat(*turns: tuple[str, str], open_last: bool = False) -> Chat:
    return Chat(tuple(Message(role, (Text(text),)) for role, text in turns), open_last=open_last)


def test_options_go_on_after_a_chat_and_inside_an_open_message():
    taker = chat_intake(LOOSE)
    closed = job(Call(chat(("user", "Hi")), options=("a", "b")), taker)
    assert prompts(closed) == [b"<user>Hi</><assistant>a", b"<user>Hi</><assistant>b"]
    opened = job(Call(chat(("user", "Hi"), open_last=True), options=("a", "b")), taker)
    assert prompts(opened) == [b"<user>Hia", b"<user>Hib"]


def test_the_root_of_a_hint_ends_where_its_segments_end():
    def root_len(prompt, end):
        return job(Call(prompt, hint=ForkHint("root", prefix_end=end))).root_len

    prompt = (Text("abc"), Text("de"), Tokens((1, 2)))
    assert [root_len(prompt, end) for end in (None, -1, 0, 1, 2, 3, 99)] == [0, 0, 0, 3, 5, 7, 7]


def test_a_root_does_not_cover_a_token_that_grows_over_its_end():
    taker = pending_calls(merging_tokenizer(has_start=False), vocabulary_size=258)
    call = Call((Text("xa"), Text("b")), hint=ForkHint("root", prefix_end=1))
    assert job(call, taker).root_len == 1


def test_the_root_of_a_chat_is_its_first_messages_left_open():
    prompt = chat(("user", "Hi"), ("assistant", "Ho"), ("user", "Ha"))
    call = Call(prompt, hint=ForkHint("root", prefix_end=1))
    assert job(call, chat_intake(LOOSE)).root_len == len("<user>Hi")


def test_a_hint_whose_beginning_of_a_chat_the_template_refuses_harms_nothing():
    prompt = chat(("user", "Hi"), ("critic", "Ho"), ("user", "Ha"))
    source = STRICT.replace("messages[0].role != 'user'", "messages | length < 3")
    call = Call(prompt, hint=ForkHint("root", prefix_end=2))
    taken = job(call, chat_intake(source))
    assert taken.root_len == 0
    assert prompts(taken) == [b"<user>Hi</><critic>Ho</><user>Ha</><assistant>"]


def test_a_chat_that_the_template_refuses_is_refused_in_its_words():
    with pytest.raises(InvalidCall, match="a user begins"):
        job(Call(chat(("assistant", "Hi"))), chat_intake(STRICT))
