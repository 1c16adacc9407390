"""Exact option probabilities: the search against all tokenizations, one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from forkroot.core.api.batch import Answer, Batch, Outcome
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import (
    Call,
    Completion,
    InvalidCall,
    Sampling,
    Text,
    UnsupportedCall,
)
from forkroot.core.api.reply import Mailbox
from forkroot.core.assembly import build_engine
from forkroot.core.engine.input import InputProcessor
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.fsm.tokens.tokenizations import log_sum
from forkroot.core.text.tokenizer import Tokenizer

CORPUS = ("the pan is in the oven, the man ran; mañana naïve ☃ the then thenar " * 3).split()


def make_tokenizer(size: int = 300) -> Tokenizer:
    """A small byte-level BPE tokenizer; its last token ends an answer."""
    core = tokenizers.Tokenizer(BPE())
    core.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=size, initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    core.train_from_iterator(CORPUS, trainer)
    core.add_special_tokens(["<|end|>"])
    return Tokenizer(core, None)


class TinyTransformer:
    """One attention layer in float64, without shortcuts: what a slot holds is a token and its
    place, and every distribution is computed from all of them."""

    def __init__(self, size: int, num_slots: int, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        self._embedding = draw.normal(size=(size, 16))
        self._query, self._key, self._value = draw.normal(size=(3, 16, 16)) / 4
        self._ids = np.full(num_slots, -1)
        self.num_tokens = 0

    def logprobs(self, ids: Sequence[int]) -> np.ndarray:
        """[vocabulary] log-probabilities of the token after these."""
        x = self._embedding[list(ids)] + np.sin(np.arange(len(ids)))[:, None]
        weights = np.exp((x[-1] @ self._query) @ (x @ self._key).T / 4)
        hidden = x[-1] + weights @ (x @ self._value) / weights.sum()
        logits = self._embedding @ hidden / 2
        logits -= logits.max()
        return logits - np.log(np.exp(logits).sum())

    def run(self, batch: Batch) -> Outcome:
        """One pass, which only answers queries."""
        self.num_tokens += len(batch.ids)
        self._ids[batch.slots] = batch.ids
        ends = np.cumsum(batch.lens) - 1
        answers = []
        for place, query in zip(batch.queried, batch.queries, strict=True):
            row = int(np.flatnonzero(ends == place)[0])
            slots = batch.table[batch.rows[row], : batch.starts[row] + batch.lens[row]]
            logs = self.logprobs(self._ids[slots].tolist())
            masses = [log_sum(logs[tokens].tolist()) for tokens in query.sets]
            answers.append(Answer(logs[query.tokens], np.array(masses)))
        none = np.empty(0, np.int64)
        return Outcome(none, none.astype(np.float32), answers=tuple(answers))


class Machine:
    """An engine over the tiny transformer."""

    def __init__(self, **settings: Any) -> None:
        self.tokenizer = make_tokenizer()
        size = len(self.tokenizer.token_bytes)
        sizes = {"num_slots": 4000, "context_len": 128, "max_running": 16, "chunk_tokens": 64}
        config = EngineConfig.from_settings(sizes | settings)
        self.runner = TinyTransformer(size, 4000)
        end_ids = frozenset({size - 1})
        table, encode = self.tokenizer.token_bytes, self.tokenizer.encode_after
        constraints = Constraints(table, end_ids, encode)
        self.engine, self.cache = build_engine(config, self.tokenizer, self.runner, constraints)
        self.pending_calls = InputProcessor(
            self.tokenizer, 128, 4000, size, end_ids, 0, constraints, config.exact_nodes
        )

    def ask(self, options: Sequence[str], scoring: Any = "exact", prompt: str = "a") -> Completion:
        call = Call((Text(prompt),), Sampling(), options=tuple(options), scoring=scoring)
        mailbox = Mailbox(call)
        self.engine.admit(self.pending_calls.job(call, mailbox))
        while self.engine.has_work:
            self.engine.step()
            self.engine.check()
        return mailbox.result(0)

    def covering(self, ids: list[int], rest: bytes) -> list[float]:
        """Probabilities of all shortest token sequences after `ids` that cover `rest`."""
        found = []
        logs = self.runner.logprobs(ids)
        for token, data in enumerate(self.tokenizer.token_bytes):
            if data and data.startswith(rest):
                found.append(math.exp(logs[token]))
            elif data and rest.startswith(data):
                more = self.covering([*ids, token], rest[len(data) :])
                found += [math.exp(logs[token]) * share for share in more]
        return found

    def brute(self, option: str, others: Sequence[str] = (), prompt: str = "a") -> float:
        ids = self.tokenizer.encode_prompt((Text(prompt),))
        longer = [o for o in others if o.startswith(option) and o != option]
        shortest = [o for o in longer if not any(o.startswith(p) and o != p for p in longer)]
        whole = math.fsum(self.covering(ids, option.encode()))
        return whole - math.fsum(self.brute(o, (), prompt) for o in shortest)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


OPTIONS = [
    ["the", "man", "oven"],
    ["in", "inn", "into"],
    ["then", "the", "thena", "ran"],
    ["ña", "☃", "naï"],
    ["x"],
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options[0])
def test_probabilities_are_sums_over_all_tokenizations(
    machine: Machine, options: list[str]
) -> None:
    scores = machine.ask(options).scores
    for option, score in zip(options, scores, strict=True):
        low, high = (math.exp(bound) for bound in score.bounds or ())
        expected = machine.brute(option, options)
        assert low == pytest.approx(expected, rel=1e-9)
        assert high == pytest.approx(expected, rel=1e-9)
        assert (score.text, score.segments) == (option, (Text(option),))


def test_options_that_are_prefixes_of_others_are_distinguished(machine: Machine) -> None:
    shares = [math.exp(score.logprob) for score in machine.ask(["the", "then"]).scores]
    alone = math.exp(machine.ask(["the"]).scores[0].logprob)
    assert shares[0] < alone
    assert sum(shares) == pytest.approx(alone, rel=1e-9)


def test_a_bounded_search_reports_what_it_does_not_know() -> None:
    narrow, wide = Machine(), Machine(exact_nodes=6)
    option = "the man in the oven"
    exact = narrow.ask([option]).scores[0].bounds
    bounds = wide.ask([option]).scores[0].bounds
    assert exact is not None and bounds is not None
    assert bounds[0] < exact[0] <= exact[1] < bounds[1]
    assert wide.engine.counters.computed_tokens <= 6


def test_nodes_share_the_prompt_and_their_paths() -> None:
    machine = Machine()
    prompt = "the man is in the pan " * 3
    length = len(machine.tokenizer.encode_prompt((Text(prompt),)))
    completion = machine.ask(["thenar", "oven"], prompt=prompt)
    nodes = machine.engine.counters.computed_tokens - length
    assert nodes < 120  # one token each
    assert machine.engine.counters.steps < 10
    assert completion.usage.prompt_tokens == length


@pytest.mark.parametrize("settings", [{"cache": False}, {"max_running": 1}, {"chunk_tokens": 3}])
def test_how_it_is_scheduled_changes_nothing(machine: Machine, settings: dict[str, Any]) -> None:
    other = Machine(**settings)
    for options in OPTIONS[:2]:
        for one, two in zip(machine.ask(options).scores, other.ask(options).scores, strict=True):
            assert one.bounds == pytest.approx(two.bounds, rel=1e-12)


@pytest.mark.parametrize("option", ["the", "then", "ran", "naïve"])
def test_canonical_counts_only_what_the_tokenizer_gives(machine: Machine, option: str) -> None:
    ids = machine.tokenizer.encode_prompt((Text("a"),))
    table, data = machine.tokenizer.token_bytes, option.encode()
    expected = 0.0
    whole = machine.tokenizer.encode_after(option)
    paths = {tuple(whole[:end]) for end in range(len(whole))}
    for end in range(len(option)):
        paths.add(tuple(machine.tokenizer.encode_after(option[:end])) if end else ())
    for path in paths:
        written = b"".join(table[token] for token in path)
        for token in range(len(table)):
            text = written + table[token]
            if not text.startswith(data) or len(written) >= len(data):
                continue
            try:
                if machine.tokenizer.encode_after(text.decode()) != [*path, token]:
                    continue
            except UnicodeDecodeError:
                pass
            expected += math.exp(
                sum(machine.runner.logprobs([*ids, *path[:i]])[t] for i, t in enumerate(path))
                + machine.runner.logprobs([*ids, *path])[token]
            )
    low, high = machine.ask([option], "canonical").scores[0].bounds or (0.0, 0.0)
    assert math.exp(low) == pytest.approx(expected, rel=1e-9)
    assert low == pytest.approx(high, rel=1e-12)
    exact = machine.ask([option]).scores[0].logprob
    assert low < exact


def test_a_prompt_may_be_empty(machine: Machine) -> None:
    scores = machine.ask(["the", "man"], prompt="").scores
    assert all(-50 < score.logprob < 0 for score in scores)


def test_cancelling_ends_the_search(machine: Machine) -> None:
    call = Call((Text("a"),), Sampling(), options=("the man in the oven",), scoring="exact")
    mailbox = Mailbox(call)
    job = machine.pending_calls.job(call, mailbox)
    machine.engine.admit(job)
    machine.engine.step()
    machine.engine.step()
    machine.engine.abort(job)
    machine.engine.check()
    assert mailbox.result(0).scores == ()
    assert not machine.engine.has_work


def test_numbers_that_are_none_fail_the_call(machine: Machine) -> None:
    broken = Machine()
    logprobs = broken.runner.logprobs
    broken.runner.logprobs = lambda ids: logprobs(ids) * np.nan  # type: ignore[method-assign]
    with pytest.raises(Exception, match="not finite"):
        broken.ask(["the"])


def test_refusals(machine: Machine) -> None:
    with pytest.raises(InvalidCall, match="scoring"):
        Call((Text("a"),), options=("b",), scoring="best").check()  # type: ignore[arg-type]
    pending_calls = InputProcessor(machine.tokenizer, 128, 4000, 301, frozenset({300}))
    call = Call((Text("a"),), options=("b",), scoring="exact")
    with pytest.raises(UnsupportedCall, match="scoring"):
        pending_calls.job(call, Mailbox(call))


def test_disjoint_pairs_of_options_never_sum_to_more_than_one(machine: Machine) -> None:
    words = ["t", "th", "the", "m", "o", "i"]
    for pair in combinations(words, 3):
        shares = [math.exp(score.logprob) for score in machine.ask(pair).scores]
        assert sum(shares) <= 1 + 1e-12
