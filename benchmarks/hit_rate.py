"""How near the cache comes to the best hit rate that is possible.

The hit rate is the share of prompt tokens that were not computed: 1 - prefilled / prompt tokens,
where planting calls and work done again after a retraction count as prefilled, and planted prompts
do not count as prompt tokens. The optimum is that of the same calls in depth-first order with an
unlimited cache (paper, Theorem 3.1).

First the theorem itself: random trees of requests, offline, one at a time, in a cache as large as
the longest request. Then the paper's workloads, many programs at a time, in an unlimited cache and
in one of a tenth of the tokens that the workload spans. No model: virtual time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from common import parser, report
from programs import Driver, Ids, Workload
from virtual import VOCABULARY, VirtualRuntime, optimum
from workloads import SHAPES, Maker, answering

from forkroot.core.config import ORDERS, EngineConfig

NUM_TREES = 40
TREE_REQUESTS = 60


def random_tree(seed: int) -> list[Ids]:
    """Requests that grow out of each other at random places, each closed by a token of its own."""
    draw = random.Random(seed)
    requests: list[Ids] = [()]
    for _ in range(TREE_REQUESTS):
        stem = draw.choice(requests)
        kept = stem[: draw.randint(0, max(0, len(stem) - 1))]
        grown = tuple(draw.choices(range(VOCABULARY // 2), k=draw.randint(1, 80)))
        requests.append((*kept, *grown, VOCABULARY // 2 + len(requests)))
    draw.shuffle(requests)
    return [request for request in requests if request]


def theorem(order: str) -> dict[str, float]:
    """Hit rate over optimum on random trees, under the theorem's conditions."""
    ratios = []
    for seed in range(NUM_TREES):
        requests = random_tree(seed)
        workload = Workload("tree", [answering(ids, length=1) for ids in requests], TREE_REQUESTS)
        config = EngineConfig(order=order, max_running=1, chunk_tokens=8192, seed=seed)
        runtime, figures = run(workload, config, max(map(len, requests)), hints=False)
        prefilled, _ = optimum(runtime.sequences)
        ratios.append(_rate(figures) / (1 - prefilled / figures["prompt_tokens"]))
    return {"least": round(min(ratios), 4), "mean": round(sum(ratios) / len(ratios), 4)}


def run(
    workload: Workload, config: EngineConfig, num_slots: int, hints: bool
) -> tuple[VirtualRuntime, dict[str, Any]]:
    """Run a workload to its end; the runtime, and how it went."""
    runtime = VirtualRuntime(config, num_slots)
    Driver(runtime.submit, runtime.tick).run(workload.programs(hints), workload.width)
    return runtime, runtime.finish()


def measure(shape: Callable[[Maker], Workload], share: float, seed: int) -> dict[str, Any]:
    """One workload: the optimum, and hit rate over optimum for each pool, order and hints."""
    workload = shape(Maker(range(256, VOCABULARY), share, seed))
    config = EngineConfig(seed=seed)
    unlimited = 3_000_000
    runtime, figures = run(workload, config, unlimited, hints=False)
    prefilled, span = optimum(runtime.sequences)
    best = 1 - prefilled / figures["prompt_tokens"]
    longest = max(sequence.num_ids for sequence in runtime.sequences)
    row = {"workload": workload.name, "programs": len(workload.bodies), "span": span}
    row |= {"longest": longest, "optimum": round(best, 4)}
    for pool, num_slots in (("unlimited", unlimited), ("tenth", max(span // 10, longest))):
        for order in ORDERS:
            for hints in (True, False):
                _, figures = run(workload, replace(config, order=order), num_slots, hints)
                assert figures["prefilled"] >= prefilled, "better than the best"
                name = f"{pool} {order} {'hints' if hints else 'no hints'}"
                row[name] = figures | {"of_optimum": round(_rate(figures) / best, 4)}
    return row


def _rate(figures: dict[str, Any]) -> float:
    return float(1 - figures["prefilled"] / figures["prompt_tokens"])


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--share", type=float, default=0.25, help="of the paper's programs")
    options.add_argument("--only", default="", help="workloads whose name has this in it")
    args = options.parse_args()
    shapes = [shape for shape in SHAPES if args.only in shape.__name__]
    figures = {
        "theorem": {order: theorem(order) for order in ORDERS},
        "workloads": [measure(shape, args.share, args.seed) for shape in shapes],
    }
    report("hit_rate", figures, args.out, seed=args.seed, share=args.share)


if __name__ == "__main__":
    main()
