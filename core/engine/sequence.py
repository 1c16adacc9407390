"""The one mutable record of a sequence: a call being run.

A call runs as one sequence, as `n` of them, or as one for each option that it scores; its `Job`
holds them together. It knows nothing of batches, trees or tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..api.batch import GREEDY, Ints, Longs, SamplingParams
from ..api.protocol import Call, FinishReason, TokenLogprob, Usage
from ..api.reply import Mailbox
from ..fsm.guide import Cursor, Guide
from ..fsm.tokens.tokenizations import Node, Tokenizations
from ..radix.cache import Lease
from ..radix.logprobs import Logprobs
from ..text.tokenizer import StreamDecoder
from .pictures.prompt import FeatureSpan


@dataclass(frozen=True, slots=True)
class StopRules:
    """When a sequence ends.

    end_ids: tokens that end it; `stops`: byte strings of its text that end it.
    min_new, max_new: generated tokens before which no rule counts, and at most.
    """

    end_ids: frozenset[int]
    stops: tuple[bytes, ...]
    min_new: int
    max_new: int

    @property
    def longest_stop(self) -> int:
        """Bytes of the longest stop."""
        return max(map(len, self.stops), default=0)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a sequence ended; `text_len` is how many bytes of its text count."""

    reason: FinishReason
    matched: str | int | None
    text_len: int


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens on their way through the engine.

    ids: [capacity] prompt, then generated tokens; the first `num_ids` count. Those of features of
      pictures, which `spans` has, are keys outside of the vocabulary.
    parts: [3, prompt] rotary positions of models that have three, or None.
    score_start: position of the first token to be scored; None: none. scores, score_tops: those
      known so far, and their top log-probabilities. num_cached_scores: how many of the next ones
      the cache had at the last match. num_stored_scores: how many of the first ones it was given.
    seed: of its samples. is_plain_greedy: it needs nothing but the likeliest token. is_generating:
      whether a token is sampled once all are computed. index: which of the job's sequences it is.
    num_computed: tokens whose KV is in the pool. num_allocated: tokens that have a slot; one more
      than `num_ids` where the token in flight has one already.
    epoch: how often allocated slots were freed before they were computed. has_stale_slots: it still
      has slots of tokens that were truncated or are computed again.
    sample_index: the index of its sample in its last batch.
    row: of the slot table, while it runs. cached_len: tokens that the cache gave when it first ran,
      and later; None before. cached_root_len: how many of these are of the root in its hint.
    last_step: number of the step that last computed a token of it, where tenants share steps.
    arrival: the scheduler's count of admissions when it came. credit: tokens by which its hint
      ranks it higher.
    cursor: the state of its answer in its constraint; None: it has none. planned: forced tokens
      that are to come next, one by one.
    forced: ranges of bytes of its text that the constraint forced, ascending. num_forced: generated
      tokens that were appended without a pass of their own. num_refused: tokens sampled in vain.
    log_masses: one for each generated token, where the call requests them. node: the query on the
      distribution after its last token, and where the answer belongs.
    """

    job: Job
    index: int
    ids: Ints
    num_ids: int
    prompt_len: int
    rules: StopRules
    seed: int
    is_plain_greedy: bool = False
    score_start: int | None = None
    spans: tuple[FeatureSpan, ...] = ()
    parts: Longs | None = None
    num_computed: int = 0
    num_allocated: int = 0
    epoch: int = 0
    has_stale_slots: bool = False
    sample_index: int = 0
    row: int = -1
    lease: Lease | None = None
    cached_len: int | None = None
    cached_root_len: int | None = None
    last_step: int = 0
    arrival: int = 0
    credit: int = 0
    match_len: int = 0
    match_node: int = -1
    text: bytearray = field(default_factory=bytearray)
    num_emitted: int = 0
    num_sent: int = 0
    decoder: StreamDecoder = field(default_factory=StreamDecoder)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    score_tops: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    num_cached_scores: int = 0
    num_stored_scores: int = 0
    ending: Ending | None = None
    cursor: Cursor | None = None
    planned: list[int] = field(default_factory=list)
    forced: list[tuple[int, int]] = field(default_factory=list)
    num_forced: int = 0
    num_refused: int = 0
    log_masses: list[float] = field(default_factory=list)
    node: Node | None = None
    is_generating: bool = field(init=False)
    _hashed: tuple[int, int] = (-1, 0)

    def __post_init__(self) -> None:
        self.is_generating = self.rules.max_new > 0

    @property
    def num_new(self) -> int:
        """Generated tokens so far."""
        return self.num_ids - self.prompt_len

    @property
    def num_pending(self) -> int:
        """Tokens whose KV is still to be computed."""
        return self.num_ids - self.num_computed

    @property
    def num_unallocated(self) -> int:
        """Known tokens that have no slot yet."""
        return self.num_ids - self.num_allocated

    @property
    def is_between_chunks(self) -> bool:
        """Whether tokens of its prompt are to be computed, and none is in flight. False where what
        it computes is also wanted for scores or pictures."""
        lease = self.lease
        is_idle = lease is not None and self.num_allocated == lease.length
        return is_idle and self.num_pending > 1 and not self.spans and not self.needs_scores

    @property
    def has_token_in_flight(self) -> bool:
        """Whether its next token is in flight and, as far as is known, not its last."""
        is_in_flight = self.num_computed < self.num_allocated == self.num_ids
        return is_in_flight and self.num_ids - self.prompt_len + 1 < self.rules.max_new

    @property
    def match_limit(self) -> int:
        """Tokens that may be taken from the cache; what follows is computed for its logits, the
        last of them for the first score that is not known."""
        return self.next_scored + self.num_cached_scores if self.needs_scores else self.full_limit

    @property
    def full_limit(self) -> int:
        """Tokens that could be taken from the cache if it had all scores."""
        return self.num_ids - (self.is_generating or self.node is not None)

    @property
    def needs_scores(self) -> bool:
        """Whether requested scores are missing both here and in the cache."""
        end = self.scored_end + self.num_cached_scores
        return self.score_start is not None and end < self.prompt_len

    @property
    def scores_wanted(self) -> tuple[Ints, int, int]:
        """What the cache is asked for: tokens, the first without a score, and how many top ones."""
        return self.ids[: self.prompt_len], self.scored_end, self.num_top_logprobs

    @property
    def next_scored(self) -> int:
        """Position of the next token whose successor is to be scored; `num_ids` for none."""
        if self.score_start is None or self.scored_end >= self.prompt_len:
            return self.num_ids
        return self.scored_end - 1

    @property
    def scored_end(self) -> int:
        """Position of the first token that has no score yet, from `score_start` on."""
        return (self.score_start or 0) + len(self.scores)

    @property
    def stored_end(self) -> int:
        """Position of the first token, from `score_start` on, whose score is not in the cache."""
        return (self.score_start or 0) + self.num_stored_scores

    @property
    def num_top_logprobs(self) -> int:
        """Top log-probabilities that are requested for each scored token."""
        call = self.job.call
        return 0 if call.scored_from is None else call.sampling.logprobs or 0

    @property
    def is_aborted(self) -> bool:
        """Whether it was ended early."""
        return self.ending is not None and self.ending.reason == "abort"

    @property
    def tokens(self) -> Ints:
        """Prompt and generated tokens."""
        return self.ids[: self.num_ids]

    @property
    def num_image_tokens(self) -> int:
        """Tokens of its prompt that are features of pictures."""
        return sum([span.end - span.start for span in self.spans])

    @property
    def _prompt_tokens(self) -> Ints:
        """Its prompt without features of pictures, which are no tokens."""
        if not self.spans:
            return self.ids[: self.prompt_len]
        edges = [0, *(edge for span in self.spans for edge in span[:2]), self.prompt_len]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return np.concatenate([self.ids[start:end] for start, end in pairs])

    @property
    def generated(self) -> Ints:
        """Generated tokens."""
        return self.ids[self.prompt_len : self.num_ids]

    def sampling_params(self) -> SamplingParams:
        """The sampling parameters of its next token."""
        num_new = self.num_ids - self.prompt_len
        is_early = num_new < self.rules.min_new
        mask = None if self.cursor is None else self._mask(self.cursor, is_early)
        if mask is None and self.is_plain_greedy and not is_early:
            return GREEDY
        sampling = self.job.call.sampling
        is_penalised = sampling.frequency_penalty or sampling.presence_penalty
        is_repeating = sampling.repetition_penalty != 1.0
        return SamplingParams(
            temperature=sampling.temperature,
            seed=self.seed,
            index=num_new,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            frequency_penalty=sampling.frequency_penalty,
            presence_penalty=sampling.presence_penalty,
            repetition_penalty=sampling.repetition_penalty,
            logit_bias=tuple(sampling.logit_bias.items()) if sampling.logit_bias else (),
            banned=tuple(self.rules.end_ids) if is_early and mask is None else (),
            generated=self.generated if is_penalised or is_repeating else None,
            prompt=self._prompt_tokens if is_repeating else None,
            mask=mask,
            logprobs=sampling.logprobs,
            log_mass=sampling.log_mass and mask is not None,
        )

    def _mask(self, cursor: Cursor, is_early: bool) -> Ints:
        """What may come next. An end that is too early is left out unless nothing else is left:
        a constraint goes before min_tokens."""
        if self.planned:
            return _bits([self.planned[0]])
        mask = cursor.mask_within(self.rules.max_new - self.num_new)
        ends = [token for token in self.rules.end_ids if token < 32 * len(mask)]
        if not is_early or not ends:
            return mask
        later = mask.copy()
        later[: max(ends) // 32 + 1] &= ~_bits(ends)
        return later if later.any() else mask

    def use_cached(self, length: int) -> None:
        """Note that others cached its first `length` tokens while it ran; none is in flight."""
        cached_len = (self.cached_len or 0) + length - self.num_computed
        self.cached_len = min(cached_len, self.prompt_len)
        self.num_computed = self.num_allocated = length

    def plan(self, ids: tuple[int, ...]) -> None:
        """Force these tokens next, one by one."""
        self.planned = list(ids)
        self.num_computed = min(self.num_computed, self.num_ids - 1)

    def resample(self) -> None:
        """Compute the last token once more, to sample another one after it."""
        self.num_refused += 1
        self.num_computed = min(self.num_computed, self.num_ids - 1)
        self.has_stale_slots = True
        del self.log_masses[self.num_new :]

    def truncate(self, keep: int) -> None:
        """Remove all but the first `keep` generated tokens; their slots are still to be freed."""
        self.num_ids = self.prompt_len + keep
        self.num_computed = min(self.num_computed, self.num_ids)
        self.has_stale_slots = True
        del self.logprobs[keep:]
        del self.log_masses[keep:]

    def add_forced_range(self, size: int) -> None:
        """Mark the next `size` bytes of its text as forced."""
        start, end = len(self.text), len(self.text) + size
        if self.forced and self.forced[-1][1] >= start:
            start, last = self.forced.pop()
            end = max(end, last)
        self.forced.append((start, end))

    def prefix_hash(self, length: int) -> int:
        """A hash of its namespace and its first `length` tokens."""
        if self._hashed[0] != length:
            tokens = self.ids[:length].tobytes()
            self._hashed = length, hash((self.job.call.namespace, tokens))
        return self._hashed[1]

    def add_cached_scores(self, found: Logprobs) -> None:
        """Add scores from the cache, of the next tokens to be scored."""
        if self.num_stored_scores == len(self.scores):
            self.num_stored_scores += len(found)
        self.scores += found.values.tolist()
        self.score_tops += found.pairs(self.num_top_logprobs)
        self.num_cached_scores = 0

    def pop_new_scores(self, end: int) -> Logprobs | None:
        """The scores of tokens before position `end` that the cache was not given yet; None if
        there are none. They count as given."""
        first = self.score_start or 0
        rows = slice(self.num_stored_scores, min(end - first, len(self.scores)))
        if rows.start >= rows.stop:
            return None
        self.num_stored_scores = rows.stop
        tops = self.score_tops[rows] if self.num_top_logprobs else ()
        return Logprobs.of(self.scores[rows], tops, self.num_top_logprobs)

    def at(self, node: Node, index: int) -> Sequence:
        """The sequence that queries the distribution at another node of the same search."""
        assert self.node is not None
        prompt = self.ids[: self.prompt_len - len(self.node.path)]
        ids = np.concatenate((prompt, np.array(node.path, np.int32)))
        size = len(ids)
        found = Sequence(self.job, index, ids, size, size, self.rules, self.seed, node=node)
        found.spans, found.parts = self.spans, self.parts
        return found

    def append(self, token: int) -> int:
        """Add a generated token; returns how many there are."""
        self.ids[self.num_ids] = token
        self.num_ids += 1
        self.num_refused = 0
        return self.num_ids - self.prompt_len


@dataclass(slots=True, eq=False)
class Job:
    """A call in the engine: its sequences and where its answer goes.

    root_len: tokens of the hinted root that this call brings along; 0: none.
    arrived: the clock's second at which it was submitted; None once it has run.
    guide: its compiled constraint; None: it has none.
    search: for the probabilities of its options, which gives it more sequences as it goes on.
    """

    call: Call
    mailbox: Mailbox
    sequences: list[Sequence] = field(default_factory=list)
    num_open: int = 0
    root_len: int = 0
    arrived: float | None = None
    guide: Guide | None = None
    search: Tokenizations | None = None

    @property
    def is_prefill_only(self) -> bool:
        """Whether the call only puts its prompt into the cache."""
        return self.call.sampling.max_tokens == 0 and not self.call.options

    @property
    def prompt(self) -> Ints:
        """The tokens of its prompt; of scored options, with the first one."""
        return self.sequences[0].ids[: self.sequences[0].prompt_len]

    def usage(self) -> Usage:
        """Samples share one prompt, as do the nodes of a search; each scored option has its own."""
        is_scored = self.call.options and self.search is None
        sequences = self.sequences if is_scored else self.sequences[:1]
        return Usage(
            prompt_tokens=sum(sequence.prompt_len for sequence in sequences),
            cached_tokens=sum(sequence.cached_len or 0 for sequence in sequences),
            completion_tokens=sum(sequence.num_new for sequence in self.sequences),
            root_tokens=sum(sequence.cached_root_len or 0 for sequence in sequences),
            image_tokens=sum(sequence.num_image_tokens for sequence in sequences),
        )


def _bits(tokens: list[int]) -> Ints:
    """The mask that allows these tokens."""
    mask = np.zeros(max(tokens) // 32 + 1, np.uint32)
    for token in tokens:
        mask[token // 32] |= np.uint32(1 << (token % 32))
    return mask.view(np.int32)
