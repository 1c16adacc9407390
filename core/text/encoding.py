"""Texts to token ids with bounds on the work: a text that cannot fit is refused by its length, and
a long one is encoded in slices, which hold neither the interpreter lock for long nor much memory.

Prompts of a program begin alike: the tokens of slices are kept, so that only those are encoded that
no text of the same namespace had. It knows nothing of prompts and chats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import tokenizers

from ..api.protocol import CallTooLarge, Shown

SLICE = 1 << 16  # characters of a slice at least
_SHORT = 1 << 12  # characters that are encoded at once, with the interpreter lock held
_KEPT_SLICE, _NUM_KEPT = 1 << 7, 4096  # of the first `_SHORT` characters
_KEPT_LONG_SLICE, _NUM_KEPT_LONG = 1 << 11, 256  # of the first `SLICE` characters
_WORDS = "In 1984, at 12345 o'clock, it's U2 and x9 or A1 by Ab CD: it don't end"
_CUT = re.compile(r"(?<=[0-9A-Za-z]) (?=[0-9A-Za-z])")
_CROSSING = re.compile(rb"[0-9A-Za-z] ")
_COMPOSING = frozenset(("NFC", "NFD", "NFKC", "NFKD"))
_MOST_COMPOSED = 4  # characters that these turn into one at most
_MARKS = ("continuing_subword_prefix", "end_of_word_suffix")
_KEEPING = frozenset(("ByteLevel", "Digits", "Metaspace", "Prepend", "Punctuation", "Split"))
_BYTES = 256
Ids = tuple[int, ...]


class _Tier(NamedTuple):
    """Slices that start before a position, or anywhere. size: their characters at least. encode: a
    slice behind a prefix, in a namespace; None where the prefix changes its tokens."""

    end: int | None
    size: int
    encode: Callable[[str, str, str], Ids | None]


class TextEncoder:
    """Encodes texts with one vocabulary.

    spec: the tokenizer as tokenizer.json has it. token_bytes: as in `Tokenizer`.
    chars_per_token: characters of a text that one token stands for at most; None: no bound is
      known, as some tokenizers drop blanks or replace whole words.
    """

    def __init__(
        self, core: tokenizers.Tokenizer, spec: Mapping[str, Any], token_bytes: Sequence[bytes]
    ) -> None:
        self._core = core
        added = spec.get("added_tokens") or []
        is_plain = spec["model"].get("type") == "BPE" and not any(
            token["lstrip"] or token["rstrip"] or token["single_word"] for token in added
        )
        names = [token["content"].encode() for token in added]
        self._has_slices = is_plain and not any(map(_CROSSING.search, (*token_bytes, *names)))
        self.chars_per_token: int | None = None
        if is_plain and _keeps_all(spec, token_bytes):
            longest = max(map(len, (*token_bytes, *names)))
            self.chars_per_token = longest * (_MOST_COMPOSED if _composes(spec) else 1)
        self._tiers = self._found_tiers(spec)

    def _found_tiers(self, spec: Mapping[str, Any]) -> tuple[_Tier, ...]:
        """None where no text may be cut. No slices are kept where tokens of a word may depend on
        the words beside it."""
        whole = _Tier(None, SLICE, lambda *it: self._encoded(self._at_once, *it))
        if not self._has_slices:
            return ()
        marks = any(spec["model"].get(name) for name in _MARKS)
        if self.chars_per_token is None or marks or not self._has_equal_words():
            return (whole,)
        kept = lru_cache(_NUM_KEPT)(lambda *it: self._encoded(self._locked, *it))
        long = lru_cache(_NUM_KEPT_LONG)(lambda *it: self._encoded(self._at_once, *it))
        first, second = _Tier(_SHORT, _KEPT_SLICE, kept), _Tier(SLICE, _KEPT_LONG_SLICE, long)
        return first, second, whole

    def _has_equal_words(self) -> bool:
        """Whether words have the tokens of a whole text, as tried: alone or behind a line break."""
        first, *cuts = (it.start() for it in _CUT.finditer(_WORDS))
        whole = self._locked(_WORDS)
        words = [_WORDS[start:end] for start, end in pairwise((first, *cuts, len(_WORDS)))]
        for prefix in ("", "\n"):
            parts = [self._encoded(self._locked, word, prefix, "") or () for word in words]
            if [*self._locked(_WORDS[:first]), *chain.from_iterable(parts)] == whole:
                return True
        return False

    def encode(
        self, text: str, most: int | None = None, prefix: str = "", namespace: str = ""
    ) -> list[int]:
        """Token ids of a text, with nothing added. most: tokens that are allowed; None: any number.
        prefix: what slices after the first are encoded behind, where the vocabulary puts a blank
        before every text. namespace: whose texts alone make this one faster. Raises CallTooLarge
        without encoding more than a slice over `most`."""
        if len(text) <= (_SHORT if len(self._tiers) < 2 else _KEPT_SLICE):
            return self._locked(text)
        per_token = self.chars_per_token
        if most is not None and per_token is not None and len(text) > most * per_token:
            raise CallTooLarge("prompt", Shown(f"{len(text)} characters"), _allowed(most))
        found = self._in_slices(text, most, prefix, namespace) if self._tiers else None
        return self._at_once(text) if found is None else found

    def _in_slices(
        self, text: str, most: int | None, prefix: str, namespace: str
    ) -> list[int] | None:
        """None where a slice after the first cannot be encoded as a continuation."""
        ids: list[int] = []
        for start, end, encode in self._slices(text):
            part = encode(text[start:end], prefix if start else "", namespace)
            if part is None:
                return None
            ids += part
            if most is not None and len(ids) > most and end < len(text):
                raise CallTooLarge("prompt", Shown(f"more than {most} tokens"), _allowed(most))
        return ids

    def _slices(self, text: str) -> Iterator[tuple[int, int, Callable[..., Ids | None]]]:
        """Where the slices of a text start and end: between two words, over which no token of the
        vocabulary reaches, so that they have the tokens of the whole."""
        start = 0
        for tier in self._tiers:
            while tier.end is None or start < tier.end:
                cut = _CUT.search(text, start + tier.size)
                end = len(text) if cut is None else cut.start()
                is_long = end - start > 2 * tier.size
                yield start, end, self._tiers[-1].encode if is_long else tier.encode
                if cut is None:
                    return
                start = end

    def _encoded(
        self, encode: Callable[[str], list[int]], text: str, prefix: str, namespace: str
    ) -> Ids | None:
        before, ids = encode(prefix) if prefix else [], encode(prefix + text)
        return tuple(ids[len(before) :]) if ids[: len(before)] == before else None

    def _locked(self, text: str) -> list[int]:
        ids: list[int] = self._core.encode(text, add_special_tokens=False).ids
        return ids

    def _at_once(self, text: str) -> list[int]:
        """The ids of a text. The library releases the interpreter lock for batches only."""
        (encoding,) = self._core.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids


def _allowed(most: int) -> str:
    return f"at most {most} tokens"


def _keeps_all(spec: Mapping[str, Any], token_bytes: Sequence[bytes]) -> bool:
    """Whether every character of a text is part of some token."""
    kept = _COMPOSING | _KEEPING | {"Replace"}
    steps = [*_steps(spec, "normalizer", "normalizers")]
    steps += _steps(spec, "pre_tokenizer", "pretokenizers")
    for step in steps:
        is_removing = step.get("behavior") == "Removed"
        if step["type"] not in kept or is_removing or not _keeps_length(step):
            return False
    return len({token for token in token_bytes if len(token) == 1}) == _BYTES


def _keeps_length(step: Mapping[str, Any]) -> bool:
    """Whether a normalizer replaces nothing by less."""
    if step["type"] != "Replace":
        return True
    replaced = step["pattern"].get("String")
    return replaced is not None and len(replaced) <= len(step["content"])


def _composes(spec: Mapping[str, Any]) -> bool:
    return any(it["type"] in _COMPOSING for it in _steps(spec, "normalizer", "normalizers"))


def _steps(spec: Mapping[str, Any], name: str, parts: str) -> Iterator[Mapping[str, Any]]:
    """The normalizers, or pre-tokenizers, that a tokenizer applies one after another."""
    step = spec.get(name)
    if step is None:
        return
    if step["type"] != "Sequence":
        yield step
        return
    for part in step[parts]:
        yield from _steps({name: part}, name, parts)
