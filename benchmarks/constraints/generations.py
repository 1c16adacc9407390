"""Many constrained generations by models that know nothing: is every answer valid, and in time?

Constraints of `cases.py`, with budgets from the least that can be enough up. Most answers are
sampled by a runner without a model, which takes any allowed token: all alike, by random weights of
a heavy tail, single bytes, the longest, or the end as soon as it may. The rest are sampled in every
manner from a Llama of random weights. Batches, chunks, jumps and retractions vary. Prints one JSON
row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
import torch

from forkroot.benchmarks.common import vocabularies
from forkroot.benchmarks.common.drive import Drive, constraints_of
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.vocabularies import Words
from forkroot.benchmarks.constraints import cases
from forkroot.benchmarks.constraints.cases import Case, repeats_names
from forkroot.benchmarks.kernels.decode import RandomWeights, shapes
from forkroot.core.api.batch import Batch, Outcome, SamplingParams
from forkroot.core.api.protocol import (
    Call,
    InvalidCall,
    JsonSchema,
    Sampling,
    Text,
    UnsupportedCall,
)
from forkroot.core.api.reply import Mailbox
from forkroot.core.engine.engine import Runner
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.runner.runner import ModelRunner

CONTEXT_LEN, BATCH, WIDE = 1024, 50, 250
POOLS = (8 * 1024, 1024, 600)
WAYS = ("alike", "heavy tail", "bytes", "longest", "ends")
SHARES = {"embedded": 0.4, "tekken": 0.25, "made": 0.2, "llama": 0.15}
PROMPTS = ("JSON:", "Once upon a time", "The answer is", "鱼😀\n\n")


class RandomRunner:
    """Samples allowed tokens at random, in a way that depends on the seed."""

    def __init__(self, words: Words, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._weights = np.exp(3 * random.standard_normal(2 * words.size))
        self._lengths = np.array(list(map(len, words.tokenizer.token_bytes)))
        self._ends = words.end_ids
        self._size = words.size

    def run(self, batch: Batch) -> Outcome:
        """Tokens for the sampled rows; nothing is computed."""
        tokens = np.array([self._sample(params) for params in batch.sampling_params], np.int64)
        return Outcome(tokens, np.full(len(tokens), -1, np.float32), ((),) * len(tokens))

    def _sample(self, params: SamplingParams) -> int:
        assert params.mask is not None
        bits = np.unpackbits(params.mask.view(np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits[: self._size])
        if not len(allowed):
            return -1
        random = Random(params.seed * 8191 + params.index)
        match WAYS[params.seed % len(WAYS)]:
            case "heavy tail":
                shift = random.randrange(self._size)
                mass = np.cumsum(self._weights[allowed + shift])
                return int(allowed[np.searchsorted(mass, random.random() * mass[-1], "right")])
            case "bytes" if random.random() < 0.9:
                lengths = self._lengths[allowed]
                allowed = allowed[lengths == lengths.min()]
            case "longest" if random.random() < 0.5:
                lengths = self._lengths[allowed]
                allowed = allowed[lengths == lengths.max()]
            case "ends" if ends := [end for end in allowed.tolist() if end in self._ends]:
                return ends[0]
        return int(allowed[random.randrange(len(allowed))])


@dataclass
class Tally:
    """What became of the generations of one model.

    wrong: a few of those that broke a promise, to be looked at.
    """

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[dict[str, Any]] = field(default_factory=list)

    def note(self, fault: str, case: Case, call: Call, text: str) -> None:
        self.counts[fault] += 1
        if len(self.wrong) < 10:
            sampling = {"max_tokens": call.sampling.max_tokens, "seed": call.sampling.seed}
            self.wrong.append({"fault": fault, "case": case.name, "text": text} | sampling)


def make_call(case: Case, least: int, random: Random, is_model: bool) -> Call:
    """A call whose budget is enough, but for one in forty, whose budget is one too small."""
    budgets = (least, least + random.randint(1, 6), 2 * least, least + random.randint(7, WIDE))
    budget = min(random.choice(budgets), POOLS[-1] - 32)
    if random.random() < 0.025 and least > 1:
        budget = least - 1
    sampling = Sampling(
        max_tokens=budget,
        seed=random.randrange(2**40),
        n=random.choice((1, 1, 1, 2)),
        min_tokens=random.choice((0, 0, 0, min(budget, 5))),
        logprobs=random.choice((None, None, None, 0)),
        **(_random_sampling(random) if is_model else {}),
    )
    prompt = (Text(random.choice(PROMPTS)),)
    return Call(prompt, sampling, case.constraint, stream=random.random() < 0.3)


def _random_sampling(random: Random) -> dict[str, Any]:
    """Fields of Sampling: how a model's tokens are sampled."""
    return {
        "temperature": random.choice((0.0, 0.3, 1.0, 2.0, 10.0)),
        "top_p": random.choice((1.0, 1.0, 0.9, 0.1)),
        "top_k": random.choice((-1, -1, 1, 40)),
        "min_p": random.choice((0.0, 0.0, 0.2)),
        "repetition_penalty": random.choice((1.0, 1.0, 1.3)),
        "frequency_penalty": random.choice((0.0, 0.0, 1.0)),
    }


