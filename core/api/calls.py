"""What a caller sends to a runtime: sampling, constraints, hints and the call itself.

Frozen values of the standard library; `check` raises if one is not allowed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args

from .errors import InvalidCall
from .keywords import KeywordOwner, checks_fields
from .prompts import PROMPTS, Prompt, is_prompt, is_text

HINT_VERSION = 3
WEIGHTS = 0.01, 100.0
COMPACT, SPACED = (",", ":"), (", ", ": ")
_CALLS = "a Call, as Call((Text('Once upon a time'),), Sampling(max_tokens=16))"
_SEPARATORS = "a tuple of a comma and a colon, each a text with at most 16 blanks beside it"


@dataclass(frozen=True, slots=True)
class Regex:
    """The answer must match this regular expression as a whole."""

    pattern: str


@checks_fields()
@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer must be JSON that this schema (in JSON form) accepts.

    separators: a comma and a colon, as `json.dumps` takes them, with at most 16 blanks beside
      each. SPACED is what it writes by itself, as is most of the JSON that models have read.
    strict: refuse keywords and formats that are not known, which otherwise restrict nothing.
    """

    schema: Mapping[str, Any] | bool
    separators: tuple[str, str] = COMPACT
    strict: bool = False

    def check(self) -> None:
        """Raise InvalidCall for separators that are none."""
        if not _are_separators(self.separators):
            raise InvalidCall("separators", self.separators, _SEPARATORS)


@dataclass(frozen=True, slots=True)
class Choices:
    """The answer must be one of these texts, which differ from each other."""

    options: tuple[str, ...]

    def check(self) -> None:
        """Raise InvalidCall where a text is given twice."""
        if len(set(self.options)) < len(self.options):
            repeated = next(text for text, count in Counter(self.options).items() if count > 1)
            allowed = f"different texts; {repeated!r} is given twice"
            raise InvalidCall("choices", list(self.options), allowed)


@dataclass(frozen=True, slots=True)
class Grammar:
    """The answer must be derived from this grammar."""

    source: str
    syntax: Literal["lark", "ebnf", "gbnf"] = "lark"


Constraint: TypeAlias = Regex | JsonSchema | Choices | Grammar
Scoring: TypeAlias = Literal["tokens", "exact", "canonical"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)


@checks_fields()
@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; the defaults sample from the model's own distribution.

    max_tokens: tokens generated at most, or as many as the context has room for if these are fewer
      or it is None; 0: plant the prompt in the cache and generate nothing.
    min_tokens: stop rules are ignored before so many tokens. Where a constraint leaves nothing to
      add, the answer ends all the same.
    temperature: 0 is greedy.
    top_k: the k likeliest tokens only; -1 is off.
    top_p, min_p: nucleus mass in (0, 1]; least share of the likeliest token's probability [0, 1].
    frequency_penalty, presence_penalty: in [-2, 2], over generated tokens.
    repetition_penalty: in (0, 10], over prompt and generated tokens; 1 is off.
    logit_bias: token id -> addend in [-100, 100].
    seed: same seed, same answer, whatever else is in the batch; None: chosen by the runtime.
    stop, stop_token_ids: the answer ends before any of these; under a constraint only where the
      text before it is a whole answer.
    ignore_eos: the model's own end tokens do not end the answer.
    n: independent answers to one prompt.
    logprobs: None: none; k: log-probability of each generated token and the k top ones.
    log_mass: report how much of the distribution the constraint left at each step; its forced text
      is then sampled token by token, so that this is an importance weight.
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
    log_mass: bool = False

    def check(self) -> None:
        """Raise InvalidCall for the first field whose value is not allowed."""
        for name, (kind, allowed, is_allowed) in _SAMPLING_RULES.items():
            value = getattr(self, name)
            is_kind = isinstance(value, bool) is (kind is bool) and isinstance(value, kind)
            if not is_kind or not is_allowed(value):
                raise InvalidCall(name, value, allowed)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidCall("min_tokens", self.min_tokens, f"0 to max_tokens={self.max_tokens}")


