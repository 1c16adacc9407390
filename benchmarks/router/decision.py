"""What a decision costs before many replicas and a large meta-tree, and what the tree weighs.

Prompts of a Zipf tenancy are sent to 512 replicas until the tree has a million nodes; then
decisions are timed one by one, with the calls that they send ending in turn. Reported: processor
microseconds of a decision (with its update of the tree), of the digests of a prompt, and of an
eviction that is read; bytes of a node by measurement, and the tree's own estimate.
"""

from __future__ import annotations

import gc
import os
import random
import time
from array import array
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from forkroot.adapters.router.loads import Loads
from forkroot.adapters.router.policies import Replicas, Request, policy_of
from forkroot.adapters.router.rendezvous import Rendezvous
from forkroot.adapters.router.tree import MetaTree
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.common.digests import digests

_PROMPT = 1500  # tokens


def memory_bytes() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Prompts:
    """Digests of prompts: a root of one of many tenants, whose sizes follow Zipf's law, and a
    question; now and then a longer conversation."""

    def __init__(self, num_tenants: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._roots = [self._random.randbytes(8 * 64) for _ in range(num_tenants)]
        weights = [1 / (rank + 1) for rank in range(num_tenants)]
        total = sum(weights)
        self._bounds = np.cumsum([weight / total for weight in weights])

    def next(self) -> bytes:
        """One prompt."""
        tenant = int(np.searchsorted(self._bounds, self._random.random()))
        root = self._roots[min(tenant, len(self._roots) - 1)]
        cut = 8 * self._random.randint(16, 64)
        return root[:cut] + self._random.randbytes(8 * self._random.randint(2, 12))


def timed(action: Callable[[], Any], seconds: list[float]) -> Any:
    """What an action gives; its time is added."""
    start = time.thread_time()
    found = action()
    seconds.append(time.thread_time() - start)
    return found


def percentiles(seconds: list[float]) -> list[float]:
    """Median, 99th and 99.9th percentile in microseconds."""
    return [round(float(np.percentile(seconds, it)) * 1e6, 1) for it in (50, 99, 99.9)]


def measure(num_replicas: int, num_nodes: int, policy_name: str, seed: int) -> dict[str, Any]:
    """Grow the tree, then time decisions."""
    replicas = Replicas(Loads(), Loads(), MetaTree(1 << 40), Rendezvous())
    for index in range(num_replicas):
        replicas.rendezvous.enter(index, f"http://replica-{index}:30000")
        replicas.loads.enter(1 << index)
        replicas.work.enter(1 << index)
    policy, prompts = policy_of(policy_name, replicas), Prompts(20_000, seed)
    everyone, at_work = replicas.loads.everyone, deque[tuple[int, int]]()
    gc.collect()
    before = memory_bytes()

    def send(key: bytes, seconds: list[float]) -> int:
        request = Request("", key)
        placement = timed(lambda: policy.choose(request, everyone), seconds)
        work = placement.work(request)
        replicas.loads.change(placement.bit, 1)
        replicas.work.change(placement.bit, work)
        at_work.append((placement.bit, work))
        if len(at_work) > 16 * num_replicas:
            bit, work = at_work.popleft()
            replicas.loads.change(bit, -1)
            replicas.work.change(bit, -work)
        return int(placement.bit)

    growing: list[float] = []
    while replicas.tree.num_nodes < num_nodes and policy.uses_tree:
        send(prompts.next(), growing)
    gc.collect()
    num, grown = replicas.tree.num_nodes, memory_bytes() - before
    deciding, reading, digesting = list[float](), list[float](), list[float]()
    for _ in range(20_000):
        key = prompts.next()
        bit = send(key, deciding)
        remaining = len(key) // 16 * 8
        if policy.uses_tree:
            timed(
                lambda key=key, remaining=remaining, bit=bit: replicas.tree.drop(
                    "", key, remaining, bit
                ),
                reading,
            )
    ids = [random.randrange(32_000) for _ in range(_PROMPT)]
    for _ in range(2000):
        timed(lambda: digests(array("i", ids).tobytes()), digesting)
    return {
        "policy": policy_name,
        "nodes": num,
        "decision_us": percentiles(deciding),
        "eviction_us": percentiles(reading) if reading else None,
        "digests_us": percentiles(digesting),
        "bytes_per_node": round(grown / num) if num else None,
        "estimated": round(replicas.tree.num_bytes / max(1, replicas.tree.num_nodes)),
    }


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--replicas", type=int, default=512)
    options.add_argument("--nodes", type=int, default=1_000_000)
    options.add_argument("--policies", nargs="+", default=["affinity", "power-of-two"])
    args = options.parse_args()
    found = [measure(args.replicas, args.nodes, name, args.seed) for name in args.policies]
    fixed = {"replicas": args.replicas, "nodes": args.nodes}
    report("router_decision", {"policies": found}, args.out, seed=args.seed, **fixed)


if __name__ == "__main__":
    main()
