"""What the radix cache costs: one 4,096-token call in a full pool whose tree has 10,000 nodes.

The tree is that of mixed traffic: few-shot questions over 64 prefixes, and 250 chats of up to 12
turns. More of it runs between the measured calls, untimed. A measured call is matched (as when it
waits), acquired, given slots (which evicts), committed after its prompt, and released; apart from
that its finish is measured: the commit of 300 generated tokens more. Prints one JSON row, times in
microseconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import TypeVar

import numpy as np

from forkroot.core.api.batch import Ints
from forkroot.core.radix.cache import Lease, RadixCache

CALL_LEN, SHARED_LEN, ANSWER_LEN = 4096, 2048, 300
NUM_NODES, CAPACITY = 10_000, 900_000
NUM_PREFIXES, NUM_CHATS, CHAT_LEN = 64, 250, 2100
T = TypeVar("T")


class Traffic:
    """Seeded few-shot questions and chats that run through a cache."""

    def __init__(self, cache: RadixCache, seed: int) -> None:
        self.cache = cache
        self.random = np.random.default_rng(seed)
        self.prefixes = [self.tokens(SHARED_LEN) for _ in range(NUM_PREFIXES)]
        self.chats = [self.prefixes[0][:300]] * NUM_CHATS

    def tokens(self, count: int) -> Ints:
        """Tokens that no other call has."""
        return self.random.integers(0, 128_000, count, dtype=np.int32)

    def fill(self) -> None:
        """Run until the tree has NUM_NODES nodes and the pool is full."""
        while self.cache.num_nodes < NUM_NODES or self.cache.num_free > CALL_LEN:
            if self.random.random() < 0.5:
                self._run(np.concatenate([self.few_shot(), self.tokens(100)]), 1)
                continue
            index = self.random.integers(NUM_CHATS)
            chat = self.chats[index] if len(self.chats[index]) < CHAT_LEN else self.chats[0][:300]
            self.chats[index] = self._run(np.concatenate([chat, self.tokens(60)]), 90)

    def few_shot(self) -> Ints:
        """A prefix that many calls share: one or two nodes."""
        return self.prefixes[self.random.integers(NUM_PREFIXES)]

    def longest_chat(self) -> Ints:
        """What a next turn shares: a path of many nodes."""
        return max(self.chats, key=len)[:SHARED_LEN]

    def nothing(self) -> Ints:
        """What a call shares that has never been seen."""
        return self.tokens(0)

    def _run(self, prompt: Ints, answer_len: int) -> Ints:
        lease = self.cache.acquire("", prompt, len(prompt) - 1)
        extend(self.cache, lease, prompt)
        whole = np.concatenate([prompt, self.tokens(answer_len)])
        extend(self.cache, lease, whole)
        self.cache.release(lease)
        return whole


class Stopwatch:
    """Times of named phases in microseconds, one for each call."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def time(self, phase: str, action: Callable[[], T]) -> T:
        """Run `action` as this phase."""
        start = perf_counter_ns()
        result = action()
        self.times.setdefault(phase, []).append((perf_counter_ns() - start) / 1e3)
        return result

    def figures(self) -> dict[str, dict[str, float]]:
        """Least, median and 99th percentile of each phase and of the sums that matter."""
        times = {phase: np.array(values) for phase, values in self.times.items()}
        parts = [times[phase] for phase in ("match", "acquire", "commit", "release")]
        times["match+commit+release"] = np.sum(parts, axis=0)
        times["call"] = times["match+commit+release"] + times["allocate"]
        return {phase: _spread(values) for phase, values in times.items()}


def extend(cache: RadixCache, lease: Lease, tokens: Ints) -> None:
    """Allocate slots for the tokens that the lease lacks, and commit them."""
    slots = cache.allocate(len(tokens) - lease.length)
    assert slots is not None, "the pool is too small for this traffic"
    cache.commit(lease, tokens, np.concatenate([lease.slots, slots]))


def measure(traffic: Traffic, fork: Callable[[], Ints], calls: int) -> dict[str, object]:
    """Figures of `calls` calls that begin with what `fork` gives and go on with fresh tokens."""
    watch, reused, nodes = Stopwatch(), [], []
    for _ in range(calls):
        traffic.fill()
        nodes.append(traffic.cache.num_nodes)
        shared = fork()
        prompt = np.concatenate([shared, traffic.tokens(CALL_LEN - len(shared))])
        reused.append(_call(traffic.cache, watch, prompt))
        _finish(traffic.cache, watch, np.concatenate([prompt, traffic.tokens(ANSWER_LEN)]))
    figures = watch.figures()
    return {"nodes": int(np.mean(nodes)), "reused": int(np.mean(reused)), "us": figures}


def _call(cache: RadixCache, watch: Stopwatch, prompt: Ints) -> int:
    limit = len(prompt) - 1
    watch.time("match", lambda: cache.match("", prompt, limit))
    lease = watch.time("acquire", lambda: cache.acquire("", prompt, limit))
    reused = lease.length
    fresh = watch.time("allocate", lambda: cache.allocate(len(prompt) - reused))
    assert fresh is not None, "the pool is too small for this traffic"
    slots = np.concatenate([lease.slots, fresh])
    watch.time("commit", lambda: cache.commit(lease, prompt, slots))
    watch.time("release", lambda: cache.release(lease))
    return reused


def _finish(cache: RadixCache, watch: Stopwatch, whole: Ints) -> None:
    lease = cache.acquire("", whole, CALL_LEN)
    fresh = cache.allocate(len(whole) - lease.length)
    assert fresh is not None, "the pool is too small for this traffic"
    slots = np.concatenate([lease.slots, fresh])
    watch.time("finish", lambda: cache.commit(lease, whole, slots))
    cache.release(lease)


def _spread(values: np.ndarray) -> dict[str, float]:
    least, median, late = np.percentile(values, [0, 50, 99]).round(1).tolist()
    return {"min": least, "median": median, "p99": late}


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip()


def main() -> None:
    """Measure and print the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=400, help="measured calls of each shape")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    traffic = Traffic(RadixCache(CAPACITY), options.seed)
    shapes = {
        "half shared, few-shot": traffic.few_shot,
        "half shared, chat": traffic.longest_chat,
        "nothing shared": traffic.nothing,
    }
    figures = {name: measure(traffic, fork, options.calls) for name, fork in shapes.items()}
    row = {"benchmark": "radix", "commit": _commit(), "cpu": _cpu()}
    row |= {"python": platform.python_version(), "seed": options.seed, "calls": options.calls}
    print(json.dumps(row | {"figures": figures}))


if __name__ == "__main__":
    main()