_NONE = type(None)
_LARGEST = sys.float_info.max  # an integer may be finite and beyond it
_SAMPLING_RULES: dict[str, tuple[Any, str, Any]] = {
    "max_tokens": ((int, _NONE), "an integer >= 0, or None", lambda v: v is None or v >= 0),
    "min_tokens": (int, "an integer >= 0", lambda v: v >= 0),
    "temperature": ((int, float), "a finite number >= 0", lambda v: 0 <= v <= _LARGEST),
    "top_p": ((int, float), "a number, 0 < top_p <= 1", lambda v: 0 < v <= 1),
    "top_k": (
        int,
        "an integer from 1 to 2**31-1, or -1 for off",
        lambda v: v == -1 or 1 <= v < 2**31,
    ),
    "min_p": ((int, float), "a number, 0 <= min_p <= 1", lambda v: 0 <= v <= 1),
    "frequency_penalty": ((int, float), "a number from -2 to 2", lambda v: -2 <= v <= 2),
    "presence_penalty": ((int, float), "a number from -2 to 2", lambda v: -2 <= v <= 2),
    "repetition_penalty": (
        (int, float),
        "a number, 0 < repetition_penalty <= 10",
        lambda v: 0 < v <= 10,
    ),
    "logit_bias": (
        Mapping,
        "a mapping of token ids (integers >= 0) to -100..100",
        lambda v: all(type(k) is int and k >= 0 and _is_bias(b) for k, b in v.items()),
    ),
    "seed": (
        (int, _NONE),
        "an integer from 0 to 2**63-1, or None",
        lambda v: v is None or 0 <= v < 2**63,
    ),
    "stop": (
        tuple,
        "a tuple of at most 64 non-empty texts",
        lambda v: len(v) <= 64 and _are_texts(v),
    ),
    "stop_token_ids": (
        tuple,
        "a tuple of integers >= 0",
        lambda v: all(type(i) is int and i >= 0 for i in v),
    ),
    "ignore_eos": (bool, "True or False", lambda v: True),
    "n": (int, "an integer from 1 to 128", lambda v: 1 <= v <= 128),
    "logprobs": (
        (int, _NONE),
        "an integer from 0 to 64, or None",
        lambda v: v is None or 0 <= v <= 64,
    ),
    "log_mass": (bool, "True or False", lambda v: True),
}


@checks_fields()
@dataclass(frozen=True, slots=True)
class ForkHint:
    """What the caller knows about sharing before the runtime can see it (paper, section 3).

    A wrong or missing hint costs time and never changes an answer.

    root: name of the shared prefix; calls with the same name share it.
    branches: calls that are expected to share it; None: unknown.
    prefix_end: how many leading segments (messages, for a chat) of this call's prompt form the
      root; None: the whole prompt of a planting call, else what the root's calls have in common.
    version: of this envelope; a runtime ignores what it does not know.
    program: name of the program that calls; calls with the same name are served as one program.
      With one, `root` may be "": the call shares no root.
    kind: of which program this is a run: the name of its function, class or graph. Reports
      count by it (`ProgramReport`), and the engine learns by it what its runs add to their prompts.
    calls_left: calls of the program that follow this one, on its longest path; 0: this is its last.
    tokens_left: tokens that the program is still to generate in all, beside this call's: those of
      its other calls that have not ended when this one begins, also of branches beside it.
    next_use: after how many more calls of the program this call's text (prompt and answer) is used
      again: 1 by the next one, 0 never; None: unknown.
    pause: seconds until the program's next call, as far as is known: a tool runs.
    """

    root: str
    branches: int | None = None
    prefix_end: int | None = None
    version: int = HINT_VERSION
    program: str | None = None
    calls_left: int | None = None
    tokens_left: int | None = None
    next_use: int | None = None
    pause: float | None = None
    kind: str | None = None


_OF_SAMPLING = KeywordOwner(
    [item.name for item in fields(Sampling)],
    "{name} is of Sampling: Call(..., Sampling({name}=...))",
)
_OF_CONSTRAINT = [
    KeywordOwner((name,), f"constraints are objects: Call(..., constraint={example})")
    for name, example in {
        "regex": "Regex(...)",
        "json_schema": "JsonSchema(...)",
        "choices": "Choices(...)",
        "grammar": "Grammar(...)",
    }.items()
]