def judge(case: Case, call: Call, reply: Mailbox, least: int, tally: Tally) -> None:
    """Count what became of a call."""
    budget = call.sampling.max_tokens
    assert budget is not None
    error = reply.error()
    if budget < least:
        refused = isinstance(error, InvalidCall) and error.field == "max_tokens"
        tally.counts["too_small_refused" if refused else "too_small_taken"] += 1
        return
    if error is not None:
        tally.note("failed", case, call, repr(error))
        return
    for output in reply.result().outputs:
        tally.counts["generations"] += 1
        tally.counts["tokens"] += len(output.ids)
        tally.counts["to_the_last_token"] += len(output.ids) == budget
        tally.counts["tightest_budget"] += budget == least
        is_schema = isinstance(case.constraint, JsonSchema)
        tally.counts["valid_with_repeated_names"] += is_schema and repeats_names(output.text)
        if len(output.ids) > budget:
            tally.note("over_max_tokens", case, call, output.text)
        if not case.is_valid(output.text):
            fault = "invalid" if output.finish_reason == "stop" else "unfinished"
            tally.note(fault, case, call, output.text)
        elif output.finish_reason != "stop":
            tally.counts["valid_but_cut"] += 1
    if call.stream:
        chunks = list(reply)
        for index, output in enumerate(reply.result().outputs):
            shown = "".join(chunk.text for chunk in chunks if chunk.index == index)
            if shown != output.text:
                tally.note("streamed_otherwise", case, call, shown)


def generate(
    words: Words, runner: Runner, known: list[tuple[Case, int]], count: int, seed: int
) -> dict[str, Any]:
    """Generations by one runner until `count` are judged, and what became of them."""
    random, tally, constraints = Random(seed), Tally(), constraints_of(words)
    started, retracted, sent_back = perf_counter(), 0, 0
    is_model = isinstance(runner, ModelRunner)
    while tally.counts["generations"] < count:
        drive = Drive(
            words,
            runner,
            words.size,
            constraints,
            context_len=CONTEXT_LEN,
            num_slots=random.choice(POOLS),
            max_running=random.choice((1, 7, 64)),
            chunk_tokens=random.choice((3, 64, 1024)),
            jumps=random.random() < 0.7,
        )
        chosen = random.choices(known, k=BATCH)
        calls = [make_call(case, least, random, is_model) for case, least in chosen]
        replies = drive.serve(calls, retract_every=random.choice((0, 0, 5, 13)))
        retracted += drive.counters.retracted
        sent_back += drive.num_sent_back
        for (case, least), call, reply in zip(chosen, calls, replies, strict=True):
            judge(case, call, reply, least, tally)
    faults = ["invalid", "over_max_tokens", "unfinished", "failed", "streamed_otherwise"]
    faults.append("too_small_taken")
    return {
        "vocabulary": words.size,
        "constraints": len(known),
        **dict.fromkeys(faults, 0),
        **dict(sorted(tally.counts.items())),
        "retracted_for_room": retracted,
        "all_retracted": sent_back,
        "seconds": round(perf_counter() - started, 1),
        "wrong": tally.wrong,
    }


def supported(constraints: Constraints) -> tuple[list[tuple[Case, int]], list[str]]:
    """Each case with the tokens of its shortest answer, and the names of those refused."""
    known, skipped = [], []
    for case in (*cases.regular(), *cases.others()):
        try:
            known.append((case, constraints.guide(case.constraint).cursor().shortest_finish()))
        except UnsupportedCall as error:
            assert case.name in {other.name for other in cases.others()}, error
            skipped.append(case.name)
    return known, skipped


def llama(words: Words, seed: int) -> ModelRunner:
    """The shape of the embedded model with weights that mean nothing."""
    torch.manual_seed(seed)
    config = shapes()["tiny"]
    assert config.vocabulary_size == words.size
    model = Llama(config, RandomWeights(config, torch.float32), torch.device("cpu"))
    return ModelRunner(model, POOLS[0])


def main() -> None:
    """Generate, judge and print the row."""
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--only", choices=tuple(SHARES), action="append")
    args = options.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    skipped: set[str] = set()
    for name, share in SHARES.items():
        if args.only is None or name in args.only:
            words = getattr(vocabularies, "embedded" if name == "llama" else name)()
            known, refused = supported(constraints_of(words))
            skipped.update(refused)
            make = llama if name == "llama" else RandomRunner
            count = round(share * args.count)
            figures[name] = generate(words, make(words, args.seed), known, count, args.seed)
    figures["skipped"] = sorted(skipped)
    report("generations", figures, args.out, seed=args.seed)


if __name__ == "__main__":
    main()
