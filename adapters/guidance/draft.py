"""One call to the runtime, read as the tokens that a parser wants next.

It knows calls and replies, and nothing of Guidance.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from ...core.api.protocol import Chunk, Reply, TokenLogprob, Usage

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

    def close(self) -> None:
        """End the call, if it has not ended."""
        if not self.reply.done():
            self.reply.cancel()

    def usage(self) -> Usage:
        """What the call used; waits for its end."""
        return self.reply.result().usage

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
