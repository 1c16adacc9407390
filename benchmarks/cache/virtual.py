"""A runtime without a model, in virtual time: what the scheduler and the cache do, and how well.

One step of the engine is one tick. Tokens are sampled by a hash of all tokens before them that is
kept in the slots, so that every setting gets the same answers, and a wrong slot gets others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from forkroot.benchmarks.cache.oracle import Grow, RecordingQueue, offline_hits
from forkroot.benchmarks.common.fake_runner import LateRunner, byte_tokenizer
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Call
from forkroot.core.api.reply import Mailbox
from forkroot.core.engine.endings import Endings
from forkroot.core.engine.engine import Engine
from forkroot.core.engine.forks import Roots
from forkroot.core.engine.input import InputProcessor
from forkroot.core.engine.output import OutputProcessor
from forkroot.core.engine.scheduler import Scheduler
from forkroot.core.engine.sequence import Sequence
from forkroot.core.radix.cache import RadixCache
from forkroot.core.radix.host import HostTier

VOCABULARY = 32_000
CONTEXT = 8192
TICK = 0.02
STEP, TOKEN = 0.01, 0.00007  # seconds of a step, and of a token in it, about as of 8B on one GPU
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class HashRunner:
    """Computes a batch as sums of hashes: a slot holds a hash of the tokens up to it."""

    def __init__(self, num_slots: int, num_host: int = 0) -> None:
        self._pool = np.zeros(num_slots, np.uint64)
        self._host = np.zeros(num_host, np.uint64)

    def run(self, batch: Batch) -> Outcome:
        """One pass, as of a model with next to no size."""
        for it in batch.copies:
            if it.is_load:
                self._pool[it.slots] = self._host[it.host]
            else:
                self._host[it.host] = self._pool[it.slots]
        sums = np.cumsum(_hash(batch.ids.astype(np.uint64) + (batch.positions << 20)))
        firsts = np.cumsum(batch.lens) - batch.lens
        lasts = batch.table[batch.rows, np.maximum(batch.starts - 1, 0)]
        before = np.where(batch.starts > 0, self._pool[lasts], 0)
        before -= np.where(firsts > 0, sums[firsts - 1], 0)
        sums += np.repeat(before, batch.lens)
        self._pool[batch.slots] = sums
        tokens = (_hash(sums[batch.sampled]) % np.uint64(VOCABULARY)).astype(np.int64)
        scores = (_hash(sums[batch.scored]) % np.uint64(5000)).astype(np.float32) / np.float32(
            -1000
        )
        return Outcome(tokens, np.full(len(tokens), np.nan, np.float32), scores=scores)


class VirtualRuntime:
    """An engine that steps on command, and remembers its requests.

    config: without sizes, which are `num_slots` and CONTEXT.
    knows: whether eviction and order go by hints and by what was found again; else by last use and
      match alone.
    is_recorded: whether `oracle` may be asked.
    is_timed: whether a step takes STEP and TOKEN for each token; else it takes TICK.
    sequences: every sequence that was submitted, plants included.
    """

    def __init__(
        self,
        config: EngineConfig,
        num_slots: int,
        knows: bool = True,
        is_recorded: bool = False,
        is_timed: bool = False,
    ) -> None:
        self._is_recorded = is_recorded
        self._is_timed = is_timed
        self._seconds = 0.0
        self._num_slots = num_slots
        config = config.resolve(CONTEXT, 1, num_slots)
        self._input_processor = InputProcessor(
            byte_tokenizer(), CONTEXT, num_slots, VOCABULARY, frozenset()
        )
        host = HostTier.of(config.host_slots, config.host_policy)
        self.cache = RadixCache(num_slots, is_enabled=config.cache, host=host)
        self._ticks = 0
        runner: Any = HashRunner(num_slots, config.host_slots)
        runner = LateRunner(runner) if config.has_overlap else runner
        self._queue = _queue(config, knows)
        self._engine, self._scheduler = _engine(
            config, self.cache, runner, self.now, self._queue, knows
        )
        self.sequences: list[Sequence] = []

    def submit(self, call: Call) -> Mailbox:
        """Take a call; `tick` runs it."""
        mailbox = Mailbox(call, lambda reply: None)
        job = self._input_processor.job(call, mailbox)
        self.sequences += job.sequences
        self._engine.admit(job)
        return mailbox

    def tick(self) -> None:
        """One step."""
        assert self._engine.has_work, "nothing is open, yet somebody waits"
        self._ticks += 1
        if self._is_recorded:
            running = self._scheduler.running
            self._queue.events.append(Grow(tuple((it, it.num_allocated) for it in running)))
        num_computed = self._engine.counters.computed_tokens
        self._engine.step()
        num_computed = self._engine.counters.computed_tokens - num_computed
        self._seconds += STEP + TOKEN * num_computed if self._is_timed else TICK

    def finish(self) -> dict[str, Any]:
        """Check all invariants; the figures of the run."""
        self._engine.check()
        requests = [sequence for sequence in self.sequences if not sequence.job.is_prefill_only]
        prompt_tokens = sum(sequence.prompt_len for sequence in requests)
        decoded = sum(max(0, sequence.num_new - 1) for sequence in requests)
        counters = self._engine.counters
        return {
            "prompt_tokens": prompt_tokens,
            "prefilled": counters.computed_tokens - decoded,
            "ticks": self._ticks,
            "retracted": counters.retracted,
        }

    def oracle(self) -> int:
        """The prompt tokens that are computed where evictions know the future, with the same
        sequences started in the same order in the same pool."""
        return offline_hits(self._queue.events, self._num_slots)[0]

    def now(self) -> float:
        """Seconds since the start."""
        return self._seconds

    def sleep(self, until: float) -> None:
        """Let time pass with nothing to do."""
        self._seconds = max(self._seconds, until)

    @property
    def has_work(self) -> bool:
        """Whether a call is open."""
        return self._engine.has_work


def _hash(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        hashed = (values.astype(np.uint64) ^ np.uint64(0xDEADBEEF)) * _MULTIPLIER
        hashed = (hashed ^ (hashed >> np.uint64(29))) * _MULTIPLIER
        return hashed ^ (hashed >> np.uint64(32))


def _queue(config: EngineConfig, knows: bool) -> RecordingQueue:
    return RecordingQueue(
        config.order,
        ageing=config.ageing,
        context_len=CONTEXT,
        hold_min=config.hold_min,
        seed=config.seed,
        hints=knows and config.hints,
    )


def _engine(
    config: EngineConfig,
    cache: RadixCache,
    runner: Any,
    clock: Any,
    waiting: RecordingQueue,
    knows: bool,
) -> tuple[Engine, Scheduler]:
    roots = Roots(cache, config.root_timeout, waiting.tenants.share)
    scheduler = Scheduler(
        cache,
        roots,
        waiting,
        max_running=config.max_running,
        context_len=CONTEXT,
        chunk_tokens=config.chunk_tokens,
        endings=Endings(cache, config.hints) if knows else None,
    )
    engine = Engine(
        scheduler,
        runner,
        cache,
        roots,
        OutputProcessor(byte_tokenizer()),
        max_waiting=config.max_waiting,
        hints=config.hints,
        overlap=config.has_overlap,
        clock=clock,
    )
    return engine, scheduler


def optimum(sequences: list[Sequence]) -> tuple[int, int]:
    """The fewest prompt tokens that anybody must compute for these, and the tokens they span.

    In depth-first order over an unlimited cache (paper, Theorem 3.1), each token that a prompt or
    an answer holds is computed once: a prompt's own by a prefill; an answer's by its decoding, all
    but the last. A call computes at least the token whose logits it needs, cached or not.
    """
    trie: dict[int, int] = {}
    prefilled = 0
    for sequence in sorted(sequences, key=_depth_first):
        ids = sequence.ids[: sequence.prompt_len].tolist()
        known = _add(trie, ids)
        limit = len(ids) - 1 if sequence.score_start is None else sequence.score_start - 1
        prefilled += len(ids) - min(known, limit)
        _add(trie, ids + sequence.generated.tolist()[:-1])
    return prefilled, len(trie)


def _depth_first(sequence: Sequence) -> bytes:
    return bytes(sequence.ids[: sequence.prompt_len].astype(">i4"))


def _add(trie: dict[int, int], ids: list[int]) -> int:
    """Make `ids` known; how many of the first were known before."""
    node, known = 0, 0
    for token in ids:
        edge = node * VOCABULARY + token
        known += edge in trie
        node = trie.setdefault(edge, len(trie) + 1)
    return known
