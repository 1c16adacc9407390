"""The door: what a caller says to a runtime, and what comes back.

Standard library only. Everything that crosses the door is a frozen value; it knows nothing of
tokenizers, models, caches or frameworks. An engine in this process, one in a child process, a
remote server, a router and an API-only model all stand behind the same `Backend`.

Errors, each of which ends one call and harms no other:

    ForkrootError
    ├── InvalidCall (ValueError)      a field has a value that is not allowed
    │   ├── UnsupportedCall           allowed in general, but not by this model or runtime
    │   └── CallTooLarge              cannot fit this runtime even when it is empty
    ├── InvalidModel (ValueError)     a checkpoint cannot be run
    ├── ProgramError (RuntimeError)   a program of the native language went wrong
    ├── DeadlineExceeded (TimeoutError)
    ├── Overloaded (RuntimeError)     the waiting queue is full
    ├── CallFailed (RuntimeError)     the runtime failed while it ran this call
    └── BackendClosed (RuntimeError)  closed, or died, before the call ended
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

HINT_VERSION = 1


class ForkrootError(Exception):
    """Base of every error that forkroot raises on purpose."""


class InvalidCall(ForkrootError, ValueError):
    """A field of a call has a value that is not allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        return f"{self.field}={shown} is not allowed; allowed: {self.allowed}"


class UnsupportedCall(InvalidCall):
    """A value that is allowed in general, but not by this model or runtime."""


class CallTooLarge(InvalidCall):
    """A call that could not run even if it had the whole runtime for itself."""


class InvalidModel(ForkrootError, ValueError):
    """A checkpoint that cannot be run; says which file or key, and what is allowed."""


class ProgramError(ForkrootError, RuntimeError):
    """A program of the native language went wrong; `__cause__` is the original error."""


class DeadlineExceeded(ForkrootError, TimeoutError):
    """The call did not end within its deadline."""


class Overloaded(ForkrootError, RuntimeError):
    """The waiting queue is full; try again later."""


class CallFailed(ForkrootError, RuntimeError):
    """The runtime failed while it ran this call; `__cause__` is the original error."""


class BackendClosed(ForkrootError, RuntimeError):
    """The backend was closed, or died, before the call ended."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of prompt text.

    ids: the tokens that wrote this text, where it is a model's own answer; a runtime with the same
      tokenizer uses them instead of encoding the text again, any other reads the text.
    """

    text: str
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """A piece of prompt given as token ids of the runtime's own tokenizer."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """An encoded image (PNG, JPEG, ...)."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Video:
    """An encoded video, of which `num_frames` evenly spaced frames are shown to the model."""

    data: bytes
    num_frames: int


Segment: TypeAlias = Text | Tokens | Image | Video


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `role` is what the model's chat template knows, as "user"."""

    role: str
    content: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt given as messages, rendered by the model's own chat template.

    open_last: the last message is not closed: the model goes on writing it. Otherwise a new
      assistant message is opened.
    tools: tool descriptions in JSON form, passed to the template.
    """

    messages: tuple[Message, ...]
    open_last: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()


Prompt: TypeAlias = tuple[Segment, ...] | Chat


@dataclass(frozen=True, slots=True)
class Regex:
    """The answer must match this regular expression as a whole."""

    pattern: str


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer must be JSON that this schema (in JSON form) accepts."""

    schema: Mapping[str, Any] | bool


@dataclass(frozen=True, slots=True)
class Choices:
    """The answer must be one of these texts."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grammar:
    """The answer must be derived from this grammar."""

    source: str
    syntax: Literal["lark", "ebnf", "gbnf"] = "lark"


Constraint: TypeAlias = Regex | JsonSchema | Choices | Grammar


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; the defaults sample from the model's own distribution.

    max_tokens: tokens generated at most; None: as many as the context holds; 0: plant the prompt
      in the cache and generate nothing.
    min_tokens: stop rules are ignored before so many tokens.
    temperature: 0 is greedy.
    top_k: the k likeliest tokens only; -1 is off.
    top_p, min_p: nucleus mass in (0, 1]; least share of the likeliest token's probability [0, 1].
    frequency_penalty, presence_penalty: in [-2, 2], over generated tokens.
    repetition_penalty: in (0, 10], over prompt and generated tokens; 1 is off.
    logit_bias: token id -> addend in [-100, 100].
    seed: same seed, same answer, whatever else is in the batch; None: drawn by the runtime.
    stop, stop_token_ids: the answer ends before any of these.
    ignore_eos: the model's own end tokens do not end the answer.
    n: independent answers to one prompt.
    logprobs: None: none; k: log-probability of each generated token and its k best rivals.
    """

    max_tokens: int | None = 128
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    logprobs: int | None = None

    def check(self) -> None:
        """Raise InvalidCall for the first field whose value is not allowed."""
        for name, (kind, allowed, is_allowed) in _SAMPLING_RULES.items():
            value = getattr(self, name)
            if isinstance(value, bool) is not (kind is bool) or not isinstance(value, kind):
                raise InvalidCall(name, value, allowed)
            if not is_allowed(value):
                raise InvalidCall(name, value, allowed)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidCall("min_tokens", self.min_tokens, f"0 to max_tokens={self.max_tokens}")


