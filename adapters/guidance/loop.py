"""Guidance's loop, for programs that do not inspect single tokens: its own parser,
called in the thread of the program, and tokens that our runtime samples.

What a program gets is what Guidance's own loop would give: text, captures and usage. It writes no
trace of each token, and no probabilities.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from time import monotonic
from typing import Any, NamedTuple

from guidance._parser import TokenParserException
from guidance._schema import TokenUsage

from .tokens import FolderTokenizer
from .writer import Writer

_APPENDED = "__LIST_APPEND:"
_ENDS = ("NoExtension", "EndOfSentence")


class Capture(NamedTuple):
    """A variable that a grammar set, or appended to."""

    name: str
    value: str
    logprob: float
    is_appended: bool


class Part(NamedTuple):
    """What one step of the parser gave: bytes of text, some of which may be in the middle of a
    character, and captures."""

    data: bytes
    captures: list[Capture]


class Loop:
    """One grammar, run on a prompt.

    parser: llguidance's, at the start of the grammar. usage: of the run, once it has ended.
    """

    def __init__(
        self, parser: Any, tokenizer: FolderTokenizer, writer: Writer, params: Mapping[str, Any]
    ) -> None:
        self._parser = parser
        self._tokenizer = tokenizer
        self._writer = writer
        self._params = params
        self._started = monotonic()
        self._first_mask = self._first_token = 0.0
        self._mask_times: list[float] = []
        self.usage = TokenUsage(ff_tokens=0)

    def run(self, prompt: str) -> Iterator[Part]:
        """The parts of the text, as they come. Raises the typed errors of calls, and Guidance's
        TokenParserException where the parser gives up."""
        parser = self._parser
        tokens = self._begin(prompt)
        sizes, num_ff_tokens = list[int](), 0
        while True:
            mask, result = self._masked()
            yield _read(result["progress"])
            if result["stop"]:
                break
            sizes.append(len(tokens))
            token = self._sampled(tokens, mask, result["temperature"])
            num_back, ff_tokens = parser.commit_token(token)
            del tokens[len(tokens) - num_back :]
            tokens += ff_tokens
            num_ff_tokens += len(ff_tokens) - (not num_back and ff_tokens[:1] == [token])
        if parser.stop_reason() not in _ENDS:
            raise TokenParserException(f"Unexpected stop reason: {parser.stop_reason()}")
        self._count(sizes, num_ff_tokens)

    def _count(self, sizes: list[int], num_ff_tokens: int) -> None:
        """Usage as Guidance's own loop counts it. sizes: of the text before each
        sample, in tokens."""
        self.usage = TokenUsage(
            input_tokens=sum(sizes),
            cached_input_tokens=sum(min(a, b - 1) for a, b in pairwise([0, *sizes])),
            forward_passes=len(sizes),
            ff_tokens=num_ff_tokens,
            mask_times_ms=self._mask_times,
            mask_overheads_ms=self._mask_times,
            ttfm_ms=self._first_mask,
            ttft_ms=self._first_token,
            total_latency_ms=self._elapsed(),
        )

    def _begin(self, prompt: str) -> list[int]:
        """The tokens of the prompt, as the parser wants them: what may still join what comes next
        is left to be sampled again."""
        given = self._tokenizer.encode(prompt.encode())
        tokens: list[int] = self._parser.process_prompt(given)
        start = self._tokenizer.bos_token_id
        if start is not None and tokens[:1] != [start]:
            tokens = self._tokenizer.recode([start, *tokens])
        return tokens

    def _masked(self) -> tuple[bytes, dict[str, Any]]:
        started = monotonic()
        mask, result = self._parser.compute_mask()
        self._mask_times.append((monotonic() - started) * 1000)
        self._first_mask = self._first_mask or self._elapsed()
        return mask, json.loads(result)

    def _sampled(self, tokens: list[int], mask: bytes, temperature: float) -> int:
        """The next token. Where the text may end any token may be sampled, and those that the
        grammar does not allow end it."""
        may_end = self._parser.is_accepting()
        allowed = None if may_end else mask
        token = self._writer.sample(tokens, allowed, temperature, self._params).id
        self._first_token = self._first_token or self._elapsed()
        return token if mask[token] else self._tokenizer.eos_token_id

    def _elapsed(self) -> float:
        return (monotonic() - self._started) * 1000


def _read(progress: list[dict[str, Any]]) -> Part:
    """A step as the parser returns it."""
    data, captures = b"", list[Capture]()
    for item in progress:
        if item["object"] == "text":
            data += bytes.fromhex(item["hex"])
        elif item["object"] == "capture":
            name, is_appended = item["name"], item.get("list_append", False)
            if name.startswith(_APPENDED):
                name, is_appended = name.removeprefix(_APPENDED), True
            value = bytes.fromhex(item["hex"]).decode()
            captures.append(Capture(name, value, item["log_prob"], is_appended))
    return Part(data, captures)
