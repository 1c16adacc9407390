"""Tokens of forced text stay what the tokenizer makes of the whole text, whatever follows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from forkroot.core.fsm.tokens.retokenize import JumpForward, Retokenizer
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

WORDS = (
    *("the", "then", "there", "name", "names", "house", '"name": "', '", "age": ', "12", "345"),
    *(
        "é",
        "née",
        "鱼",
        "鱼鱼",
        "😀",
        "ab",
        "ba",
        "aab",
        "{",
        "}",
        '"}',
        "], [",
        "\n",
        "\n\n",
        "'s",
    ),
    *("don't", "  ", "   ", "x.y", "...", "1.5", "A", "Ab", "AB", " - "),
)
GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def splits() -> list[pre_tokenizers.PreTokenizer]:
    """The ways in which a text is cut before it is encoded."""
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return [
        gpt2,
        plain,
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(GPT4), "isolated"), plain]),
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain]),
        pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "merged_with_next"), plain]),
    ]


def text(random: Random, num_words: int) -> str:
    return "".join(random.choice(WORDS) + random.choice(["", " ", ""]) for _ in range(num_words))


def bpe(random: Random) -> tokenizers.Tokenizer:
    """A small byte-level BPE tokenizer, trained on random text."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = random.choice(splits())
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + random.choice([10, 40, 120, 300]),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text(random, 60) for _ in range(8)], trainer)
    return tokenizer


