"""A runner without a model, for tests: deterministic tokens that depend on every token before them.

Its pool holds one running hash for each slot. A token's hash is made from the hash in the slot of
the token before it, so a wrong slot, a lost write or a stale page gives another answer, as with a
real model, and at once.
"""

from __future__ import annotations

import numpy as np
import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from .model.batch import Answer, Batch, Doubles, Floats, Outcome, Query
from .tokenizer import Tokenizer, byte_alphabet

_MIX = np.uint64(0x9E3779B97F4A7C15)
_EMPTY = np.uint64(0xDEADBEEF)


class FakeRunner:
    """Runs batches on hashes.

    num_slots: of its pool. vocabulary_size: tokens are drawn from 0 .. vocabulary_size - 1.
    fails_on: a batch with this token id raises RuntimeError. broken_on: a sequence that ends in
      this token id gets -1, as if the model's logits were no numbers. num_host: host slots.
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
        self.num_runs = 0
        self.num_computed = 0

    def run(self, batch: Batch) -> Outcome:
        """One pass: hash the new tokens into their slots, draw from the last hashes."""
        self.num_runs += 1
        self.num_computed += len(batch.ids)
        for it in batch.copies:
            if it.is_load:
                self._pool[it.slots] = self._host[it.host]
            else:
                self._host[it.host] = self._pool[it.slots]
        if self._fails_on is not None and self._fails_on in batch.ids:
            raise RuntimeError(f"token {self._fails_on} makes this runner fail")
        hashes = self._hash(batch)
        tokens = self._draw(hashes[batch.sampled], batch)
        logprobs = _thousandths(hashes[batch.sampled] % np.uint64(1000))
        tops = tuple(
            ((int(token), float(logprob)),) * (draw.logprobs or 0)
            for token, logprob, draw in zip(tokens, logprobs, batch.draws, strict=True)
        )
        scores = _scores(hashes[batch.scored], batch.targets)
        answers = tuple(
            self._answer(state, query)
            for state, query in zip(hashes[batch.queried], batch.queries, strict=True)
        )
        count = batch.num_rivals
        best = tuple(
            ((int(t), float(s)),) * count for t, s in zip(batch.targets, scores, strict=True)
        )
        told = best if count else ()
        return Outcome(tokens, logprobs, tops, scores, answers=answers, score_tops=told)

    def distribution(self, state: np.uint64) -> Doubles:
        """[vocabulary] probabilities of the next token after a hash, in float64."""
        tokens = np.arange(self._vocabulary_size, dtype=np.uint64)
        weights = _mix(np.full(len(tokens), state), tokens) % np.uint64(1000) + np.uint64(1)
        shares: Doubles = weights / weights.sum()
        return shares

    def _answer(self, state: np.uint64, query: Query) -> Answer:
        shares = self.distribution(state)
        masses = [shares[tokens].sum() for tokens in query.sets]
        with np.errstate(divide="ignore"):
            return Answer(np.log(shares[query.tokens]), np.log(masses))

    def _hash(self, batch: Batch) -> np.ndarray:
        hashes = np.empty(len(batch.ids), np.uint64)
        place = 0
        for row, start, count in zip(batch.rows, batch.starts, batch.lens, strict=True):
            slots = batch.table[row, : start + count]
            state = self._pool[slots[start - 1]] if start else _MIX
            for position in range(start, start + count):
                state = _mix(state, batch.ids[place])
                self._pool[slots[position]] = hashes[place] = state
                place += 1
        return hashes

    def _draw(self, hashes: np.ndarray, batch: Batch) -> np.ndarray:
        seeds = np.array([d.seed + d.index if d.temperature else 0 for d in batch.draws], np.uint64)
        tokens = (_mix(hashes, seeds) % np.uint64(self._vocabulary_size)).astype(np.int64)
        for index, draw in enumerate(batch.draws):
            if draw.mask is not None:
                bits = np.unpackbits(draw.mask.view(np.uint8), bitorder="little")
                allowed = np.flatnonzero(bits)
                tokens[index] = allowed[tokens[index] % len(allowed)]
            while int(tokens[index]) in draw.banned:
                tokens[index] = (tokens[index] + 1) % self._vocabulary_size
        if self._broken_on is not None:
            tokens[batch.ids[batch.sampled] == self._broken_on] = -1
        return tokens


def byte_tokenizer() -> Tokenizer:
    """A tokenizer whose token ids are the bytes of the text, with id 256 as its end token."""
    core = tokenizers.Tokenizer(BPE(vocab=byte_alphabet(), merges=[]))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = ByteLevelDecoder()
    core.add_special_tokens(["<|end|>"])
    return Tokenizer(core, None)


def _mix(state: np.ndarray | np.uint64, value: np.ndarray | np.integer) -> np.ndarray:
    with np.errstate(over="ignore"):
        mixed = (np.asarray(state) ^ np.asarray(value).astype(np.uint64)) * _MIX
        return mixed ^ (mixed >> np.uint64(29))


def _scores(hashes: np.ndarray, targets: np.ndarray) -> Floats:
    return _thousandths(_mix(hashes, targets) % np.uint64(5000))


def _thousandths(values: np.ndarray) -> Floats:
    return (values.astype(np.float32) / np.float32(-1000)).astype(np.float32)
