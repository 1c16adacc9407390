"""Time per program as work grows: cached tokens, waiting calls, branches, sizes of grammars."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from statistics import median
from time import thread_time_ns

import numpy as np

from forkroot.benchmarks.cache.radix import extend
from forkroot.benchmarks.cache.virtual import VirtualRuntime
from forkroot.benchmarks.common.drive import constraints_of
from forkroot.benchmarks.common.programs import Driver, Program, ProgramContext
from forkroot.benchmarks.common.vocabularies import embedded
from forkroot.benchmarks.constraints.constraints import sample_text
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Call, Regex, Sampling, Tokens
from forkroot.core.api.reply import Mailbox
from forkroot.core.fsm.tokens.regular import RegularGuide
from forkroot.core.radix.cache import RadixCache

from ..engines import Engines
from ..figure import Chart, Figure, Settings, Step
from ..rows import Row

NAME = "growth"
CACHED, WAITING, BRANCHES, GRAMMAR = (
    "time per program by cached tokens",
    "time per program by waiting calls",
    "time per branch by branches",
    "time by fields of a record",
)
RATIOS = "growth"
FLAT = 1.1
VOCABULARY, SHARED, OWN, ANSWER = 32_000, 256, 256, 16
PIECE = 1_000  # tokens of a cached sequence
NUM_PROGRAMS, ROUNDS = 32, 5


def steps(settings: Settings) -> list[Step]:
    """One step a curve: what it compares is measured in turn."""
    return [
        Step("cached tokens", _cached, settings.pick(1, 15, 40)),
        Step("waiting calls", _waiting, settings.pick(1, 20, 60)),
        Step("branches", _branches, settings.pick(1, 6, 20)),
        Step("grammar", _grammar, settings.pick(1, 5, 15)),
    ]


class Grown:
    """A runtime whose cache already holds so many tokens. is_full: there is no room for more."""

    def __init__(self, num_cached: int, is_full: bool, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        room = 0 if is_full else 4 * ROUNDS * NUM_PROGRAMS * (OWN + ANSWER)
        least = NUM_PROGRAMS * (SHARED + OWN + ANSWER + 64)
        config = EngineConfig(max_running=8, chunk_tokens=2048)
        self.runtime = VirtualRuntime(config, max(num_cached + room, least))
        self.known = list(self._fill(self.runtime.cache, num_cached))

    def _fill(self, cache: RadixCache, count: int) -> Iterator[np.ndarray]:
        for _ in range(max(1, count // PIECE)):
            ids = self.tokens(min(PIECE, count))
            lease = cache.acquire("", ids, len(ids) - 1)
            extend(cache, lease, ids)
            cache.release(lease)
            yield ids[:SHARED]

    def tokens(self, count: int) -> np.ndarray:
        """Tokens that nothing else has."""
        return self.random.integers(256, VOCABULARY, count, dtype=np.int32)

    def calls(self) -> list[Call]:
        """Programs of one call: half of the prompt is cached."""
        picked = self.random.integers(max(0, len(self.known) - 1000), len(self.known), NUM_PROGRAMS)
        sampling = Sampling(max_tokens=ANSWER, temperature=0.0, ignore_eos=True)
        prompts = [np.concatenate([self.known[i], self.tokens(OWN)]) for i in picked]
        return [Call((Tokens(tuple(ids.tolist())),), sampling) for ids in prompts]

    def run(self) -> float:
        """Microseconds of processor time for each of some programs."""
        calls, started = self.calls(), thread_time_ns()
        replies = [self.runtime.submit(call) for call in calls]
        while not all(reply.done() for reply in replies):
            self.runtime.tick()
        taken = (thread_time_ns() - started) / 1e3 / len(calls)
        self.runtime.sequences.clear()
        return taken


def in_turn(runs: dict[float, Callable[[], float]], rounds: int = ROUNDS) -> dict[float, list]:
    """What each run gives, in rounds that begin with another one each; the first round warms up."""
    found: dict[float, list[float]] = {size: [] for size in runs}
    for turn in range(rounds + 1):
        sizes = list(runs)[turn % len(runs) :] + list(runs)[: turn % len(runs)]
        for size in sizes:
            taken = runs[size]()
            if turn:
                found[size].append(taken)
    return found


def curve(measure: str, series: str, found: dict[float, list[float]], note: str) -> list[Row]:
    """A row for each size: the least of the rounds, which other processes disturb least."""
    return [
        Row(NAME, measure, size, series, min(taken), "µs", min(taken), max(taken), note=note)
        for size, taken in found.items()
    ]


def growth_of(title: str, series: str, found: dict[float, list[float]], start: float) -> list[Row]:
    """How many times the time at `start` the time at the largest size is."""
    last = max(found)
    if start not in found or last == start:
        return []
    ratio = min(found[last]) / min(found[start])
    name = f"{title}: {start:,.0f} to {last:,.0f}"
    return [Row(NAME, RATIOS, name, series, ratio, "×", bar=FLAT)]


def _cached(engines: Engines) -> list[Row]:
    most, rows = engines.settings.num(4, 7, 7), []
    for series, is_full in (("pool with room", False), ("full pool, evicting", True)):
        sizes = [float(10**power) for power in range(3, most + 1)]
        grown = {
            size: Grown(int(size), is_full, engines.settings.seed + int(size)) for size in sizes
        }
        found = in_turn({size: it.run for size, it in grown.items()})
        note = f"prompts of {SHARED} cached and {OWN} new tokens, answers of {ANSWER}, no model"
        rows += curve(CACHED, series, found, note)
        rows += growth_of("cached tokens", series, found, 10_000.0)
        del grown
    return rows


class Queued:
    """A runtime with so many waiting calls; one is added for each that ends."""

    def __init__(self, num_waiting: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.roots = [self._ids(64) for _ in range(64)]
        config = EngineConfig(max_running=8, chunk_tokens=2048, max_waiting=200_000)
        self.runtime = VirtualRuntime(config, 262_144)
        self.open: list[Mailbox] = []
        for _ in range(num_waiting + 8):
            self._submit()
        self.runtime.sequences.clear()

    def _ids(self, count: int) -> list[int]:
        return list(self.random.integers(256, VOCABULARY, count).tolist())

    def _submit(self) -> None:
        root = self.roots[self.random.integers(len(self.roots))]
        sampling = Sampling(max_tokens=8, temperature=0.0, ignore_eos=True)
        prompt = Tokens((*root, *self._ids(32)))
        mailbox = self.runtime.submit(Call((prompt,), sampling))
        mailbox.when_done(self._ended)

    def _ended(self, _: object) -> None:
        self._num_ended += 1

    def run(self) -> float:
        """Microseconds of processor time for each of some calls that end; the queue stays full."""
        self._num_ended, num_added, started = 0, 0, thread_time_ns()
        while self._num_ended < NUM_PROGRAMS:
            self.runtime.tick()
            for _ in range(self._num_ended - num_added):
                self._submit()
            num_added = self._num_ended
        taken = (thread_time_ns() - started) / 1e3 / self._num_ended
        self.runtime.sequences.clear()
        return taken

    _num_ended = 0


def _waiting(engines: Engines) -> list[Row]:
    sizes = [10.0**power for power in range(1, engines.settings.num(2, 4, 5) + 1)]
    queued = {size: Queued(int(size), engines.settings.seed) for size in sizes}
    found = in_turn({size: it.run for size, it in queued.items()})
    note = "64 roots of 64 tokens, prompts of 96, answers of 8, no model; lpm, 8 running"
    rows = curve(WAITING, "lpm", found, note)
    return [*rows, *growth_of("waiting calls", "lpm", _until(found, 10_000.0), 10.0)]


def _until(found: dict[float, list[float]], size: float) -> dict[float, list[float]]:
    return {key: taken for key, taken in found.items() if key <= size}


def _branches(engines: Engines) -> list[Row]:
    sizes = [float(2**power) for power in range(1, engines.settings.num(4, 10, 10) + 1)]
    runtime = VirtualRuntime(EngineConfig(max_running=64, chunk_tokens=2048), 262_144)
    random_ = np.random.default_rng(engines.settings.seed)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(random_.integers(256, VOCABULARY, count).tolist())

    def fork(num: int) -> Program:
        draft = ProgramContext(True).begin(ids(1000))
        calls, branches = draft.fork(num)
        yield [*calls, *(branch.write(ids(8), 4) for branch in branches)]

    def run(num: int) -> float:
        programs = [fork(num) for _ in range(max(1, 64 // num))]
        started = thread_time_ns()
        for program in programs:
            Driver(runtime.submit, runtime.tick).run([program], 1)
        runtime.sequences.clear()
        return (thread_time_ns() - started) / 1e3 / (num * len(programs))

    found = in_turn(
        {size: lambda n=int(size): run(n) for size in sizes}, engines.settings.num(3, 2, 3)
    )
    note = "a root of 1,000 tokens, branches of 8 and answers of 4, no model"
    rows = curve(BRANCHES, "fork", found, note)
    return [*rows, *growth_of("branches", "fork", found, 64.0)]


def _grammar(engines: Engines) -> list[Row]:
    words, rows = embedded(), []
    random_ = random.Random(engines.settings.seed)
    compiling: dict[float, list[float]] = {}
    masking: dict[float, list[float]] = {}
    for num in [2**power for power in range(1, engines.settings.num(4, 6, 8) + 1)]:
        fields = ", ".join(rf'"field_{i}": "[a-z ]{{1,16}}"' for i in range(num))
        constraint = Regex(rf"\{{{fields}\}}")
        for turn in range(3):
            constraints = constraints_of(words)
            constraints.guide(Regex("a"))
            started = thread_time_ns()
            guide = constraints.guide(constraint)
            taken = (thread_time_ns() - started) / 1e3 / num
            compiling.setdefault(float(num), []).append(taken)
            assert isinstance(guide, RegularGuide)
            if turn == 0:
                sample_text(guide, random_)
            masking.setdefault(float(num), []).append(_mask_time(guide, words, random_))
    rows += curve(GRAMMAR, "compile, a field", compiling, "tokens of the embedded model")
    rows += curve(GRAMMAR, "mask, a token", masking, "a text of the constraint, the second time")
    rows += growth_of("fields, compile", "a field", compiling, 16.0)
    return [*rows, *growth_of("fields, mask", "a token", masking, 16.0)]


def _mask_time(guide: RegularGuide, words: object, random_: random.Random) -> float:
    """Microseconds of a mask and an advance, over a text that the constraint accepts."""
    ids = words.tokenizer.encode(sample_text(guide, random_))
    taken = list[float]()
    for _ in range(2):
        cursor, taken = guide.cursor(), []
        for token in ids:
            started = thread_time_ns()
            cursor.mask()
            cursor.advance(token)
            taken.append((thread_time_ns() - started) / 1e3)
    return median(taken)


FIGURE = Figure(
    NAME,
    "Cost as work grows",
    "Section 6.3 says that tree operations are linear and small; the paper has no such figure.",
    "Processor time of the engine’s thread for a program (or branch, or token) while something"
    " else grows: tokens in the cache, calls that wait, branches of a fork, fields of a record. No"
    " model: a batch takes next to no time. The least of the rounds, so that other"
    " processes disturb"
    " it least. Bar: 1.1 times from 10⁴ to 10⁷ cached tokens and from 10 to 10⁴ waiting calls.",
    steps,
    (
        Chart(RATIOS, unit="×", better="lower"),
        Chart(CACHED, "lines", "µs", "lower", "cached tokens"),
        Chart(WAITING, "lines", "µs", "lower", "waiting calls"),
        Chart(BRANCHES, "lines", "µs", "lower", "branches", is_log=True),
        Chart(GRAMMAR, "lines", "µs", "lower", "fields", is_log=True),
    ),
)
