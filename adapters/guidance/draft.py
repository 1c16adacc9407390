"""One call to the runtime: its prompt, sampling and constraint, and its answer, read as the tokens
that a parser wants next.

It knows calls and replies, and Guidance's terms alone.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...core.api.protocol import (
    Choices,
    Chunk,
    Constraint,
    Grammar,
    InvalidCall,
    Regex,
    Reply,
    Sampling,
    Segment,
    Text,
    TokenLogprob,
    Tokens,
)

GREEDY_BELOW = 1e-5  # temperatures that Guidance takes for 0
Spell = Callable[[int], bytes]
Encode = Callable[[bytes], list[int]]


class Draft:
    """The answer to a call, as it comes in, from a place in the text on.

    start: number of bytes before it. spell: the bytes of a token. encode: tokens of bytes; a stream
    under a constraint gives its tokens at its end only, and its text at once. most: only so many
    tokens of it are used; None: all.
    """

    def __init__(
        self, reply: Reply, start: int, spell: Spell, encode: Encode, most: int | None = None
    ) -> None:
        self.reply = reply
        self.start = start
        self.is_masked = reply.call.constraint is not None
        self._spell = spell
        self._encode = encode
        self._most = most
        self._chunks: Iterator[Chunk] = iter(reply)
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._ends = [0]
        self._data = bytearray()
        self._has_ended = False

    def after(self, written: bytes) -> tuple[int, TokenLogprob | None] | bytes | None:
        """What comes after these bytes (waits for it): a token, with its log-probability where
        that was requested; or, in the middle of one, the bytes that are left of it. None: nothing,
        or it went another way. Raises the call's typed error."""
        size = len(written)
        while len(self._data) <= size and not self._has_ended:
            self._read()
        if len(self._data) <= size or not self._data.startswith(written):
            return None
        index = bisect_right(self._ends, size) - 1
        if self._most is not None and index >= self._most:
            return None
        if self._ends[index] < size:
            return bytes(self._data[size : self._ends[index + 1]])
        return self._ids[index], self._logprobs[index] if self._logprobs else None

    def _read(self) -> None:
        """Take in some more of the answer."""
        if not self.reply.call.stream:
            output = self.reply.result().outputs[0]
            self._take(output.ids, output.logprobs)
            self._has_ended = True
            return
        chunk = next(self._chunks, None)
        if chunk is None:
            self._has_ended = True
            self.reply.result()
        elif self.is_masked:
            self._take(tuple(self._encode(chunk.text.encode())), ())
        else:
            self._take(chunk.ids, chunk.logprobs)

    def _take(self, ids: tuple[int, ...], logprobs: tuple[TokenLogprob, ...]) -> None:
        for token in ids:
            self._ids.append(token)
            self._data += self._spell(token)
            self._ends.append(len(self._data))
        self._logprobs += logprobs


def prompt_of(tokens: list[int], tokenizer: Any) -> tuple[Segment, ...]:
    """The prompt of these tokens: as text that keeps them, so that what calls share is seen; as
    bare tokens where they end within a character.

    A start token is left to the runtime, which sets its own.
    """
    if len(tokens) < 2:
        return (Tokens(tuple(tokens)),)
    ids = tokens[1:] if tokens[:1] == [tokenizer.bos_token_id] else tokens
    data = bytes(tokenizer.decode(ids))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return (Tokens(tuple(tokens)),)
    return (Text(text, tuple(ids)),)


def sampling_of(temperature: float, params: Mapping[str, Any]) -> Sampling:
    """Guidance's sampling parameters as ours. Raises InvalidCall for values that are not
    allowed."""
    given = {name: value for name, value in params.items() if value is not None}
    allowed = ("top_p", "top_k", "min_p", "repetition_penalty")
    for name, value in given.items():
        if name not in allowed:
            raise InvalidCall(name, value, "the sampling parameters " + ", ".join(allowed))
    return Sampling(temperature=0.0 if temperature < GREEDY_BELOW else temperature, **given)


def after(constraint: Constraint | None, pending: bytes) -> Constraint | None:
    """The constraint of the same texts, after some bytes of the prompt; None where these are no
    text."""
    if not pending:
        return constraint
    try:
        text = pending.decode()
    except UnicodeDecodeError:
        return None
    match constraint:
        case Choices(options=options):
            return Choices(tuple(text + option for option in options))
        case Regex(pattern=pattern):
            return Regex(f"{re.escape(text)}(?:{pattern})")
        case Grammar(source=source):
            lead = json.dumps(text, ensure_ascii=False)
            renamed = re.sub(r"(?m)^start(?=\s*[:\[])", "inner_start", source, count=1)
            return Grammar(f"start: {lead} inner_start\n{renamed}")
    return None