def byte_of_letter() -> dict[str, int]:
    """Byte-level tokenizers write each byte as a letter; this reads them back."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): byte for byte in shown}
    hidden = [byte for byte in range(256) if byte not in shown]
    return letters | {chr(256 + index): byte for index, byte in enumerate(hidden)}


def vocabulary_of(tokenizer: tokenizers.Tokenizer) -> Vocabulary:
    letters = byte_of_letter()
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    return Vocabulary([bytes(letters[letter] for letter in token) for token in tokens], [])


def encoder(tokenizer: tokenizers.Tokenizer) -> Callable[[str], list[int]]:
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def count_violations(num_tokenizers: int, trials_each: int, seed: int) -> tuple[int, float]:
    """Jumps that a continuation proves wrong, and the tokens jumped per token of forced text."""
    random = Random(seed)
    wrong = jumped = whole = 0
    for _ in range(num_tokenizers):
        tokenizer = bpe(random)
        encode = encoder(tokenizer)
        retokenizer = Retokenizer(encode, vocabulary_of(tokenizer))
        for _ in range(trials_each):
            before, forced = text(random, random.choice([0, 3, 30])), text(random, 4)
            ids = encode(before)
            jump = retokenizer.jump_forward(ids, forced.encode())
            sure = [*ids[: jump.keep], *jump.ids]
            for num_words in (0, 1, 2, 5):
                after = encode(before + forced + text(random, num_words))
                wrong += after[: len(sure)] != sure
            jumped += len(sure) - len(ids)
            whole += len(encode(before + forced)) - len(ids)
    return wrong, jumped / whole


def test_jumps_are_right_for_random_tokenizers() -> None:
    wrong, share = count_violations(num_tokenizers=8, trials_each=40, seed=1)
    assert wrong == 0
    assert share > 0.6


@pytest.mark.slow
def test_ten_thousand_jumps_are_right_for_random_tokenizers() -> None:
    wrong, _ = count_violations(num_tokenizers=100, trials_each=100, seed=2)
    assert wrong == 0


def joins_with(vocabulary: Vocabulary, allowed: str) -> Callable[[bytes], bool]:
    """Whether a token may go on beyond the text, where only these characters follow."""
    spelled = {byte for char in allowed for byte in char.encode()}
    return lambda tail: vocabulary.is_extended(tail, lambda rest: set(rest) <= spelled)


def follower(random: Random, vocabulary: Vocabulary, allowed: str, before: bytes) -> str:
    """Some of these characters, the rest of a token first that begins in what is written."""
    rests = [
        token[size:].decode()
        for size in range(1, min(len(before), vocabulary.longest))
        for token in vocabulary.token_bytes
        if token.startswith(before[-size:]) and set(token[size:]) <= set(allowed.encode())
    ]
    return random.choice(["", *rests]) + "".join(random.choices(allowed, k=random.choice((0, 3))))


@pytest.mark.parametrize("allowed", ["abehnt", " aTh", '", :', "0123", "' s"])
def test_jumps_are_right_and_longer_where_less_may_follow(allowed: str) -> None:
    random, share = Random(5), {"any": 0, "some": 0}
    for _ in range(6):
        tokenizer = bpe(random)
        encode, vocabulary = encoder(tokenizer), vocabulary_of(tokenizer)
        retokenizer, joins = Retokenizer(encode, vocabulary), joins_with(vocabulary, allowed)
        for _ in range(30):
            before, forced = text(random, random.choice([0, 3, 30])), text(random, 3)
            ids = encode(before)
            any_jump = retokenizer.jump_forward(ids, forced.encode())
            jump = retokenizer.jump_forward(ids, forced.encode(), joins=joins)
            sure = [*ids[: jump.keep], *jump.ids]
            share["any"] += any_jump.keep + len(any_jump.ids)
            share["some"] += len(sure)
            for _ in range(4):
                after = follower(random, vocabulary, allowed, (before + forced).encode())
                assert encode(before + forced + after)[: len(sure)] == sure
    assert share["some"] > share["any"]


def letters(*pieces: bytes) -> Retokenizer:
    """A tokenizer that takes the longest piece at every place, and stops where there is none."""
    vocabulary = Vocabulary(pieces, [])

    def encode(text: str) -> list[int]:
        data, ids = text.encode(), []
        while data:
            found = [piece for piece in pieces if piece and data.startswith(piece)]
            if not found:
                break
            ids.append(max(found, key=len))
            data = data[len(ids[-1]) :]
        return [pieces.index(piece) for piece in ids]

    return Retokenizer(encode, vocabulary)


def test_a_token_that_might_grow_is_not_jumped() -> None:
    retokenizer = letters(b"a", b"b", b"c", b"ab", b"abc", b"x")
    assert retokenizer.jump_forward([5], b"xab") == JumpForward(1, (5,), b"")
    assert retokenizer.jump_forward([5], b"xab", can_go_on=False) == JumpForward(1, (5, 3), b"")
    assert retokenizer.jump_forward([5], b"xab", joins=lambda tail: False) == JumpForward(
        1, (5, 3), b""
    )
    assert retokenizer.jump_forward([5], b"xab", joins=lambda tail: tail == b"ab") == JumpForward(
        1, (5,), b""
    )


def test_a_tokenizer_that_looks_at_what_follows_is_not_surprised() -> None:
    core = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "Ġ": 2, "Ċ": 3, "ĊĠ": 4}, [("Ċ", "Ġ")]))
    spaces = pre_tokenizers.Split(Regex(r" ?[a-z]+|\s+(?!\S)|\s+"), "isolated")
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([spaces, plain])
    vocabulary = Vocabulary([b"a", b"b", b" ", b"\n", b"\n "], [])
    retokenizer = Retokenizer(lambda text: core.encode(text).ids, vocabulary)
    assert core.encode("a\n ").ids == [0, 4]
    assert core.encode("a\n b").ids == [0, 3, 2, 1]  # though no token spans the space and b
    assert retokenizer.jump_forward([0], b"\n ") == JumpForward(1, (), b"")


def test_tokens_before_the_forced_text_are_taken_back_where_they_join_it() -> None:
    retokenizer = letters(b"a", b"b", b"c", b"abc", b"x")
    assert retokenizer.jump_forward([4, 0], b"bcx") == JumpForward(1, (3, 4), b"")


def test_bytes_taken_back_that_are_not_sure_are_required() -> None:
    retokenizer = letters(b"a", b"b", b"c", b"d", b"abcd", b"x")
    assert retokenizer.jump_forward([5, 0], b"b") == JumpForward(1, (), b"a")
    assert retokenizer.jump_forward([5, 0, 1], b"c") == JumpForward(1, (), b"ab")


def test_text_before_a_special_token_is_left_alone() -> None:
    retokenizer = letters(b"", b"a", b"b", b"ab", b"x")
    assert retokenizer.jump_forward([1, 0], b"bx", can_go_on=False) == JumpForward(2, (2, 4), b"")
    assert retokenizer.jump_forward([0, 1], b"bx", can_go_on=False) == JumpForward(1, (3, 4), b"")


def test_text_that_cannot_be_encoded_is_not_jumped() -> None:
    retokenizer = letters(b"a", b"\xc3", b"x")
    assert retokenizer.jump_forward([1], b"ax") == JumpForward(1, (), b"")


def test_a_tokenizer_that_changes_text_is_not_trusted() -> None:
    vocabulary = Vocabulary([b"a", b"b", b" "], [])
    retokenizer = Retokenizer(lambda text: [2, *([0] * len(text))], vocabulary)
    assert retokenizer.jump_forward([0], b"a") == JumpForward(1, (), b"")


def test_far_text_is_not_encoded_again() -> None:
    random = Random(3)
    tokenizer = bpe(random)
    seen: list[str] = []
    encode = encoder(tokenizer)

    def spy(text: str) -> list[int]:
        seen.append(text)
        return encode(text)

    ids = encode("the quick brown fox jumps over the lazy dog and " * 200)
    Retokenizer(spy, vocabulary_of(tokenizer)).jump_forward(ids, b"then there")
    assert max(map(len, seen)) < 400
