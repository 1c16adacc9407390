"""A prompt as one text with marks, so that what two prompts share is a common prefix of texts; and
calls that are to run together, grouped by what they share.

Two prompts whose outlines begin alike begin alike for the model. It knows nothing of tokens but
where words end: there a text can be cut and the tokens before the cut stay what they are.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate, pairwise

from ...core.api.protocol import Call, Chat, Image, Message, Prompt, Segment, Text, Tokens, Video
from .seen import common_len

_CHAT, _PLAIN, _CONTENT, _END, _TOKENS, _DATA = "\ufdd0\ufdd1\ufdd2\ufdd3\ufdd4\ufdd5"
_LAST_CHAR = 0x10FFFF
_REACH = 64  # characters in which a word ends, in scripts that part words
_MEDIA_LEN = 1024  # characters that stand for a picture: about as many tokens as it has
_PRIVATE = 0xF0000  # the first of 65,534 characters that no text has


@dataclass(frozen=True, slots=True)
class Outline:
    """A prompt and its text.

    ends: where the head of the text, and then each segment or closed message, ends; marks included.
    """

    prompt: Prompt
    text: str
    ends: tuple[int, ...]

    @classmethod
    def of(cls, prompt: Prompt) -> Outline:
        """The outline of a prompt. Raises where the prompt is none."""
        if not isinstance(prompt, Chat):
            return cls(prompt, *_joined(_PLAIN, [spelled(segment) for segment in prompt]))
        turns = [
            f"{m.role}{_CONTENT}{''.join(map(spelled, m.content))}{_END}" for m in prompt.messages
        ]
        tools = json.dumps(list(prompt.tools), default=str) if prompt.tools else ""
        text, ends = _joined(f"{_CHAT}{tools}{_END}", turns)
        if prompt.open_last:
            text, ends = text[: -len(_END)], ends[:-1]
        return cls(prompt, text, ends)

    def num_whole(self, length: int) -> int:
        """How many leading messages or segments lie in the first `length` characters."""
        return max(0, bisect_right(self.ends, length) - 1)

    def hintable_len(self, length: int) -> int:
        """The longest prefix up to `length` that ends where a hint can end, in characters."""
        count = self.num_whole(length)
        hintable_len = self.ends[count] + self._opening_len(count)
        return hintable_len if hintable_len <= length else self.ends[count]

    def is_hintable(self, length: int) -> bool:
        """Whether a hint can express where the first `length` characters end."""
        return self.num_whole(length) > 0 and self.hintable_len(length) == length

    def cut(self, length: int) -> int:
        """Where to cut at or before `length` so that no token is likely to straddle the cut."""
        start = self.hintable_len(length)
        if length in (start, len(self.text)):
            return length
        low = max(start, length - _REACH)
        position = self.text.rfind(" ", low, length)
        while position > low and not self.text[position - 1].isalnum():
            position = self.text.rfind(" ", low, position)
        return position if position > low else length

    def before(self, length: int) -> Prompt | None:
        """The prompt that plants the first `length` characters; None where that is nothing."""
        if length >= len(self.text):
            return self.prompt
        count = self.num_whole(length)
        rest_len = length - self.ends[count]
        if not isinstance(self.prompt, Chat):
            return (*self.prompt[:count], *_truncated(self.prompt[count:], rest_len)) or None
        messages, opening_len = self.prompt.messages[:count], self._opening_len(count)
        if 0 < opening_len <= rest_len:
            opened = self.prompt.messages[count]
            content = _truncated(opened.content, rest_len - opening_len)
            messages = (*messages, Message(opened.role, content))
        return replace(self.prompt, messages=messages, open_last=True) if messages else None

    def _opening_len(self, count: int) -> int:
        """Characters that open the message after the first `count`; 0 where there is none."""
        if not isinstance(self.prompt, Chat) or count == len(self.prompt.messages):
            return 0
        return len(self.prompt.messages[count].role) + len(_CONTENT)

    def name(self, length: int, namespace: str) -> str:
        """A name for the first `length` characters, the same for equal text."""
        digest = blake2b(namespace.encode("utf-8", "surrogatepass"), digest_size=16)
        digest.update(b"\0" + self.text[:length].encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Group:
    """Calls, by their places, that share the first `length` characters of one's outline."""

    members: tuple[int, ...]
    outline: Outline
    length: int


def groups(calls: Sequence[Call], least: int) -> Iterator[Group]:
    """Every call that shares at least `least` characters with another, in the group with which it
    shares the most; a group within a group shares as many more. Shorter beginnings come first."""
    spaces: dict[str, list[int]] = {}
    for index, call in enumerate(calls):
        spaces.setdefault(call.namespace, []).append(index)
    for indices in spaces.values():
        found = [(Outline.of(calls[index].prompt), index) for index in indices]
        found.sort(key=lambda item: item[0].text)
        for ranks, length in _nested([outline.text for outline, _ in found], least):
            members = tuple(sorted(found[rank][1] for rank in ranks))
            yield Group(members, found[ranks[0]][0], length)


def _nested(texts: Sequence[str], least: int) -> Iterator[tuple[list[int], int]]:
    """Ranks of sorted texts that share a beginning, and its length, from the outside inwards."""
    shares = [common_len(texts[rank], texts[rank + 1]) for rank in range(len(texts) - 1)]
    found: list[tuple[list[int], int]] = [([], 0)]
    pending = [(0, len(texts), 0)]
    for start, end, owner in pending:  # texts[start:end] share what their owner does, or more
        if end - start == 1:
            found[owner][0].append(start)
            continue
        length = min(shares[start : end - 1])
        if length - found[owner][1] >= least:
            owner = len(found)
            found.append(([], length))
        borders = [rank + 1 for rank in range(start, end - 1) if shares[rank] == length]
        pending += [(*part, owner) for part in pairwise((start, *borders, end))]
    return ((ranks, length) for ranks, length in found[1:] if ranks)


def _joined(head: str, parts: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    return head + "".join(parts), tuple(accumulate(map(len, (head, *parts))))


def spelled(segment: Segment) -> str:
    """A segment as text: different for different segments, and as long as it is expensive. Those of
    two pictures differ in their first characters."""
    match segment:
        case Text(text=text):
            return text
        case Tokens(ids=ids):
            return _TOKENS + "".join([chr(min(max(token, 0), _LAST_CHAR)) for token in ids])
        case Image(data=data):
            return _media_text(data, 0)
        case Video(data=data, num_frames=num_frames):
            return _media_text(data, num_frames)


def _media_text(data: bytes, num_frames: int) -> str:
    digest = blake2b(data, digest_size=32, salt=num_frames.to_bytes(8, "little"))
    first = _PRIVATE + int.from_bytes(digest.digest()[:2], "little") % 65534
    return f"{chr(first)}{_DATA}{digest.hexdigest()}".ljust(_MEDIA_LEN, _DATA)


def _truncated(segments: Sequence[Segment], length: int) -> tuple[Segment, ...]:
    """The segments that spell the first `length` characters."""
    kept: list[Segment] = []
    for segment in segments:
        size = len(spelled(segment))
        if length < size:
            return (*kept, *_beginning(segment, length))
        kept.append(segment)
        length -= size
    return tuple(kept)


def _beginning(segment: Segment, length: int) -> tuple[Segment, ...]:
    match segment:
        case Text(text=text) if length > 0:
            return (Text(text[:length]),)
        case Tokens(ids=ids) if length > 1:
            return (Tokens(ids[: length - 1]),)
    return ()