_NONE = type(None)
_SAMPLING_RULES: dict[str, tuple[Any, str, Any]] = {
    "max_tokens": ((int, _NONE), "an integer >= 0, or None", lambda v: v is None or v >= 0),
    "min_tokens": (int, "an integer >= 0", lambda v: v >= 0),
    "temperature": ((int, float), "a finite number >= 0", lambda v: 0 <= v < math.inf),
    "top_p": ((int, float), "0 < top_p <= 1", lambda v: 0 < v <= 1),
    "top_k": (int, "an integer >= 1, or -1 for off", lambda v: v == -1 or v >= 1),
    "min_p": ((int, float), "0 <= min_p <= 1", lambda v: 0 <= v <= 1),
    "frequency_penalty": ((int, float), "-2 to 2", lambda v: -2 <= v <= 2),
    "presence_penalty": ((int, float), "-2 to 2", lambda v: -2 <= v <= 2),
    "repetition_penalty": ((int, float), "0 < repetition_penalty <= 10", lambda v: 0 < v <= 10),
    "logit_bias": (
        Mapping,
        "a mapping of token ids (integers >= 0) to -100..100",
        lambda v: all(type(k) is int and k >= 0 and -100 <= b <= 100 for k, b in v.items()),
    ),
    "seed": (
        (int, _NONE),
        "an integer in 0..2**63-1, or None",
        lambda v: v is None or 0 <= v < 2**63,
    ),
    "stop": (
        tuple,
        "a tuple of at most 64 non-empty strings",
        lambda v: len(v) <= 64 and all(isinstance(s, str) and s for s in v),
    ),
    "stop_token_ids": (
        tuple,
        "a tuple of integers >= 0",
        lambda v: all(type(i) is int and i >= 0 for i in v),
    ),
    "ignore_eos": (bool, "True or False", lambda v: True),
    "n": (int, "1 to 128", lambda v: 1 <= v <= 128),
    "logprobs": ((int, _NONE), "0 to 64, or None", lambda v: v is None or 0 <= v <= 64),
}


@dataclass(frozen=True, slots=True)
class ForkHint:
    """What the caller knows about sharing before the runtime can see it (paper, section 3).

    A wrong or missing hint costs time and never changes an answer.

    root: name of the shared prefix; calls with the same name share it.
    branches: calls that are expected to share it; None: unknown.
    prefix_end: how many leading segments (messages, for a chat) of this call's prompt form the
      root; None: the whole prompt of a planting call, else what the root's calls have in common.
    version: of this envelope; a runtime ignores what it does not know.
    """

    root: str
    branches: int | None = None
    prefix_end: int | None = None
    version: int = HINT_VERSION


@dataclass(frozen=True, slots=True)
class Call:
    """One generation, one scoring of options, or (with max_tokens=0) one planted prefix.

    options: score each of these texts as continuations of the prompt instead of generating. The
      prompt may then be empty: the options are scored from the model's start token.
    stream: deliver chunks as they come; otherwise only the terminal completion.
    namespace: calls of different namespaces never share a cached token.
    priority: a higher one is served earlier; -100 to 100.
    deadline: seconds from submission after which the call ends in DeadlineExceeded.
    """

    prompt: Prompt
    sampling: Sampling = field(default_factory=Sampling)
    constraint: Constraint | None = None
    options: tuple[str, ...] = ()
    hint: ForkHint | None = None
    stream: bool = False
    namespace: str = ""
    priority: int = 0
    deadline: float | None = None

    def check(self) -> None:
        """Raise InvalidCall for the first field whose value is not allowed."""
        for name, (allowed, is_allowed) in _CALL_RULES.items():
            value = getattr(self, name)
            if not is_allowed(value):
                raise InvalidCall(name, value, allowed)
        self.sampling.check()
        if self.options and self.constraint is not None:
            raise InvalidCall("constraint", self.constraint, "none beside options")


