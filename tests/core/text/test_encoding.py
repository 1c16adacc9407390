"""Long texts: refused by their length where they cannot fit, and encoded in slices."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

import forkroot
from forkroot.benchmarks.common.fake_runner import byte_tokenizer
from forkroot.core.api.protocol import CallTooLarge, Text, Tokens
from forkroot.core.text.encoding import SLICE
from forkroot.core.text.tokenizer import Tokenizer

PATH = Path(forkroot.__file__).parent / "models" / "tiny" / "tokenizer.json"
SHORT = 4096  # characters that may be encoded with the lock
WORDS = ("Paris", "is", "the", "capital", "of", "France,", "12345", "日本語", "\n\n", "{'a':", " ")


class Counting:
    """A tokenizer of the library that counts the characters that it encodes, in its two ways."""

    def __init__(self, core: tokenizers.Tokenizer) -> None:
        self._core = core
        self.locked: list[int] = []
        self.unlocked: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def encode(self, text: str, **options: Any) -> Any:
        self.locked.append(len(text))
        return self._core.encode(text, **options)

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        self.unlocked += map(len, texts)
        return self._core.encode_batch_fast(texts, **options)


def counted(core: tokenizers.Tokenizer) -> tuple[Tokenizer, Counting]:
    counting = Counting(core)
    found = Tokenizer(counting, None)  # type: ignore[arg-type]
    counting.locked.clear()
    return found, counting


def tiny_core() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(PATH))


def words(num: int, seed: int = 0) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=num))


def test_a_text_that_cannot_fit_by_its_length_is_not_encoded():
    tiny, counting = counted(tiny_core())
    longest = tiny.chars_per_token
    assert longest == max(map(len, tiny_core().get_vocab())) == 17
    with pytest.raises(CallTooLarge, match="34001 characters"):
        tiny.encode_prompt((Text("a" * 34_001),), 2000)
    assert not counting.locked and not counting.unlocked
    assert len(tiny.encode("<|begin_of_text|>" * 2000, 2000)) == 2000


def test_of_a_text_of_too_many_tokens_little_more_is_encoded_than_fits():
    tiny, counting = counted(tiny_core())
    text = words(400_000)
    with pytest.raises(CallTooLarge, match="more than 150000 tokens"):
        tiny.encode(text, 150_000)
    num_chars = sum(counting.locked) + sum(counting.unlocked)
    assert num_chars < len(text)
    assert 150_000 < len(tiny.encode(text[:num_chars])) < 150_000 + SLICE


def test_a_long_text_is_encoded_without_the_interpreter_lock():
    tiny, counting = counted(tiny_core())
    tiny.encode(words(50_000))
    assert sum(counting.locked) < 2 * SHORT
    assert max(counting.unlocked) < 2 * SLICE


def metaspace_core() -> tokenizers.Tokenizer:
    """As Llama 2's: blanks are ▁, one of which stands before every text."""
    spec = json.loads(tiny_core().to_str())
    spec["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    spec["pre_tokenizer"] = None
    spec["post_processor"] = None
    spec["decoder"] = {"type": "ByteFallback"}
    own = [f"<0x{byte:02X}>" for byte in range(256)] + list("▁aehtr") + ["th", "the", "▁t", "▁the"]
    spec["model"] = {
        "type": "BPE",
        "unk_token": None,
        "byte_fallback": True,
        "vocab": {token: 300 + index for index, token in enumerate(own)},
        "merges": [["t", "h"], ["th", "e"], ["▁", "the"], ["▁", "t"]],
    }
    return tokenizers.Tokenizer.from_str(json.dumps(spec))


@pytest.mark.parametrize("make", [tiny_core, metaspace_core])
def test_slices_have_the_tokens_of_the_whole(make):
    core = make()
    tokenizer, counting = counted(core)
    text = "  " + words(60_000, seed=1)
    whole = core.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text) == whole
    assert len(counting.unlocked) > 2
    after = tokenizer.encode_prompt((Tokens((320,)), Text(text)))
    assert after == [320, *tokenizer.encode_after(text)]
    assert tokenizer.decode(after[1:]).lstrip() == tokenizer.decode(whole).lstrip()


