"""The protocol between a caller and a runtime: calls, replies and their values.

Standard library only. Everything that crosses this protocol is a frozen value; it knows nothing of
tokenizers, models, caches or frameworks. An engine in this process, one in a child process, a
remote server, a router and an API-only model are all a `Backend`. Calls are in
`core.api.calls`, their prompts in `core.api.prompts`, errors in `core.api.errors`; all are
imported from here.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from .calls import (
    COMPACT,
    HINT_VERSION,
    SPACED,
    Call,
    Choices,
    Constraint,
    ForkHint,
    Grammar,
    JsonSchema,
    Regex,
    Sampling,
    Scoring,
    as_call,
    check_call,
)
from .errors import (
    BackendClosed,
    CallFailed,
    CallTooLarge,
    DeadlineExceeded,
    EngineDied,
    ForkrootError,
    InvalidCall,
    InvalidModel,
    NotPicklable,
    Overloaded,
    ProgramError,
    Shown,
    UnsupportedCall,
)
from .prompts import Chat, Image, Message, Prompt, Segment, Text, Tokens, Video

__all__ = [
    "COMPACT",
    "HINT_VERSION",
    "SPACED",
    "Backend",
    "BackendClosed",
    "BackendInfo",
    "Call",
    "CallFailed",
    "CallTooLarge",
    "Chat",
    "Choices",
    "Chunk",
    "Completion",
    "Constraint",
    "DeadlineExceeded",
    "EngineDied",
    "FinishReason",
    "ForkHint",
    "ForkrootError",
    "Grammar",
    "Image",
    "InvalidCall",
    "InvalidModel",
    "JsonSchema",
    "Message",
    "NodeView",
    "NotPicklable",
    "OptionScore",
    "Output",
    "Overloaded",
    "ProgramError",
    "Prompt",
    "Regex",
    "Reply",
    "Sampling",
    "Scoring",
    "Segment",
    "Shown",
    "Text",
    "TokenLogprob",
    "Tokens",
    "UnsupportedCall",
    "Usage",
    "Video",
    "as_call",
    "check_call",
]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token's log-probability under the model's own distribution, with the top ones at its
    position.

    top: the likeliest tokens and their log-probabilities, best first, as many as requested.
    """

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. `cached_tokens` of the `prompt_tokens` were not computed again;
    `root_tokens` of these are of the root that the call's hint names: what the hint saved.
    `image_tokens` of the `prompt_tokens` are features of pictures and clips.

    requests: that were sent to a paid API, repeated ones included; 0 for models that we run.
    cost: of all of them, in the currency of the `prices` that the backend was given.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    root_tokens: int = 0
    image_tokens: int = 0
    requests: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
            self.root_tokens + other.root_tokens,
            self.image_tokens + other.image_tokens,
            self.requests + other.requests,
            self.cost + other.cost,
        )