def _is_segment(value: object) -> bool:
    match value:
        case Text(str(text), ids):
            return _is_unicode(text) and (ids is None or _are_ids(ids))
        case Tokens(ids):
            return _are_ids(ids)
        case Image(data) | Video(data):
            return isinstance(data, bytes)
    return False


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _are_ids(value: object) -> bool:
    return isinstance(value, tuple) and all(type(token) is int for token in value)


def _are_segments(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_segment, value))


def _is_message(value: object) -> bool:
    return (
        isinstance(value, Message) and isinstance(value.role, str) and _are_segments(value.content)
    )


def _is_prompt(value: object) -> bool:
    if isinstance(value, Chat):
        return len(value.messages) > 0 and all(map(_is_message, value.messages))
    return _are_segments(value)


def _are_options(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(option, str) and bool(option) and _is_unicode(option) for option in value
    )


_CALL_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "prompt": (
        "a tuple of segments (Text, Tokens, Image, Video), or a Chat of at least one Message whose"
        " content is such a tuple; text without lone surrogates, ids as a tuple of integers",
        _is_prompt,
    ),
    "sampling": ("a Sampling", lambda v: isinstance(v, Sampling)),
    "constraint": (
        "a Regex, JsonSchema, Choices or Grammar, or None",
        lambda v: v is None or isinstance(v, Regex | JsonSchema | Choices | Grammar),
    ),
    "options": ("a tuple of non-empty texts", _are_options),
    "hint": ("a ForkHint, or None", lambda v: v is None or isinstance(v, ForkHint)),
    "stream": ("True or False", lambda v: isinstance(v, bool)),
    "namespace": ("a text", lambda v: isinstance(v, str)),
    "priority": ("an integer from -100 to 100", lambda v: type(v) is int and -100 <= v <= 100),
    "deadline": (
        "a finite number of seconds > 0, or None",
        lambda v: v is None or (isinstance(v, int | float) and 0 < v < math.inf),
    ),
}


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token's log-probability under the model's own distribution, with its best rivals.

    top: the likeliest tokens and their log-probabilities, best first, as many as were asked for.
    """

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. `cached_tokens` of the `prompt_tokens` were not computed again."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
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
    """

    text: str
    ids: tuple[int, ...] = ()
    finish_reason: FinishReason = "stop"
    matched: str | int | None = None
    segments: tuple[Segment, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class OptionScore:
    """One scored option: its tokens' log-probabilities after the prompt.

    ids, logprobs: of the tokens that differ from the prompt's own encoding, in order.
    segments: what to append to the prompt to go on after this option.
    """

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    segments: tuple[Segment, ...] = ()

    @property
    def logprob(self) -> float:
        """Log-probability of the whole option."""
        return math.fsum(self.logprobs)


@dataclass(frozen=True, slots=True)
class Completion:
    """The terminal answer of a call: `n` outputs, or one score for each option."""

    outputs: tuple[Output, ...] = ()
    usage: Usage = field(default_factory=Usage)
    scores: tuple[OptionScore, ...] = ()

    @property
    def text(self) -> str:
        """Text of the first output."""
        return self.outputs[0].text


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What a backend runs and how it fares.

    features: of "tokens" (accepts token ids), "options", "hints", "images", "constraints".
    counters: totals since the start, such as "prompt_tokens" and "cached_tokens".
    """

    model: str
    context_len: int
    vocabulary_size: int = 0
    features: frozenset[str] = frozenset()
    counters: Mapping[str, int | float] = field(default_factory=dict)


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
        not allowed gets its typed error through the reply."""

    def cancel(self, reply: Reply) -> None:
        """End a call early; its outputs so far come back with finish_reason "abort"."""

    def info(self) -> BackendInfo:
        """What this backend runs."""

    def close(self) -> None:
        """Stop; every open call ends in BackendClosed. May be called twice."""
