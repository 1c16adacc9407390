"""Forced runs in one forward pass: how many passes they save, that they change nothing, and what
they are worth.

- passes: texts sampled from the constraints of `constraints.py`, written by the engine with
  tekken's tokens as the tokenizer cuts them, by a runner that knows them; each call by itself.
- same: greedy answers of the embedded model to prompts under constraints, with jumps in every
  setting of the engine, beside those without; and whether the tokenizer gives the same tokens for
  the answers' texts.
- throughput: the character record on the embedded model, jumps on and off, in turn; and with a
  guide compiled for every call instead of one that is kept. Ratios are those within a round.

Prints one JSON row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from statistics import median
from time import perf_counter, process_time
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from forkroot.benchmarks.common import vocabularies
from forkroot.benchmarks.common.drive import Drive, constraints_of
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.vocabularies import Words
from forkroot.benchmarks.constraints import cases
from forkroot.benchmarks.constraints.constraints import NUM_ANSWERS, RECORD, patterns, sample_text
from forkroot.benchmarks.models.parity import Checkpoint, make_prompts
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.protocol import Call, Constraint, InvalidCall, Regex, Sampling, Text, Tokens
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.fsm.guide import Cursor, Guide
from forkroot.core.fsm.tokens.regular import RegularGuide, regular_guide
from forkroot.core.fsm.tokens.retokenize import JumpForward
from forkroot.core.fsm.tokens.vocabulary import Vocabulary
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.models.training.tasks.world import documents

CONTEXT_LEN, NUM_SLOTS = 1024, 32 * 1024
LONGEST_PROMPT, WIDE = 200, 120
SIZES = MappingProxyType({"context_len": CONTEXT_LEN, "num_slots": NUM_SLOTS})


class ScriptedRunner:
    """Writes known answers; counts its passes.

    answers: tokens by the seed of their sampling parameters.
    """

    def __init__(self, answers: Mapping[int, list[int]]) -> None:
        self._answers = answers
        self.num_runs = 0

    def run(self, batch: Batch) -> Outcome:
        """The next token of each sampled row's answer."""
        self.num_runs += 1
        tokens = np.array(
            [self._answers[params.seed][params.index] for params in batch.sampling_params], np.int64
        )
        for token, one in zip(tokens, batch.sampling_params, strict=True):
            assert one.mask is not None and one.mask[token // 32] >> (token % 32) & 1
        return Outcome(tokens, np.full(len(tokens), -1, np.float32), ((),) * len(tokens))


def count_passes(words: Words, seed: int) -> dict[str, Any]:
    """Forward passes of each constraint's answers, without jumps and with them."""
    constraints, figures = constraints_of(words), {}
    for name, pattern in patterns(Random(seed)).items():
        guide, random = constraints.guide(Regex(pattern)), Random(seed)
        assert isinstance(guide, RegularGuide)
        texts = [sample_text(guide, random) for _ in range(NUM_ANSWERS)]
        answers = {i: words.tokenizer.encode(text) for i, text in enumerate(texts)}
        runs = []
        for has_jumps in (False, True):
            scripted_runner = ScriptedRunner(answers)
            drive = Drive(words, scripted_runner, words.size, constraints, jumps=has_jumps, **SIZES)
            for i, text in enumerate(texts):
                sampling = Sampling(max_tokens=len(answers[i]), seed=i)
                call = Call((Text("JSON:"),), sampling, Regex(pattern))
                output = drive.answers([call])[0].outputs[0]
                assert output.text == text and list(output.ids) == answers[i]
            runs.append(scripted_runner.num_runs)
        plain, jumping = (count / len(texts) for count in runs)
        ratio = round(plain / jumping, 2)
        figures[name] = {"plain": plain, "jumping": jumping, "ratio": ratio}
    return figures


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the engine, with jumps unless the settings turn them off."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    retract_every: int = 0


VARIANTS = (
    Variant("jumps"),
    Variant("jumps, batches of 1", {"max_running": 1}),
    Variant("jumps, batches of 4", {"max_running": 4}),
    Variant("jumps, chunks of 7", {"chunk_tokens": 7}),
    Variant("jumps, chunks of 64", {"chunk_tokens": 64}),
    Variant("jumps, retraction at every third step", retract_every=3),
    Variant("jumps, retraction at every step", retract_every=1),
    Variant("jumps, a small pool", {"num_slots": 640}),
    Variant("jumps, no cache", {"cache": False}),
    Variant("no jumps, batches of 1", {"jumps": False, "max_running": 1}),
    Variant("no jumps, chunks of 64", {"jumps": False, "chunk_tokens": 64}),
    Variant(
        "no jumps, batches of 4, chunks of 7",
        {"jumps": False, "max_running": 4, "chunk_tokens": 7},
    ),
)


def prompts_under_constraints(
    checkpoint: Checkpoint, constraints: Constraints, count: int, seed: int
) -> list[Call]:
    """Greedy calls: slices of the small world's text, each under one of the regular constraints,
    with budgets from the least that is enough up."""
    random, calls = Random(seed), []
    prompts = make_prompts(checkpoint.tokenizer, count, LONGEST_PROMPT, seed)
    for prompt in prompts:
        constraint = random.choice(cases.regular()).constraint
        least = constraints.guide(constraint).cursor().shortest_finish()
        budget = least + random.choice((0, random.randint(1, WIDE), WIDE))
        parts = tuple(Tokens(part) for part in (prompt.root, prompt.rest) if part)
        calls.append(Call(parts, Sampling(max_tokens=budget, temperature=0.0), constraint))
    return calls


def gap(drive: Drive, call: Call, ids: Sequence[int], others: Sequence[int]) -> float:
    """How far apart in log-probability the model finds two tokens where two answers part."""
    same = next(i for i, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b)
    assert isinstance(call.prompt, tuple)
    prompt = (*call.prompt, Tokens(tuple(ids[:same])))
    wanted = [
        Sampling(max_tokens=1, temperature=0.0, logit_bias={token: 100.0}, logprobs=0)
        for token in (ids[same], others[same])
    ]
    found = drive.answers([Call(prompt, sampling) for sampling in wanted])
    first, second = (one.outputs[0].logprobs[0].logprob for one in found)
    return abs(first - second)


def compare(checkpoint: Checkpoint, words: Words, count: int, seed: int) -> dict[str, Any]:
    """How many prompts get the very tokens that they get without jumps, in every variant."""
    constraints = constraints_of(words)
    calls = prompts_under_constraints(checkpoint, constraints, count, seed)

    def driver(settings: Mapping[str, Any]) -> Drive:
        runner = ModelRunner(checkpoint.model, NUM_SLOTS)
        return Drive(words, runner, words.size, constraints, **{**SIZES, **settings})

    slow = driver({"jumps": False, "max_running": 32})
    plain = slow.answers(calls)
    figures: dict[str, Any] = {}
    for variant in VARIANTS:
        drive = driver({"max_running": 32, **variant.settings})
        found = drive.answers(calls, variant.retract_every)
        steps, retracted = drive.counters.steps, drive.counters.retracted + drive.num_sent_back
        pairs = [(a.outputs[0], b.outputs[0]) for a, b in zip(plain, found, strict=True)]
        parted = [
            gap(drive, call, a.ids, b.ids)
            for call, (a, b) in zip(calls, pairs, strict=True)
            if a.ids != b.ids
        ]
        figures[variant.name] = {
            "same_text": sum(a.text == b.text for a, b in pairs),
            "same_tokens": sum(a.ids == b.ids for a, b in pairs),
            "widest_gap_where_parted": max(parted, default=None),
            "steps": steps,
            "retracted": retracted,
        }
    return {
        "prompts": len(calls),
        "tokens": sum(len(one.outputs[0].ids) for one in plain),
        "steps_without_jumps": slow.counters.steps,
        "variants": figures,
    }


class Notes(Constraints):
    """Constraints that remember their jumps."""

    def __init__(self, words: Words) -> None:
        tokenizer = words.tokenizer
        super().__init__(tokenizer.token_bytes, words.end_ids, tokenizer.encode_after)
        self.jumps: list[tuple[list[int], tuple[int, ...]]] = []

    def jump_forward(self, ids: Sequence[int], forced: bytes, after: Cursor) -> JumpForward:
        """As in the runtime."""
        jump = super().jump_forward(ids, forced, after)
        self.jumps.append((list(ids[: jump.keep]), jump.ids))
        return jump


def canonical(checkpoint: Checkpoint, words: Words, count: int, seed: int) -> dict[str, int]:
    """Jumps whose tokens are, at their place, those that the tokenizer gives the whole answer; and
    answers all of whose tokens are. What lies between jumps is cut as the model likes."""
    notes, tokenizer = Notes(words), words.tokenizer
    figures = dict.fromkeys(("jumps", "tokens", "jumps_not_canonical", "answers_canonical"), 0)
    runner = ModelRunner(checkpoint.model, NUM_SLOTS)
    drive = Drive(words, runner, words.size, notes, **SIZES)
    calls = prompts_under_constraints(checkpoint, notes, count, seed)
    for call in calls:
        notes.jumps.clear()
        output = drive.answers([call])[0].outputs[0]
        ids = [token for token in output.ids if token not in words.end_ids]
        whole = tokenizer.encode(output.text)
        figures["answers_canonical"] += ids == whole
        for kept, new in notes.jumps:
            if not new or ids[: len(kept) + len(new)] != [*kept, *new]:
                continue  # not taken, for want of budget; or taken back by a later one
            figures["jumps"] += 1
            figures["tokens"] += len(new)
            offset = _index_at(whole, len(tokenizer.join_bytes(kept)), tokenizer.token_bytes)
            is_same = offset is not None and whole[offset : offset + len(new)] == list(new)
            figures["jumps_not_canonical"] += not is_same
    return {"answers": len(calls), **figures}


def _index_at(ids: list[int], offset: int, table: Sequence[bytes]) -> int | None:
    """Which token begins at this byte."""
    start = 0
    for index, token in enumerate([*ids, None]):
        if start == offset:
            return index
        start += len(table[token]) if token is not None else 0
    return None


class PerCall(Constraints):
    """As in the runtime, but a guide is compiled for every call.

    shares_vocabulary: what all guides need of the tokenizer is prepared once.
    """

    def __init__(self, words: Words, shares_vocabulary: bool) -> None:
        tokenizer = words.tokenizer
        super().__init__(tokenizer.token_bytes, words.end_ids, tokenizer.encode_after)
        self._words = words
        self._shared = Vocabulary(tokenizer.token_bytes, words.end_ids)
        self._shares_vocabulary = shares_vocabulary

    def guide(self, constraint: Constraint) -> Guide:
        """A new guide. Raises InvalidCall."""
        if not self._shares_vocabulary:
            return constraints_of(self._words).guide(constraint)
        if not isinstance(constraint, Regex):
            raise InvalidCall("constraint", constraint, "a Regex")
        return regular_guide(constraint, self._shared)


def records(count: int, seed: int) -> list[Call]:
    """Greedy calls for the character record, each after its own text of the small world."""
    texts = [document.text[:300] for document in islice(documents(seed, held_out=True), count)]
    return [
        Call((Text(f"{text}\nJSON:"),), Sampling(max_tokens=320, temperature=0.0), Regex(RECORD))
        for text in texts
    ]


def measure(
    checkpoint: Checkpoint, words: Words, count: int, rounds: int, now: Callable[[], float]
) -> dict[str, Any]:
    """Calls per second with jumps, without them, and with a guide for every call; in turn."""
    calls, figures = records(count, 0), {}
    shared = constraints_of(words)
    for batch in (1, 8, 32):
        some = calls[: max(4, min(len(calls), 4 * batch))]
        modes = {
            name: Drive(
                words,
                ModelRunner(checkpoint.model, NUM_SLOTS),
                words.size,
                constraints,
                jumps=has_jumps,
                max_running=batch,
                **SIZES,
            )
            for name, constraints, has_jumps in (
                ("jumps", shared, True),
                ("no jumps", shared, False),
                ("jumps, a guide for every call", PerCall(words, True), True),
                ("jumps, nothing shared", PerCall(words, False), True),
            )
        }
        times: dict[str, list[float]] = {name: [] for name in modes}
        expected = None
        for round_index in range(rounds + 1):  # the first one only warms up
            for name, drive in modes.items():
                drive.clear_cache()
                started = now()
                found = [one.text for one in drive.answers(some)]
                taken = now() - started
                assert expected is None or found == expected
                expected = found
                if round_index:
                    times[name].append(taken)
        figures[f"batch {batch}"] = _rates(times, len(some)) | {
            "steps": {
                name: round(drive.counters.steps / (rounds + 1)) for name, drive in modes.items()
            }
        }
    compiled = {"asked": shared.guides.num_hits + shared.guides.num_compiled}
    return figures | {"shared guide": compiled | {"compiled": shared.guides.num_compiled}}


def _rates(times: dict[str, list[float]], num_calls: int) -> dict[str, Any]:
    """Calls per second of each mode, and how many times the others' those with jumps are."""
    rates = {name: round(num_calls / median(taken), 2) for name, taken in times.items()}
    ratios = {
        name: round(median(b / a for a, b in zip(times["jumps"], taken, strict=True)), 2)
        for name, taken in times.items()
        if name != "jumps"
    }
    return {"calls": num_calls, "calls_per_second": rates, "ratio": ratios}


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--prompts", type=int, default=500)
    options.add_argument("--calls", type=int, default=64)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", choices=("passes", "same", "canonical", "throughput"))
    args = options.parse_args()
    torch.set_num_threads(1)
    now = process_time if args.busy else perf_counter
    checkpoint, words = Checkpoint.load(model_folder("tiny")), vocabularies.embedded()
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "passes": lambda: count_passes(vocabularies.tekken(), args.seed),
        "same": lambda: compare(checkpoint, words, args.prompts, args.seed),
        "canonical": lambda: canonical(checkpoint, words, args.prompts, args.seed),
        "throughput": lambda: measure(checkpoint, words, args.calls, args.rounds, now),
    }
    figures = {name: make() for name, make in parts.items() if args.only in (None, name)}
    report("jumps", figures, args.out, model="tiny", seed=args.seed, clock=now.__name__)


if __name__ == "__main__":
    main()
