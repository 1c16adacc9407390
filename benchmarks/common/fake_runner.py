"""A runner without a model, for tests: deterministic tokens that depend on every token before them.

Its pool holds one running hash for each slot. A token's hash is made from the hash in the slot of
the token before it, so a wrong slot, a lost write or a stale page gives another answer, as with a
real model, and at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from ...core.api.batch import (
    GREEDY,
    Answer,
    Batch,
    Doubles,
    Floats,
    Ints,
    Longs,
    Outcome,
    Query,
    SamplingParams,
)
from ...core.text.tokenizer import Tokenizer, byte_alphabet
from ...kernels.interface import own_spans, table_index
from .fake_features import FakeFeatures

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_EMPTY = np.uint64(0xDEADBEEF)
_FIRST_KEY = 257  # of features of pictures, with `byte_tokenizer`


class FakeRunner:
    """Runs batches on hashes. Keeps a slot table of its own, as a device does, and asserts that the
    changes which batches name keep it up to date. Asserts that features of pictures are encoded
    before they are read, see `FakeFeatures`.

    num_slots: of its pool. vocabulary_size: tokens are sampled from 0 .. vocabulary_size - 1.
    fails_on: a batch with this token id raises RuntimeError. broken_on: a sequence that ends in
      this token id gets -1, as if the model's logits were not finite. num_host: host slots.
    """

    def __init__(
        self,
        num_slots: int,
        vocabulary_size: int = 256,
        fails_on: int | None = None,
        broken_on: int | None = None,
        num_host: int = 0,
    ) -> None:
        self._pool = np.full(num_slots, _EMPTY, np.uint64)
        self._host = np.full(num_host, _EMPTY, np.uint64)
        self._vocabulary_size = vocabulary_size
        self._fails_on = fails_on
        self._broken_on = broken_on
        self._table: Ints | None = None
        self._is_stale = np.empty(0, bool)
        self.features = FakeFeatures(max(_FIRST_KEY, vocabulary_size))
        self.num_runs = 0
        self.num_computed = 0

    def run(self, batch: Batch) -> Outcome:
        """One pass: hash the new tokens into their slots, sample from the last hashes."""
        self.num_runs += 1
        self.num_computed += len(batch.ids)
        self._update_table(batch)
        self.features.update(batch)
        for it in batch.copies:
            if it.is_load:
                self._pool[it.slots] = self._host[it.host]
            else:
                self._host[it.host] = self._pool[it.slots]
        if self._fails_on is not None and self._fails_on in batch.ids:
            raise RuntimeError(f"token {self._fails_on} makes this runner fail")
        hashes = self._hash(batch)
        tokens = self._sample(hashes[batch.sampled], batch)
        logprobs = _thousandths(hashes[batch.sampled] % np.uint64(1000))
        tops = tuple(
            ((int(token), float(logprob)),) * (it.logprobs or 0)
            for token, logprob, it in zip(tokens, logprobs, batch.sampling_params, strict=True)
        )
        scored = _next_hash(hashes[batch.scored], batch.targets)
        scores = _thousandths(scored % np.uint64(5000))
        answers = tuple(
            self._answer(state, query)
            for state, query in zip(hashes[batch.queried], batch.queries, strict=True)
        )
        count = batch.num_top_logprobs
        best = tuple(
            ((int(t), float(s)),) * count for t, s in zip(batch.targets, scores, strict=True)
        )
        score_tops = best if count else ()
        return Outcome(tokens, logprobs, tops, scores, answers=answers, score_tops=score_tops)

    def forget(self) -> None:
        """A batch was not run: nothing of the table is known any more."""
        self._is_stale[:] = True

    def _update_table(self, batch: Batch) -> None:
        if self._table is None:
            self._table = np.full_like(batch.table, -1)
            self._is_stale = np.ones(len(batch.table), bool)
        if batch.changed is None:
            self.forget()
        spans = own_spans(batch.rows, batch.starts, batch.lens, self._is_stale[batch.rows])
        self._is_stale[batch.rows] = False
        for some in (spans, *(() if batch.changed is None else (batch.changed,))):
            index = table_index(some)
            self._table[index] = batch.table[index]
        for row, end in zip(batch.rows, batch.starts + batch.lens, strict=True):
            is_same = np.array_equal(self._table[row, :end], batch.table[row, :end])
            assert is_same, "a batch reads slots that changed and does not say so"

    def distribution(self, state: np.uint64) -> Doubles:
        """[vocabulary] probabilities of the next token after a hash, in float64."""
        tokens = np.arange(self._vocabulary_size, dtype=np.uint64)
        weights = _next_hash(np.full(len(tokens), state), tokens) % np.uint64(1000) + np.uint64(1)
        shares: Doubles = weights / weights.sum()
        return shares

    def _answer(self, state: np.uint64, query: Query) -> Answer:
        shares = self.distribution(state)
        masses = [shares[tokens].sum() for tokens in query.sets]
        with np.errstate(divide="ignore"):
            return Answer(np.log(shares[query.tokens]), np.log(masses))

    def _hash(self, batch: Batch) -> np.ndarray:
        hashes = np.empty(len(batch.ids), np.uint64)
        position_in_batch = 0
        for row, start, count in zip(batch.rows, batch.starts, batch.lens, strict=True):
            slots = batch.table[row, : start + count]
            state = self._pool[slots[start - 1]] if start else _MULTIPLIER
            for position in range(start, start + count):
                state = _next_hash(state, batch.ids[position_in_batch])
                self._pool[slots[position]] = hashes[position_in_batch] = state
                position_in_batch += 1
        return hashes

    def _sample(self, hashes: np.ndarray, batch: Batch) -> np.ndarray:
        seeds = np.array(
            [it.seed + it.index if it.temperature else 0 for it in batch.sampling_params], np.uint64
        )
        tokens = (_next_hash(hashes, seeds) % np.uint64(self._vocabulary_size)).astype(np.int64)
        for index, it in enumerate(batch.sampling_params):
            if it.mask is not None:
                bits = np.unpackbits(it.mask.view(np.uint8), bitorder="little")
                allowed = np.flatnonzero(bits)
                tokens[index] = allowed[tokens[index] % len(allowed)] if len(allowed) else -1
            while int(tokens[index]) in it.banned:
                tokens[index] = (tokens[index] + 1) % self._vocabulary_size
        if self._broken_on is not None:
            tokens[batch.ids[batch.sampled] == self._broken_on] = -1
        return tokens


class LateRunner:
    """A device around a runner, whose results arrive late: a batch is computed when somebody waits
    for it, or for a batch launched after it, and not before.

    Asserts what a `Launcher` requires of its caller: at most one other batch is in flight, a batch
    refers only to samples of the batch before it, and only after `sample` was called on that, no
    slot is written twice in one batch, and results are read in order and once.
    fails_at, fails_on: a batch with this token fails at its "launch", "sample" or "result".
    num_ahead: launches while another batch was in flight. num_unoverlapped: results read with no
      batch launched after them.
    """

    def __init__(self, runner: FakeRunner, fails_on: int = -1, fails_at: str = "result") -> None:
        self.runner = runner
        self.num_ahead = 0
        self.num_unoverlapped = 0
        self._fails_on = fails_on
        self._fails_at = fails_at
        self._batches: list[LateBatch] = []
        self._has_failed = False
        self._last: LateBatch | None = None
        self._sampled: Longs = np.empty(0, np.int64)

    def run(self, batch: Batch) -> Outcome:
        """Launch, sample and wait."""
        launched = self.launch(batch)
        launched.sample(batch.sampling_params)
        return launched.result()

    def launch(self, batch: Batch) -> LateBatch:
        """Record a batch as it is now."""
        num_in_flight = sum(not launched.is_over for launched in self._batches)
        assert num_in_flight < 2, "two batches are in flight already"
        assert len(set(batch.slots.tolist())) == len(batch.slots), "a slot is written twice"
        self._check_references(batch.ids[batch.ids < 0])
        self.num_ahead += num_in_flight
        launched = LateBatch(self, replace(batch, table=batch.table.copy()))
        launched.follows_failure, self._has_failed = self._has_failed, False
        self._batches.append(launched)
        self._last = launched
        self._fail(launched, "launch")
        return launched

    def begin_sampling(self, launched: LateBatch) -> None:
        """Its sampling parameters are set."""
        assert launched is self._last, "a batch is sampled after another was launched"
        self._fail(launched, "sample")

    def compute_until(self, launched: LateBatch) -> None:
        """Compute all that was launched up to this one."""
        assert launched in self._batches, "a result is read twice"
        self.num_unoverlapped += launched is self._last
        while not launched.is_computed:
            first = self._batches.pop(0)
            assert first is launched or first.is_over, "results are read out of order"
            self._compute(first)

    def _check_references(self, ids: Longs) -> None:
        if not len(ids):
            return
        last = self._last
        assert last is not None and last.sampling_params is not None, (
            "a batch refers to samples before sample()"
        )
        assert -ids.min() <= len(last.batch.sampled), (
            "a batch refers to a sample that does not exist"
        )

    def _fail(self, launched: LateBatch, stage: str) -> None:
        if stage == self._fails_at and self._fails_on in launched.batch.ids:
            launched.is_over = self._has_failed = True
            raise RuntimeError(f"token {self._fails_on} makes this device fail at its {stage}")

    def _compute(self, launched: LateBatch) -> None:
        batch, params = launched.batch, launched.sampling_params
        if launched.follows_failure:
            self.runner.forget()
        ids = batch.ids.copy()
        ids[ids < 0] = np.maximum(self._sampled[-1 - ids[ids < 0]], 0)
        self._sampled = np.zeros(len(batch.sampled), np.int64)
        params = (GREEDY,) * len(batch.sampled) if params is None else params
        try:
            launched.outcome = self.runner.run(replace(batch, ids=ids, sampling_params=params))
            self._sampled = launched.outcome.tokens
            if self._fails_on in ids:
                raise RuntimeError(f"token {self._fails_on} makes this device fail")
        except RuntimeError as error:
            launched.outcome = error
        launched.is_over = launched.is_computed = True


@dataclass(eq=False)
class LateBatch:
    """A batch of a `LateRunner`. params: its sampling parameters, once set. outcome: its results or
    error, once computed. is_over: its result was read, or never will be. follows_failure: the
    batch before it was launched and not run."""

    device: LateRunner
    batch: Batch
    sampling_params: tuple[SamplingParams, ...] | None = None
    outcome: Outcome | RuntimeError | None = None
    is_over: bool = False
    is_computed: bool = False
    follows_failure: bool = False

    def sample(self, params: tuple[SamplingParams, ...]) -> None:
        """Set the sampling parameters."""
        assert self.sampling_params is None, "sample() is called twice"
        assert len(params) == len(self.batch.sampled), "not one entry for each sampled token"
        self.device.begin_sampling(self)
        self.sampling_params = params

    def result(self) -> Outcome:
        """Compute everything up to this batch."""
        assert self.sampling_params is not None, "result() before sample()"
        self.device.compute_until(self)
        if isinstance(self.outcome, Outcome):
            return self.outcome
        assert self.outcome is not None
        raise self.outcome


def byte_tokenizer() -> Tokenizer:
    """A tokenizer whose token ids are the bytes of the text, with id 256 as its end token."""
    core = tokenizers.Tokenizer(BPE(vocab=byte_alphabet(), merges=[]))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = ByteLevelDecoder()
    core.add_special_tokens(["<|end|>"])
    return Tokenizer(core, None)


def _next_hash(state: np.ndarray | np.uint64, value: np.ndarray | np.integer) -> np.ndarray:
    with np.errstate(over="ignore"):
        mixed = (np.asarray(state) ^ np.asarray(value).astype(np.uint64)) * _MULTIPLIER
        return mixed ^ (mixed >> np.uint64(29))


def _thousandths(values: np.ndarray) -> Floats:
    return (values.astype(np.float32) / np.float32(-1000)).astype(np.float32)
