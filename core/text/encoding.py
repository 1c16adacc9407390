"""Texts to token ids with bounds on the work: a text that cannot fit is refused by its length, and
a long one is encoded in slices, which hold neither the interpreter lock for long nor much memory.

Prompts of a program begin alike: the tokens of slices are kept, so that only those are encoded that
no text of the same namespace had. It knows nothing of prompts and chats.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import tokenizers

from ..api.protocol import CallTooLarge, Shown
from .kept_tokens import KeptTokens

SLICE = 1 << 16  # characters of a slice at least
_SHORT = 1 << 12  # characters that are encoded at once, with the interpreter lock held
_PART, _NUM_PARTS = 1 << 6, 1 << 13  # of the first `_SHORT` characters: parts that are kept
_LONG_PART, _NUM_LONG_PARTS = 1 << 11, 1 << 8  # of the first `SLICE` characters
_KEPT_BYTES = 1 << 22  # of all kept parts of a kind
_WORDS = "In 1984, at 12345 o'clock, it's U2 and x9 or A1 by Ab CD: it don't end"
_CUT = re.compile(r"(?<=[0-9A-Za-z]) (?=[0-9A-Za-z])")
_CROSSING = re.compile(rb"[0-9A-Za-z] ")
_COMPOSING = frozenset(("NFC", "NFD", "NFKC", "NFKD"))
_MOST_COMPOSED = 4  # characters that these turn into one at most
_MARKS = ("continuing_subword_prefix", "end_of_word_suffix")
_KEEPING = frozenset(("ByteLevel", "Digits", "Metaspace", "Prepend", "Punctuation", "Split"))
_BYTES = 256


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
        self._prefix_ids = lru_cache(lambda prefix: self._locked(prefix).ids if prefix else [])
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
        marks = any(spec["model"].get(name) for name in _MARKS)
        self._keeps = self._has_slices and self.chars_per_token is not None and not marks
        self._keeps = self._keeps and self._has_equal_words()
        self._parts, self._long_parts = (
            KeptTokens(num, _KEPT_BYTES) for num in (_NUM_PARTS, _NUM_LONG_PARTS)
        )

    def _has_equal_words(self) -> bool:
        """Whether words have the tokens of a whole text, as tried: alone or behind a line break."""
        first, *cuts = (it.start() for it in _CUT.finditer(_WORDS))
        words = [_WORDS[start:end] for start, end in pairwise((first, *cuts, len(_WORDS)))]
        beginning, whole = self._locked(_WORDS[:first]).ids, self._locked(_WORDS).ids
        for prefix in ("", "\n"):
            parts = [_ids(self._behind(prefix, word, self._locked)) or [] for word in words]
            if [*beginning, *chain.from_iterable(parts)] == whole:
                return True
        return False

    def encode(
        self, text: str, most: int | None = None, prefix: str = "", namespace: str = ""
    ) -> list[int]:
        """Token ids of a text, with nothing added. most: tokens that are allowed; None: any number.
        prefix: what slices after the first are encoded behind, where the vocabulary puts a blank
        before every text. namespace: whose texts alone make this one faster. Raises CallTooLarge
        without encoding more than a slice over `most`."""
        if len(text) <= (_PART if self._keeps else _SHORT):
            ids: list[int] = self._locked(text).ids
            return ids
        per_token = self.chars_per_token
        if most is not None and per_token is not None and len(text) > most * per_token:
            raise CallTooLarge("prompt", Shown(f"{len(text)} characters"), _allowed(most))
        found = self._in_slices(text, most, prefix, namespace) if self._has_slices else None
        return self._at_once(text).ids if found is None else found

    def _in_slices(
        self, text: str, most: int | None, prefix: str, namespace: str
    ) -> list[int] | None:
        """None where a slice after the first cannot be encoded as a continuation."""
        ids: list[int] = []
        for end, found in self._slices(text, prefix, namespace):
            if found is None:
                return None
            ids += found
            if most is not None and len(ids) > most and end < len(text):
                raise CallTooLarge("prompt", Shown(f"more than {most} tokens"), _allowed(most))
        return ids

    def _slices(
        self, text: str, prefix: str, namespace: str
    ) -> Iterator[tuple[int, Sequence[int] | None]]:
        """Where each slice of a text ends, and its tokens."""
        border = 0
        if self._keeps:
            cuts = _cuts(text, 0, _PART, _SHORT)
            yield cuts[-1], self._in_parts(text, cuts, prefix, namespace)
            cuts = _cuts(text, cuts[-1], _LONG_PART, SLICE)
            for start, end in pairwise(cuts):
                yield end, self._long_part(text[start:end], prefix, namespace)
            border = cuts[-1]
        for start, end in pairwise(_cuts(text, border, SLICE, len(text))):
            before = prefix if start else ""
            yield end, _ids(self._behind(before, text[start:end], self._at_once))

    def _in_parts(
        self, text: str, cuts: list[int], prefix: str, namespace: str
    ) -> list[int] | None:
        """The tokens of the beginning of a text, of which only what is behind its known parts is
        encoded."""
        ids = list[int]()
        for index, (start, end) in enumerate(pairwise(cuts)):
            known = self._parts.get(namespace, text[start:end], start == 0)
            if known is None:
                found = self._new_parts(text, cuts[index:], prefix if start else "", namespace)
                return None if found is None else ids + found
            ids += known
        return ids

    def _new_parts(
        self, text: str, cuts: list[int], prefix: str, namespace: str
    ) -> list[int] | None:
        """The tokens of parts that are not known yet; keeps them."""
        start, rest = cuts[0], text[cuts[0] : cuts[-1]]
        if len(rest) > 2 * _SHORT:
            return _ids(self._behind(prefix, rest, self._at_once))
        found = self._behind(prefix, rest, self._locked)
        if found is None:
            return None
        ids, firsts = found.encoding.ids, [first for first, _ in found.encoding.offsets]
        ends = [bisect_left(firsts, cut - start + len(prefix), found.start) for cut in cuts[1:-1]]
        indices = pairwise((found.start, *ends, len(ids)))
        for (first, end), (one, other) in zip(pairwise(cuts), indices, strict=True):
            if end - first <= 2 * _LONG_PART:
                self._parts.put(namespace, text[first:end], first == 0, ids[one:other])
        return _ids(found)

    def _long_part(self, part: str, prefix: str, namespace: str) -> Sequence[int] | None:
        known = self._long_parts.get(namespace, part, False)
        if known is not None:
            return known
        found = _ids(self._behind(prefix, part, self._at_once))
        if found is not None and len(part) <= 2 * _LONG_PART:
            self._long_parts.put(namespace, part, False, found)
        return found

    def _behind(self, prefix: str, text: str, encode: Callable[[str], Any]) -> _Behind | None:
        """A text behind a prefix; None where the prefix has other tokens then."""
        before, encoding = self._prefix_ids(prefix), encode(prefix + text)
        is_equal = encoding.ids[: len(before)] == before
        return _Behind(encoding, len(before)) if is_equal else None

    def _locked(self, text: str) -> Any:
        """A text as the library encodes it, which holds the interpreter lock meanwhile."""
        return self._core.encode(text, add_special_tokens=False)

    def _at_once(self, text: str) -> Any:
        """The same without offsets. The library releases the interpreter lock for batches only."""
        (encoding,) = self._core.encode_batch_fast([text], add_special_tokens=False)
        return encoding


class _Behind(NamedTuple):
    """What the library found, and where the tokens of the text begin in it."""

    encoding: Any
    start: int


def _ids(found: _Behind | None) -> list[int] | None:
    return None if found is None else found.encoding.ids[found.start :]


def _cuts(text: str, start: int, size: int, end: int) -> list[int]:
    """Where slices of so many characters, or a few more, start and end: from `start` on up to the
    first that ends at `end` or behind. They are cut between two words, over which no token of the
    vocabulary reaches."""
    cuts = [start]
    while cuts[-1] < min(end, len(text)):
        cut = _CUT.search(text, cuts[-1] + size)
        cuts.append(len(text) if cut is None else cut.start())
    return cuts


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
