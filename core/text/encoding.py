"""Texts to token ids with bounds on the work: a text that cannot fit is refused by its length, and
a long one is encoded in slices, which hold neither the interpreter lock nor much memory.

It knows nothing of prompts and chats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tokenizers

from ..api.protocol import CallTooLarge, Shown

SLICE = 1 << 16  # characters of a slice at least
_SHORT = 1 << 12  # characters that are encoded at once, with the interpreter lock held
_CUT = re.compile(r"(?<=[0-9A-Za-z]) (?=[0-9A-Za-z])")
_CROSSING = re.compile(rb"[0-9A-Za-z] ")
_COMPOSING = frozenset(("NFC", "NFD", "NFKC", "NFKD"))
_MOST_COMPOSED = 4  # characters that these turn into one at most
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

    def encode(self, text: str, most: int | None = None, prefix: str = "") -> list[int]:
        """Token ids of a text, with nothing added. most: tokens that are allowed; None: any number.
        prefix: what slices after the first are encoded behind, where the vocabulary puts a blank
        before every text. Raises CallTooLarge without encoding more than a slice over `most`."""
        if len(text) <= _SHORT:
            ids: list[int] = self._core.encode(text, add_special_tokens=False).ids
            return ids
        per_token = self.chars_per_token
        if most is not None and per_token is not None and len(text) > most * per_token:
            raise CallTooLarge("prompt", Shown(f"{len(text)} characters"), _allowed(most))
        found = self._in_slices(text, most, prefix)
        return self._at_once(text) if found is None else found

    def _in_slices(self, text: str, most: int | None, prefix: str) -> list[int] | None:
        """None where a slice after the first cannot be encoded as a continuation."""
        before = self._at_once(prefix) if prefix else []
        ids: list[int] = []
        for start, end in self._slices(text):
            part = self._at_once(prefix + text[start:end] if start else text[start:end])
            if start and part[: len(before)] != before:
                return None
            ids += part[len(before) :] if start else part
            if most is not None and len(ids) > most and end < len(text):
                raise CallTooLarge("prompt", Shown(f"more than {most} tokens"), _allowed(most))
        return ids

    def _slices(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the slices of a text start and end: between two words, over which no token of the
        vocabulary reaches, so that they have the tokens of the whole."""
        start = 0
        while self._has_slices and (cut := _CUT.search(text, start + SLICE)):
            yield start, cut.start()
            start = cut.start()
        yield start, len(text)

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
