"""Tokens become text, stop rules are checked, and what is sent adds up to the answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forkroot
from forkroot.benchmarks.common.fake_runner import byte_tokenizer
from forkroot.core.api.protocol import Call, Sampling, Text, TokenLogprob
from forkroot.core.api.reply import Mailbox
from forkroot.core.engine.output import MAX_REFUSED, OutputProcessor
from forkroot.core.engine.sequence import Ending, Job, Sequence, StopRules
from forkroot.core.text.tokenizer import Tokenizer

END = 256
BYTES = byte_tokenizer()
TINY = Tokenizer.from_folder(Path(forkroot.__file__).parent / "models" / "tiny")
SNOWMAN = "☃".encode()


def start(stops=(), min_new=0, max_new=100, end_ids=(END,), logprobs=None) -> Sequence:
    call = Call((Text("?"),), Sampling(logprobs=logprobs, max_tokens=max_new), stream=True)
    ids = np.zeros(1 + max_new, np.int32)
    rules = StopRules(frozenset(end_ids), tuple(stop.encode() for stop in stops), min_new, max_new)
    return Sequence(Job(call, Mailbox(call)), 0, ids, 1, 1, rules, seed=0)


def feed(sequence: Sequence, tokens, advancer: OutputProcessor | None = None):
    """Advance by these tokens until the sequence ends; the chunks that were shown."""
    advancer = advancer or OutputProcessor(BYTES)
    chunks = []
    for token in tokens:
        logprob = TokenLogprob(int(token), -float(token))
        has_logprobs = sequence.job.call.sampling.logprobs is not None
        advancer.advance(sequence, int(token), logprob if has_logprobs else None)
        chunk = advancer.chunk(sequence)
        chunks += [] if chunk is None else [chunk]
        if sequence.ending is not None:
            break
    return chunks


def answer(tokens, **rules):
    sequence = start(**rules)
    chunks = feed(sequence, tokens)
    return OutputProcessor(BYTES).output(sequence), [chunk.text for chunk in chunks]


# --- endings -----------------------------------------------------------------------------------


def test_an_end_token_ends_the_answer_and_is_not_in_its_text():
    output, shown = answer([*b"hi", END, *b"more"])
    assert (output.text, output.ids) == ("hi", (104, 105, END))
    assert (output.finish_reason, output.matched) == ("stop", END)
    assert output.segments == (Text("hi", (104, 105)),)
    assert "".join(shown) == "hi"


def test_an_end_token_at_once_leaves_nothing():
    output, shown = answer([END])
    assert (output.text, output.ids, output.segments) == ("", (END,), ())
    assert shown == [""]


def test_the_last_allowed_token_ends_the_answer_by_length():
    output, _ = answer(b"hello", max_new=3)
    assert (output.text, output.finish_reason, output.matched) == ("hel", "length", None)


def test_a_stop_with_the_last_allowed_token_is_a_stop():
    assert answer(b"ab", max_new=2, stops=("b",))[0].finish_reason == "stop"
    assert answer([97, END], max_new=2)[0].finish_reason == "stop"


class Refusing:
    """A cursor in whose budget no token fits."""

    is_finished = is_accepting = False

    def fits(self, token: int, budget: int) -> bool:
        return False

    def forced(self) -> bytes:
        return b""

    def advance(self, token: int) -> None:
        pass


def test_tokens_that_do_not_fit_are_refused_but_not_without_end():
    sequence = start(max_new=2)
    sequence.cursor = Refusing()  # type: ignore[assignment]
    feed(sequence, [97] * MAX_REFUSED)
    assert sequence.num_new == 0
    feed(sequence, [98] * (MAX_REFUSED + 2))
    assert (bytes(sequence.text), sequence.ending.reason) == (b"bb", "length")


def test_an_end_token_that_does_not_count_goes_on():
    output, _ = answer([97, END, 98], end_ids=(), max_new=3)
    assert (output.text, output.ids) == ("ab", (97, END, 98))
    assert output.segments == (Text("ab", (97, END, 98)),)


def test_no_rule_counts_before_the_least_tokens():
    tokens = [97, END, 98, 97, END]
    assert answer(tokens, min_new=2)[0].ids == tuple(tokens)
    assert answer(tokens, min_new=1)[0].ids == (97, END)
    output, _ = answer(b"xabxab", stops=("xa",), min_new=3)
    assert output.text == "xab"


def test_a_stop_that_ended_before_the_least_tokens_does_not_end_it_later():
    output, _ = answer(b"x12345", stops=("x", "a long stop"), min_new=2, max_new=5)
    assert output.text == "x1234"


# --- stops -------------------------------------------------------------------------------------


def test_a_stop_is_found_across_tokens_and_cut_out():
    output, shown = answer(b"one STOP two", stops=("STOP",))
    assert (output.text, output.matched) == ("one ", "STOP")
    assert output.ids == tuple(b"one STOP")
    assert shown == ["o", "n", "e", " ", ""]


@pytest.mark.parametrize(
    ("stops", "text", "matched"),
    [
        (("ord", "word"), "s", "word"),
        (("wo", "word"), "s", "word"),
        (("d", "s"), "", "s"),
        (("x", "d"), "swor", "d"),
    ],
)
def test_the_earliest_stop_wins_and_of_these_the_longest(stops, text, matched):
    class OneWord:
        token_bytes = (b"sword",)

    sequence = start(stops)
    feed(sequence, [0], OutputProcessor(OneWord()))
    output = OutputProcessor(OneWord()).output(sequence)
    assert (output.text, output.matched) == (text, matched)


def test_a_stop_inside_a_character_of_many_bytes_is_none():
    # the snowman is e2 98 83; a stop is a text, so it is found at whole characters only
    output, _ = answer([*SNOWMAN, *b"x", *SNOWMAN], stops=("x☃", "\x98"))
    assert (output.text, output.matched) == ("☃", "x☃")


def test_what_may_be_the_beginning_of_a_stop_is_held_back():
    _, shown = answer(b"aSTxSTOP", stops=("STOP",))
    assert shown == ["a", "STx", ""]
    _, shown = answer(b"ababac", stops=("abac",))
    assert shown == ["ab", ""]


def test_what_was_held_back_is_shown_when_the_answer_ends_otherwise():
    output, shown = answer([*b"aST", END], stops=("STOP",))
    assert (output.text, shown) == ("aST", ["a", "ST"])
    output, shown = answer(b"aST", stops=("STOP",), max_new=3)
    assert (output.text, shown) == ("aST", ["a", "ST"])


# --- characters --------------------------------------------------------------------------------


def test_a_character_is_shown_when_it_is_whole():
    output, shown = answer([*b"a", *SNOWMAN, *b"b", END])
    assert (output.text, shown) == ("a☃b", ["a", "☃", "b", ""])


def test_a_broken_character_is_shown_as_such():
    output, shown = answer([*SNOWMAN[:2], *b"b", *SNOWMAN[:1]], max_new=4)
    assert output.text == "\ufffdb\ufffd" == "".join(shown)


def test_ids_of_a_chunk_are_those_since_the_last_one():
    sequence = start(logprobs=0)
    chunks = feed(sequence, [*b"a", *SNOWMAN, END])
    assert [chunk.ids for chunk in chunks] == [(97,), tuple(SNOWMAN), (END,)]
    assert [[entry.id for entry in chunk.logprobs] for chunk in chunks] == [
        [97],
        list(SNOWMAN),
        [END],
    ]


# --- going on ----------------------------------------------------------------------------------


def test_of_a_token_that_a_stop_cuts_the_rest_is_text():
    tokens = TINY.encode("the capital city")
    words = [TINY.decode([token]) for token in tokens]
    last = words[-1]
    assert len(last) > 3
    sequence = start(stops=(last[2:],))
    feed(sequence, tokens, OutputProcessor(TINY))
    output = OutputProcessor(TINY).output(sequence)
    head = "".join(words[:-1])
    assert output.segments == (Text(head, tuple(tokens[:-1])), Text(last[:2]))
    assert TINY.encode_prompt(output.segments)[len(TINY.start_ids) :] == [
        *tokens[:-1],
        *TINY.encode(last[:2]),
    ]


def test_a_stop_at_the_beginning_leaves_no_segment():
    output, _ = answer(b"xy", stops=("xy",))
    assert (output.text, output.segments) == ("", ())


def test_an_answer_that_was_broken_off_goes_on_where_it_ended():
    sequence = start()
    feed(sequence, b"abc")
    sequence.ending = Ending("abort", None, len(sequence.text))
    output = OutputProcessor(BYTES).output(sequence)
    assert (output.text, output.finish_reason) == ("abc", "abort")
    assert output.segments == (Text("abc", tuple(b"abc")),)


def test_a_token_without_bytes_keeps_its_id():
    output, _ = answer([97, 300, 98], max_new=3)
    assert output.segments == (Text("ab", (97, 300, 98)),)


# --- all of it, against the plainest way to say it ----------------------------------------------


def expected_end(tokens, table, stops, min_new, max_new, end_ids):
    """How many tokens are generated, and the bytes that count: stops are looked for anew, in all
    of the text, after every token."""
    text = b""
    for count, token in enumerate(tokens[:max_new], 1):
        if token in end_ids and count > min_new:
            return count, text
        before, text = len(text), text + table[token]
        found = [
            (place, -len(stop))
            for stop in stops
            for place in range(len(text))
            if text.startswith(stop, place) and place + len(stop) > before
        ]
        if found and count >= min_new:
            return count, text[: min(found)[0]]
    return min(len(tokens), max_new), text


PIECES = [b"", b"a", b"b", b"ab", b"ba", b"aab", SNOWMAN, SNOWMAN[:1], SNOWMAN[1:], b"\xff"]


class Pieces:
    """A vocabulary of texts that overlap, and of parts of characters."""

    token_bytes = PIECES


@given(
    tokens=st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=16),
    stops=st.lists(st.text("ab☃", min_size=1, max_size=4), max_size=3),
    min_new=st.integers(0, 6),
    max_new=st.integers(6, 14),
    end_ids=st.sets(st.integers(0, len(PIECES) - 1), max_size=1),
)
@settings(max_examples=300)
def test_chunks_of_any_tokens_add_up_to_the_output_that_the_rules_say(
    tokens, stops, min_new, max_new, end_ids
):
    advancer = OutputProcessor(Pieces())
    sequence = start(stops, min_new, max_new, end_ids, logprobs=0)
    chunks = feed(sequence, tokens, advancer)
    is_over = sequence.ending is not None
    if not is_over:
        sequence.ending = Ending("abort", None, len(sequence.text))
        last = advancer.chunk(sequence)
        chunks += [] if last is None else [last]
    output = advancer.output(sequence)
    encoded = [stop.encode() for stop in stops]
    count, text = expected_end(tokens, PIECES, encoded, min_new, max_new, end_ids)
    assert output.ids == tuple(tokens[:count])
    assert output.text == text.decode("utf-8", "replace")
    assert is_over or count == len(tokens) < max_new
    assert "".join(chunk.text for chunk in chunks) == output.text
    assert sum((chunk.ids for chunk in chunks), ()) == output.ids
    assert sum((chunk.logprobs for chunk in chunks), ()) == output.logprobs
    assert advancer.chunk(sequence) is None


@given(st.lists(st.integers(0, 4095), min_size=1, max_size=12), st.data())
@settings(max_examples=60)
def test_what_is_appended_to_a_prompt_repeats_the_answer(tokens, data):
    text = TINY.decode(tokens)
    place = data.draw(st.integers(0, len(text)))
    stop = text[place : place + data.draw(st.integers(1, 3))]
    sequence = start((stop,) if stop else (), max_new=len(tokens), end_ids=())
    feed(sequence, tokens, OutputProcessor(TINY))
    output = OutputProcessor(TINY).output(sequence)
    assert "".join(segment.text for segment in output.segments) == output.text
    ids = TINY.encode_prompt(output.segments)
    assert TINY.decode(ids) == output.text
    kept = output.segments[0].ids or () if output.segments else ()
    assert output.ids[: len(kept)] == kept


@pytest.mark.parametrize("stop", ["a" * 50, "b"])
def test_a_long_answer_costs_the_same_for_each_token(stop):
    """Only the end of the text is looked at: ten times the tokens are not a hundred times the work.
    Counted in bytes that are compared, by a text that counts."""

    class Counting(bytearray):
        looked_at = 0

        def find(self, piece, begin=0):
            Counting.looked_at += len(self) - begin
            return super().find(piece, begin)

    sequence = start((stop,), max_new=2000)
    sequence.text = Counting()
    feed(sequence, b"a" * 40 + b"c" * 1900)
    assert Counting.looked_at < 2000 * (len(stop) + 1)