def test_a_vocabulary_with_tokens_over_several_words_is_encoded_whole():
    core = tiny_core()
    core.add_tokens(["the capital of"])
    tokenizer, counting = counted(core)
    text = words(60_000)
    assert tokenizer.encode(text) == core.encode(text, add_special_tokens=False).ids
    assert counting.unlocked == [len(text)]


@cache
def warm(make: Callable[[], tokenizers.Tokenizer]) -> tuple[tokenizers.Tokenizer, Tokenizer]:
    """The same for all examples: what one encodes is kept for others."""
    return make(), Tokenizer(make(), None)


TEXTS = st.lists(
    st.sampled_from(
        [*WORDS, "a", "B7", "it's", "x" * 300, "é", "e\u0301", "<|im_start|>", "\t", "  "]
    )
    | st.text(max_size=4),
    max_size=300,
)


@pytest.mark.parametrize("make", [tiny_core, metaspace_core])
@given(texts=st.lists(TEXTS, min_size=1, max_size=3), joint=st.sampled_from(["", " ", " a b "]))
@settings(max_examples=60, deadline=None)
def test_texts_have_the_same_tokens_whatever_was_encoded_before(make, texts, joint):
    core, tokenizer = warm(make)
    for end in range(1, len(texts) + 1):  # each begins as the one before
        text = joint.join(joint.join(words) for words in texts[:end])
        whole = core.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text) == whole == tokenizer.encode(text)
        assert tokenizer.decode(tokenizer.encode_after(text)) == tokenizer.decode(
            tokenizer.encode_after(text, namespace="new" + text)
        )


@pytest.mark.parametrize("make", [tiny_core, metaspace_core])
def test_of_a_text_that_begins_as_one_before_only_the_rest_is_encoded(make):
    tiny, counting = counted(make())
    root = words(3000)  # about 12,000 characters
    tiny.encode(root + " in the end", namespace="one")
    counting.locked.clear()
    counting.unlocked.clear()
    text = root + " at first, and then some"
    found = tiny.encode(text, namespace="one")
    assert sum(counting.locked) + sum(counting.unlocked) < SHORT
    assert found == make().encode(text, add_special_tokens=False).ids


def test_texts_of_another_namespace_make_none_faster():
    tiny, counting = counted(tiny_core())
    text = words(500)
    for namespace in ("one", "two"):
        counting.locked.clear()
        tiny.encode(text, namespace=namespace)
        assert sum(counting.locked) == len(text)


def marked() -> tokenizers.Tokenizer:
    """The last token of each word has a mark."""
    spec = json.loads(tiny_core().to_str())
    spec["model"]["end_of_word_suffix"] = "@"
    return tokenizers.Tokenizer.from_str(json.dumps(spec))


@pytest.mark.parametrize("name", ["suffix", "normalizer"])
def test_no_slices_are_kept_where_tokens_of_words_may_depend_on_others(name):
    tokenizer, counting = counted(marked() if name == "suffix" else dropping(name))
    text = words(200)
    for _ in range(2):
        tokenizer.encode(text)
    assert counting.locked == [len(text)] * 2


def dropping(name: str) -> tokenizers.Tokenizer:
    core = tiny_core()
    if name == "normalizer":
        core.normalizer = normalizers.Strip()
    if name == "pre-tokenizer":
        core.pre_tokenizer = pre_tokenizers.Whitespace()
    if name == "added token":
        core.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
    return core


@pytest.mark.parametrize("name", ["normalizer", "pre-tokenizer", "added token"])
def test_where_a_tokenizer_drops_text_a_length_refuses_nothing(name):
    core = dropping(name)
    tokenizer, _ = counted(core)
    assert tokenizer.chars_per_token is None
    text = " " * 50_000 + "<mask>"
    assert tokenizer.encode(text, 200) == core.encode(text, add_special_tokens=False).ids


def test_a_composing_normalizer_widens_the_bound():
    core = tiny_core()
    core.normalizer = normalizers.NFC()
    tokenizer, _ = counted(core)
    assert tokenizer.chars_per_token == 4 * 17


def test_bytes_as_tokens_bound_a_text_by_its_characters():
    tokenizer = byte_tokenizer()
    longest = tokenizer.chars_per_token
    assert longest is not None
    with pytest.raises(CallTooLarge):
        tokenizer.encode("a" * (5000 * longest + 1), 5000)
