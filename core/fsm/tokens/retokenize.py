"""Forced text as tokens that stay the right ones, whatever is written after it.

A tokenizer that meets forced text may join its end with what follows, or its beginning with what
came before. The tokens that are sure are those that every continuation leaves alone: the longest
common prefix of the encodings of the text cut at each place where a token might go on beyond it, or
where the tokenizer, which cuts text into words first, may cut otherwise once it sees what follows.
Knows nothing of automata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from .trie import num_shared
from .vocabulary import Vocabulary

WINDOW_TOKENS = 256
MAX_STARTS = 8

Joins: TypeAlias = Callable[[bytes], bool]


class JumpForward(NamedTuple):
    """What becomes of a sequence's tokens when text is forced upon it.

    keep: how many of its tokens stay; the others are taken back. ids: tokens that come after them.
    required: bytes of tokens taken back that `ids` do not spell again: the next token must begin
      with them, or be a beginning of them. Forced text that is left over is still forced.
    """

    keep: int
    ids: tuple[int, ...]
    required: bytes


class Retokenizer:
    """Forced text to tokens, for one tokenizer.

    encode: text -> tokens, with nothing added. vocabulary: the bytes of these tokens.
    """

    def __init__(self, encode: Callable[[str], Sequence[int]], vocabulary: Vocabulary) -> None:
        self._encode = encode
        self._vocabulary = vocabulary

    def jump_forward(
        self,
        ids: Sequence[int],
        forced: bytes,
        can_go_on: bool = True,
        joins: Joins | None = None,
    ) -> JumpForward:
        """The tokens of a sequence whose next bytes are `forced`.

        ids: the tokens so far; what is before a token without bytes is not looked at, and text
          that is far back is only looked at where nothing nearer is sure.
        can_go_on: whether anything can be written after the forced bytes.
        joins: whether some token begins with these last bytes of the text and goes on with what may
          be written next; None: anything may.
        Changes nothing (all kept, none new) where the text is not one that the tokenizer keeps.
        """
        table = self._vocabulary.token_bytes
        for start, cuts in self._starts(ids, forced, joins or self._vocabulary.is_extended):
            written = b"".join([table[token] for token in ids[start:]])
            tokens = self._sure(written + forced, cuts if can_go_on else ())
            if tokens is not None:
                return self._change(ids, start, tokens, written)
        return JumpForward(len(ids), (), b"")

    def _change(
        self, ids: Sequence[int], start: int, tokens: Sequence[int], written: bytes
    ) -> JumpForward:
        """The step from `ids[start:]`, which spell `written`, to `tokens`."""
        shared = num_shared(ids[start:], tokens)
        table = self._vocabulary.token_bytes
        covered = sum(len(table[token]) for token in tokens)
        return JumpForward(start + shared, tuple(tokens[shared:]), written[covered:])

    def _sure(self, data: bytes, cuts: Sequence[int]) -> list[int] | None:
        """The tokens of a text that it has however it is cut; None where it cannot be encoded."""
        tokens = self._tokens(data)
        if tokens is None:
            return None
        for cut in cuts:
            shorter = self._tokens(data[:cut])
            if shorter is None:
                return None
            del tokens[num_shared(tokens, shorter) :]
        return tokens

    def _cuts(self, data: bytes, joins: Joins) -> list[int]:
        """Places, between characters, where a token that goes on beyond the text may begin, or what
        follows may make the tokenizer cut anew."""
        vocabulary, longest = self._vocabulary, self._vocabulary.longest
        left = [start for start in vocabulary.reaching(data) if joins(data[start:])]
        seen, cuts = set(left), {_last_word(data)} - {len(data)}
        while left:
            start = left.pop()
            if data[start] & 0xC0 == 0x80:  # a token before it ends inside a character
                for before in range(max(0, start - longest), start):
                    if data[before:start] in vocabulary.ids and before not in seen:
                        seen.add(before)
                        left.append(before)
                while data[start] & 0xC0 == 0x80:
                    start -= 1
            cuts.add(start)
        return sorted(cuts)

    def _tokens(self, data: bytes) -> list[int] | None:
        """The encoding of a text; None where it does not spell the text again."""
        try:
            tokens = list(self._encode(data.decode()))
        except UnicodeDecodeError:
            return None
        table = self._vocabulary.token_bytes
        return tokens if b"".join([table[token] for token in tokens]) == data else None

    def _starts(
        self, ids: Sequence[int], forced: bytes, joins: Joins
    ) -> Iterator[tuple[int, list[int]]]:
        """Numbers of tokens after which the text may be encoded alone, nearest first, and the cuts
        of this text.

        The last is where text begins: the sequence's start, or after its last token without bytes.
        """
        table = self._vocabulary.token_bytes
        near = self._text_start(ids, max(0, len(ids) - WINDOW_TOKENS))
        tail = [table[token] for token in ids[near:]]
        data = b"".join(tail) + forced
        position, token_index = len(data) - len(forced), len(ids)
        cuts = self._cuts(data, joins)
        limit = min([*cuts, len(data)])
        num_tried = 0
        while tail and num_tried < MAX_STARTS:
            if 0 < position <= limit and self._is_break(data, position):
                num_tried += 1
                yield token_index, [cut - position for cut in cuts]
            position -= len(tail.pop())
            token_index -= 1
        first = self._text_start(ids, 0)
        if first != near:
            data = b"".join([table[token] for token in ids[first:]]) + forced
            cuts = self._cuts(data, joins)
        yield first, cuts

    def _text_start(self, ids: Sequence[int], least: int) -> int:
        """Where text begins: after the last token without bytes from `least` on, or at `least`."""
        table = self._vocabulary.token_bytes
        return next((i for i in range(len(ids), least, -1) if not table[ids[i - 1]]), least)

    def _is_break(self, data: bytes, position: int) -> bool:
        """Whether a word ends and a space begins here that no token of the vocabulary spans."""
        if data[position : position + 1] != b" " or not data[position - 1 : position].isalpha():
            return False
        begins, up_to = self._vocabulary.begins, data[: position + 1]
        return not any(begins(up_to[start:]) for start in self._vocabulary.reaching(up_to)[:-1])


def _last_word(data: bytes) -> int:
    """Where white space at the end begins, or an apostrophe with at most one letter behind it: what
    follows decides whether a tokenizer cuts it off."""
    text = data.decode("utf-8", "ignore")
    position = text.rfind("'", -2)
    kept = text[:position] if position >= 0 else text
    return len(data) - len(text[len(kept.rstrip()) :].encode())
