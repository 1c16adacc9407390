"""Masks allow exactly the tokens that the automaton can take."""

from __future__ import annotations

from random import Random

import pytest

from forkroot.core.api.protocol import InvalidCall, InvalidModel
from forkroot.core.fsm.regex.regex import compile_regex, from_choices
from forkroot.core.fsm.tokens.finish import ShortestFinish
from forkroot.core.fsm.tokens.masks import Masks
from forkroot.core.fsm.tokens.regular import RegularGuide
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

from .. import patterns
from .. import vocabularies as tokens

PATTERNS = (
    r"(a|b)*c[ab]{2,4}",
    r'\{"house": "(Gryffindor|Slytherin)", "born": [0-9]{4}, "alive": (true|false)\}',
    r"[\w\s]{1,16}",
    r"(?s).*",
    r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"',
    "[é-ü鱼😀]{2,3}",
    "[^\x00-\x7f]{1,4}",
    "(😀|😁|鱼)+",
)


def check_walk(guide: RegularGuide, random: Random, num_steps: int) -> None:
    """Follow allowed tokens at random, and compare each mask with the tokens tried one by one."""
    cursor = guide.cursor()
    for _ in range(num_steps):
        allowed = tokens.tokens_of(cursor.mask(), guide.vocabulary)
        assert allowed == tokens.allowed_one_by_one(guide.dfa, guide.vocabulary, cursor.state)
        token = random.choice(allowed)
        cursor.advance(token)
        if token == tokens.END:
            break


@pytest.mark.parametrize("pattern", PATTERNS)
def test_masks_agree_with_each_token_alone(pattern: str) -> None:
    vocabulary = tokens.vocabulary(seed=1)
    random = Random(2)
    guide = RegularGuide(compile_regex(pattern), vocabulary)
    for _ in range(6):
        check_walk(guide, random, num_steps=12)


def test_masks_of_random_patterns_agree_with_each_token_alone() -> None:
    vocabulary = tokens.vocabulary(seed=3)
    random = Random(4)
    for _ in range(60):
        guide = RegularGuide(compile_regex(patterns.pattern(random).pattern), vocabulary)
        check_walk(guide, random, num_steps=6)


def test_masks_in_the_middle_of_a_character() -> None:
    vocabulary = tokens.vocabulary(seed=5)
    guide = RegularGuide(compile_regex("[é-ü鱼😀]a*|[^\x00-\x7f]b"), vocabulary)
    for text in ("é", "鱼", "😀", "\u0100"):
        data = text.encode()
        for end in range(1, len(data)):
            state = guide.dfa.run(guide.dfa.start, data[:end])
            mask = guide.masks.allowed(state).mask
            assert tokens.tokens_of(mask, vocabulary) == tokens.allowed_one_by_one(
                guide.dfa, vocabulary, state
            )


def test_special_tokens_are_never_allowed_and_the_end_only_where_the_text_matches() -> None:
    vocabulary = Vocabulary([b"", b"<end>", b"a", b"aa", b"b"], [1])
    guide = RegularGuide(compile_regex("a{2}"), vocabulary)
    assert tokens.tokens_of(guide.cursor().mask(), vocabulary) == [2, 3]
    assert tokens.tokens_of(guide.cursor(b"a").mask(), vocabulary) == [2]
    assert tokens.tokens_of(guide.cursor(b"aa").mask(), vocabulary) == [1]


def test_the_text_of_an_end_token_does_not_let_it_into_an_answer() -> None:
    vocabulary = Vocabulary([b"x", b"<end>"], [1])
    guide = RegularGuide(compile_regex("<end>|x"), vocabulary)
    assert tokens.tokens_of(guide.cursor().mask(), vocabulary) == [0]


def test_tokens_of_the_same_bytes_are_allowed_together() -> None:
    vocabulary = Vocabulary([b"a", b"b", b"a", b"a"], [])
    guide = RegularGuide(compile_regex("ab"), vocabulary)
    assert tokens.tokens_of(guide.cursor().mask(), vocabulary) == [0, 2, 3]


