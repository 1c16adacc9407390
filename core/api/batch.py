"""What one step computes, as plain integers: the data that scheduler and runner exchange.

It knows nothing of torch, of models or of the radix tree. Token positions count from 0; a slot is
the place of one token's keys and values in the pool.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .media import Encode, MediaSpan

Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]


class NoMemory(RuntimeError):
    """A device has no memory for a batch now, not even in micro-batches. What the pool held is as
    it was, but for the batch's own slots; its copies are made, now or before the next batch."""


@dataclass(slots=True)
class SamplingParams:
    """How one token is sampled from one row of logits. Never changed, and not frozen: to make a
    frozen one takes four times as long, for each sequence in each step.

    seed, index: the random number is a function of these two alone, so that a call's answer does
      not depend on its batch; `index` counts the sequence's generated tokens.
    generated, prompt: token ids so far, only where a penalty needs them.
    banned: token ids that must not be sampled (end tokens before min_tokens).
    mask: packed bits, 32 tokens a word: the tokens that a constraint allows; those past its end
      are not.
    log_mass: whether the share of the distribution that the mask allows is wanted.
    """

    temperature: float = 0.0
    seed: int = 0
    index: int = 0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned: tuple[int, ...] = ()
    generated: Ints | None = None
    prompt: Ints | None = None
    mask: Ints | None = None
    logprobs: int | None = None
    log_mass: bool = False


GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class Query:
    """A query on the distribution of the next token (the model's own, at temperature 1).

    tokens: [m] whose log-probabilities are wanted. sets: token ids, different in each set, the log
      of whose total probability is wanted.
    """

    tokens: Longs
    sets: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a query: one number for each of its tokens and of its sets, in float64."""

    logprobs: Doubles
    log_masses: Doubles


@dataclass(frozen=True, slots=True)
class Copy:
    """Keys and values between slots of the pool and host slots, [n] of each. is_load: from the host
    into the pool; else the other way."""

    slots: Ints
    host: Ints
    is_load: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass over S sequences with T new tokens in all, one sequence after another.

    ids, positions, slots: [T] token, its position in its sequence, and where its KV is written.
    rows: [S] row of each sequence in `table`.
    starts, lens: [S] tokens already in the pool, and new tokens. Sequence s reads the slots
      `table[rows[s], : starts[s] + lens[s]]`, the new tokens' own included.
    table: [max_running, context_len] the slot table, owned and mutated by the scheduler.
    changed: [K, 3] row, start and end of what changed in the table since the batch before, beside
      the new tokens' slots; None: all of it may have.
    sampled: [N] indices into `ids` of the tokens after which a token is sampled, ascending and each
      once.
    sampling_params: N, of each of these.
    scored: [M] indices into `ids` of the tokens whose successor is known and must be scored.
    targets: [M] these successors' token ids. num_top_logprobs: how many of the likeliest tokens at
      each position are returned.
    queried: [K] indices into `ids` of the tokens after which a query is answered; queries: these.
    copies: to and from the host, in this order and before anything is computed.
    dropped: digests of pictures whose stored features are not wanted any more; then encodes: what
      goes through the tower, in order and before tokens are computed. Both may come in a batch of
      no tokens.
    media: which of `ids` are features of pictures, ascending. Other keys outside of the vocabulary
      do not occur.
    parts: [3, T] rotary positions of models that have three; None: these are `positions`.
    """

    ids: Longs
    positions: Longs
    slots: Ints
    rows: Ints
    starts: Ints
    lens: Ints
    table: Ints
    sampled: Ints
    sampling_params: tuple[SamplingParams, ...]
    scored: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    targets: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    queried: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    queries: tuple[Query, ...] = ()
    num_top_logprobs: int = 0
    copies: tuple[Copy, ...] = ()
    changed: Ints | None = None
    dropped: tuple[bytes, ...] = ()
    encodes: tuple[Encode, ...] = ()
    media: tuple[MediaSpan, ...] = ()
    parts: Longs | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one forward pass gave.

    tokens: [N] sampled token ids.
    logprobs: [N] their log-probabilities under the model's own distribution (temperature 1, no
      penalty, no filter); NaN where none were requested.
    tops: for each sampled token the top log-probabilities as (token id, log-probability), best
      first.
    scores: [M] log-probability of each target. score_tops: the likeliest tokens in its place, best
      first; none where the batch requests none.
    log_masses: [N] log of the share of the distribution (after penalties and temperature) that the
      row's mask allows; 0 where that was not requested.
    answers: K, one for each query.
    """

    tokens: Longs
    logprobs: Floats
    tops: tuple[tuple[tuple[int, float], ...], ...] = ()
    scores: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    log_masses: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    answers: tuple[Answer, ...] = ()
    score_tops: tuple[tuple[tuple[int, float], ...], ...] = ()