FinishReason: TypeAlias = Literal["stop", "length", "abort"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of answer `index`, whole characters only. Chunks of one answer add up to it."""

    text: str
    index: int = 0
    ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """One answer.

    ids: every generated token, those of a matched stop included.
    segments: what to append to the prompt so that it goes on where the answer ended.
    matched: the stop text or the end token that ended it, where `finish_reason` is "stop".
    forced: ranges [start, end) of characters of the text about which the constraint left no choice.
    log_mass: sum over the generated tokens of the log of the share of the distribution (after
      penalties and temperature; temperature 1 for a greedy call) that the constraint allowed.
      The weight exp(log_mass) turns samples of the constrained call into samples of the model's
      own distribution, given the constraint. None where it was not requested.
    """

    text: str
    ids: tuple[int, ...] = ()
    finish_reason: FinishReason = "stop"
    matched: str | int | None = None
    segments: tuple[Segment, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    forced: tuple[tuple[int, int], ...] = ()
    log_mass: float | None = None


@dataclass(frozen=True, slots=True)
class OptionScore:
    """One scored option: its tokens' log-probabilities after the prompt.

    ids, logprobs: of the tokens that differ from the prompt's own encoding, in order.
    segments: what to append to the prompt to go on after this option.
    bounds: natural logarithms between which its probability lies, where `Call.scoring` requests
      more than its tokens; ids and logprobs are then empty.
    """

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    segments: tuple[Segment, ...] = ()
    bounds: tuple[float, float] | None = None

    @property
    def logprob(self) -> float:
        """Log-probability of the whole option; the lower bound, where there are bounds."""
        return math.fsum(self.logprobs) if self.bounds is None else self.bounds[0]


@dataclass(frozen=True, slots=True)
class Completion:
    """The terminal answer of a call: `n` outputs, or one score for each option.

    prompt_logprobs: of the prompt's tokens from `Call.scored_from` on.
    """

    outputs: tuple[Output, ...] = ()
    usage: Usage = field(default_factory=Usage)
    scores: tuple[OptionScore, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()

    @property
    def text(self) -> str:
        """Text of the first output."""
        return self.outputs[0].text


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What a backend runs and how it fares.

    features: of "tokens" (accepts token ids), "options", "hints", "images", "videos",
      "constraints".
    counters: totals since the start, such as "prompt_tokens" and "cached_tokens".
    load: what there is at this moment, such as "running" and "waiting".
    version: of forkroot, where a server reports it.
    """

    model: str
    context_len: int
    vocabulary_size: int = 0
    features: frozenset[str] = frozenset()
    counters: Mapping[str, int | float] = field(default_factory=dict)
    load: Mapping[str, int | float] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node of a cache's tree as a picture shows it; parent is -1 for a root.

    tokens: of its edge; only the first ones, where the snapshot limits them.
    end: depth of the node in tokens, its edge included. lock_count: leases that run through it.
    hits: how often it was found again. last_used: when, by the tree's own clock.
    children: ids in edge order. num_hidden: children that a snapshot left out.
    """

    id: int
    parent: int
    namespace: str
    tokens: tuple[int, ...]
    end: int
    lock_count: int
    hits: int
    last_used: int
    children: tuple[int, ...]
    num_hidden: int = 0


class Reply(Protocol):
    """The answer to one call while it comes in: chunks, then exactly one ending.

    Read it by `result()`, `await reply`, `for chunk in reply` or `async for chunk in reply`, from
    any thread or task; each reader sees every chunk, and the error that ended the call.
    """

    @property
    def call(self) -> Call:
        """The call that this answers."""

    def result(self, timeout: float | None = None) -> Completion:
        """Wait for the end. Raises the call's typed error, or TimeoutError after `timeout` seconds
        (the call then goes on)."""

    def done(self) -> bool:
        """Whether the call has ended."""

    def error(self) -> BaseException | None:
        """The error that ended the call, or None; does not wait."""

    def cancel(self) -> None:
        """Ask the backend to end the call early; nothing happens once it has ended."""

    def when_done(self, action: Callable[[Reply], object]) -> None:
        """Call `action(self)` once at the end, in the producer's thread (or now, if ended)."""

    def __iter__(self) -> Iterator[Chunk]: ...

    def __aiter__(self) -> AsyncIterator[Chunk]: ...

    def __await__(self) -> Generator[Any, None, Completion]: ...


@runtime_checkable
class Backend(Protocol):
    """A runtime. Every method may be called from any thread."""

    def submit(self, call: Call) -> Reply:
        """Take a call without waiting for it. Never raises for the call's content: a call that is
        not allowed gets its typed error through the reply. Raises InvalidCall for what is no
        Call."""

    def cancel(self, reply: Reply) -> None:
        """End a call early; its outputs so far come back with finish_reason "abort"."""

    def info(self) -> BackendInfo:
        """What this backend runs."""

    def close(self) -> None:
        """Stop; every open call ends in BackendClosed. May be called twice."""