def test_tokens_that_lead_where_the_vocabulary_cannot_go_on_are_not_allowed() -> None:
    vocabulary = Vocabulary([b"a", b"b", b"ac"], [])
    guide = RegularGuide(compile_regex("ab|bz|acb"), vocabulary)
    assert tokens.tokens_of(guide.cursor().mask(), vocabulary) == [0, 2]


def test_a_constraint_that_the_vocabulary_cannot_spell_is_refused() -> None:
    with pytest.raises(InvalidCall, match="tokens can spell"):
        RegularGuide(compile_regex("z+"), Vocabulary([b"a", b"b"], []))


def test_masks_are_bounded_in_memory_and_found_again() -> None:
    vocabulary = tokens.vocabulary(seed=8)
    dfa = compile_regex("[a-z]{1,40}")
    masks = Masks(dfa, vocabulary, ShortestFinish(dfa, vocabulary), max_bytes=1000)
    size = masks.num_bytes
    first = masks.allowed(dfa.start).mask.copy()
    for length in range(40):
        masks.allowed(dfa.run(dfa.start, b"q" * length))
        assert masks.num_bytes <= size + 1000
    assert (masks.allowed(dfa.start).mask == first).all()


def test_a_mask_is_shared_and_cannot_be_changed() -> None:
    guide = RegularGuide(from_choices(("yes", "no")), tokens.vocabulary(seed=6))
    assert guide.cursor().mask() is guide.cursor().mask()
    with pytest.raises(ValueError, match="read-only"):
        guide.cursor().mask()[0] = 1


def test_an_end_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidModel, match="end token 7 is not in a vocabulary of 2"):
        Vocabulary([b"a", b"b"], [7])


@pytest.mark.parametrize("data", [b"", b"t", b"th", b"\xff", b"\xf0\x9f", b"zzz", b"a\xff"])
def test_a_vocabulary_knows_what_begins_with_bytes(data: bytes) -> None:
    vocabulary = tokens.vocabulary(seed=7)
    theirs = [t for t, own in enumerate(vocabulary.token_bytes) if own and own.startswith(data)]
    assert sorted(vocabulary.beginning_with(data)) == theirs
    longer = any(own.startswith(data) and own != data for own in vocabulary.token_bytes)
    assert vocabulary.is_extended(data) is longer


@pytest.mark.parametrize("data", [b"", b"t", b"th", b'"', b"a", b"\xff", b"\xf0\x9f", b"zzz"])
@pytest.mark.parametrize("pattern", ["[a-m]+", "e.*", '":.*', "[😀鱼]", "x", "\\d*"])
def test_a_vocabulary_knows_what_goes_on_as_it_may(data: bytes, pattern: str) -> None:
    vocabulary, dfa = tokens.vocabulary(seed=8), compile_regex(pattern)

    def allows(rest: bytes) -> bool:
        return bool(dfa.run(dfa.start, rest))

    rests = [own[len(data) :] for own in vocabulary.token_bytes if own.startswith(data)]
    assert vocabulary.is_extended(data, allows) is any(rest and allows(rest) for rest in rests)


def test_a_vocabulary_knows_from_where_its_tokens_reach_an_end() -> None:
    vocabulary = Vocabulary([b"a", b"ab", b"abcdef", b"cdefgh", b"x" * 9, b""], [])
    assert vocabulary.reaching(b"xxxxxabcde") == [1, 5, 6, 7, 8, 9]
    assert vocabulary.reaching(b"abcdefcdefgh") == [6, 8, 9, 10, 11]
    assert vocabulary.reaching(b"xxxxxxxxxxxx") == [3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert vocabulary.reaching(b"ab") == [0, 1]
    assert vocabulary.reaching(b"") == []
