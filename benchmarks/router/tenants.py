"""The paper's shapes for many tenants, whose sizes follow Zipf's law."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from forkroot.benchmarks.common import workloads
from forkroot.benchmarks.common.programs import Body, Ids, Maker, Workload
from forkroot.benchmarks.common.shapes import Words

FIRST_TOKEN, VOCABULARY = 256, 32_000


class QuickWords(Words):
    """As `Words`, some times faster. words: not more than 65,536."""

    def ids(self, low: int, high: int | None = None) -> Ids:
        """A text of `low` to `high` tokens that occurs nowhere else."""
        drawn = self.random.randbytes(2 * self.length(low, high or low))
        places = np.frombuffer(drawn, np.uint16) % len(self._words)
        return tuple(map(self._words.__getitem__, places.tolist()))


class Tenancy(NamedTuple):
    """A shape for many tenants. share: of the paper's programs that a tenant has on average.
    tenants: for each replica. width: programs at a time for each replica."""

    make: Callable[[Maker], Workload]
    share: float
    tenants: float
    width: int


SHAPES: dict[str, Tenancy] = {
    "mmlu": Tenancy(workloads.mmlu, 0.07, 2, 32),
    "hellaswag": Tenancy(workloads.hellaswag, 0.3, 4, 24),
    "gsm8k": Tenancy(workloads.gsm8k, 0.1, 4, 24),
    "react": Tenancy(workloads.react, 0.06, 4, 8),
    "agents": Tenancy(workloads.generative_agents, 0.03, 4, 32),
    "tree": Tenancy(workloads.tree_of_thought, 0.125, 2, 3),
    "deep tree": Tenancy(workloads.deep_tree, 0.125, 2, 3),
    "skeleton": Tenancy(workloads.skeleton_of_thought, 0.08, 4, 6),
    "judge": Tenancy(workloads.judge, 0.2, 4, 6),
    "multi-chain": Tenancy(workloads.multi_chain, 0.1, 4, 6),
    "chat": Tenancy(workloads.chat, 0.25, 6, 10),
    "long chat": Tenancy(workloads.long_chat, 0.25, 6, 10),
    "rag": Tenancy(workloads.rag, 0.15, 4, 24),
    "shared prefixes": Tenancy(workloads.shared_prefixes, 0.0625, 2, 32),
    "in-batch": Tenancy(workloads.in_batch, 0.4, 2, 2),
    "city": Tenancy(workloads.city, 0.25, 6, 10),
}


def programs_of(
    tenancy: Tenancy, num_replicas: int, seed: int, exponent: float, scale: float
) -> list[Body]:
    """The programs of all tenants in random order. exponent: of Zipf's law; 0: all tenants have as
    many. scale: so many times as many tenants."""
    num = max(1, round(tenancy.tenants * num_replicas * scale))
    weights = [1 / (rank + 1) ** exponent for rank in range(num)]
    mean = sum(weights) / num
    words = list(range(FIRST_TOKEN, VOCABULARY))  # their objects are shared by all texts
    bodies: list[Body] = []
    for rank, weight in enumerate(weights):
        size = weight / mean
        if tenancy.make is workloads.mmlu:  # its subjects and their questions both grow
            size = size**0.5
        share = tenancy.share * size
        make = QuickWords(words, share, seed * 1_000_003 + rank, 1.0)
        bodies += tenancy.make(make).bodies
    random.Random(seed).shuffle(bodies)
    return bodies