@checks_fields(_OF_SAMPLING, *_OF_CONSTRAINT)
@dataclass(frozen=True, slots=True)
class Call:
    """One generation, one scoring of options, or (with max_tokens=0) one planted prefix.

    options: score each of these texts as continuations of the prompt instead of generating. The
      prompt may then be empty: the options are scored from the model's start token.
    scoring: how. "tokens": the log-probabilities of each option's own tokens. "exact": bounds of
      the probability that what comes after the prompt's tokens begins with the option, however it
      is cut into tokens, and with no longer option. "canonical": the same, over the tokens that
      the tokenizer gives.
    scored_from: the prompt's own tokens from this position on get their log-probabilities, with
      `sampling.logprobs` top ones each; None: none do. Those of cached tokens are kept beside them,
      as far as the setting `logprob_bytes` allows; only what is not kept is computed.
    stream: deliver chunks as they come; otherwise only the terminal completion.
    namespace: calls of different namespaces never share a cached token.
    tenant: whose call it is; None: the namespace's. Tenants share the engine, the time of its
      steps too, and the compilers fairly; no compiled constraint nor name of a root is known across
      them.
    weight: the tenant's share of the engine, relative to those of others; that of its newest call
      counts.
    priority: a higher one is served earlier; -100 to 100.
    deadline: seconds from submission after which the call ends in DeadlineExceeded.
    """

    prompt: Prompt
    sampling: Sampling = field(default_factory=Sampling)
    constraint: Constraint | None = None
    options: tuple[str, ...] = ()
    scoring: Scoring = "tokens"
    hint: ForkHint | None = None
    stream: bool = False
    namespace: str = ""
    priority: int = 0
    deadline: float | None = None
    scored_from: int | None = None
    tenant: str | None = None
    weight: float = 1.0

    @property
    def owner(self) -> str:
        """The tenant, or else the namespace."""
        return self.namespace if self.tenant is None else self.tenant

    @property
    def cache_owner(self) -> str:
        """Whose share of the cached tokens it adds to: the tenant's within namespaces of its own
        (of its name, or below it: "tenant/x"), and one that all tenants have in common within
        others."""
        if self.tenant is None or self.namespace == self.tenant:
            return self.namespace
        return self.tenant if self.namespace.startswith(f"{self.tenant}/") else ""

    def check(self) -> None:
        """Raise InvalidCall for the first field whose value is not allowed."""
        for name, (allowed, is_allowed) in _CALL_RULES.items():
            value = getattr(self, name)
            if not is_allowed(value):
                raise InvalidCall(name, value, allowed)
        self.sampling.check()
        if isinstance(self.constraint, JsonSchema | Choices):
            self.constraint.check()
        if self.options and self.constraint is not None:
            raise InvalidCall("constraint", self.constraint, "none beside options")
        if self.options and self.scored_from is not None:
            raise InvalidCall("scored_from", self.scored_from, "None beside options")


def as_call(value: object) -> Call:
    """`value`, which is a call. Raises InvalidCall for anything else."""
    if not isinstance(value, Call):
        raise InvalidCall("call", value, _CALLS)
    return value


def check_call(value: object) -> None:
    """As `Call.check`, of what may be no call at all."""
    as_call(value).check()


def _is_hint(value: object) -> bool:
    return (
        isinstance(value, ForkHint)
        and isinstance(value.root, str)
        and isinstance(value.program, str | None)
        and isinstance(value.kind, str | None)
        and all(v is None or type(v) is int for v in _numbers(value))
        and (value.pause is None or _is_number(value.pause))
    )


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and value == value  # not NaN


def _numbers(hint: ForkHint) -> tuple[int | None, ...]:
    path = hint.calls_left, hint.tokens_left, hint.next_use
    return hint.branches, hint.prefix_end, *path


def _is_bias(value: object) -> bool:
    return isinstance(value, int | float) and -100 <= value <= 100


def _is_constraint(value: object) -> bool:
    match value:
        case Regex(pattern=text) | Grammar(source=text):
            return is_text(text)
        case JsonSchema(schema=schema):
            return isinstance(schema, Mapping | bool)
        case Choices(options=options):
            return _are_texts(options) and len(options) > 0
    return False


def _are_separators(value: object) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return all(
        isinstance(text, str) and len(text) <= 17 and text.strip(" \t\r\n") == mark
        for text, mark in zip(value, COMPACT, strict=True)
    )


def _are_texts(value: object) -> bool:
    """Whether this is a tuple of texts that are not empty."""
    return isinstance(value, tuple) and all(text != "" and is_text(text) for text in value)


_CALL_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "prompt": (PROMPTS, is_prompt),
    "sampling": ("a Sampling", lambda v: isinstance(v, Sampling)),
    "constraint": (
        "a Regex or Grammar of a text, a JsonSchema of a mapping (of a Pydantic class, its"
        " model_json_schema()) or bool, Choices of at least one text, or None",
        lambda v: v is None or _is_constraint(v),
    ),
    "options": ("a tuple of non-empty texts", _are_texts),
    "scoring": (
        " | ".join(SCORINGS),
        lambda v: isinstance(v, str) and v in SCORINGS,
    ),
    "hint": (
        "a ForkHint of texts, and of numbers or None; or None",
        lambda v: v is None or _is_hint(v),
    ),
    "stream": ("True or False", lambda v: isinstance(v, bool)),
    "namespace": ("a text", is_text),
    "priority": ("an integer from -100 to 100", lambda v: type(v) is int and -100 <= v <= 100),
    "deadline": (
        "a finite number of seconds > 0, or None",
        lambda v: v is None or (isinstance(v, int | float) and 0 < v <= _LARGEST),
    ),
    "scored_from": (
        "a position of the prompt, 0 or more, or None",
        lambda v: v is None or (type(v) is int and v >= 0),
    ),
    "tenant": ("a text, or None", lambda v: v is None or is_text(v)),
    "weight": (
        f"a number from {WEIGHTS[0]:g} to {WEIGHTS[1]:g}",
        lambda v: type(v) in (int, float) and WEIGHTS[0] <= v <= WEIGHTS[1],
    ),
}
