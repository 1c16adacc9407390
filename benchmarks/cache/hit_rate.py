"""How near the cache comes to the best hit rate that is possible.

The hit rate is the share of prompt tokens that were not computed: 1 - prefilled / prompt tokens,
where planting calls and work done again after a retraction count as prefilled, and planted prompts
do not count as prompt tokens. The optimum is that of the same calls in depth-first order with an
unlimited cache (paper, Theorem 3.1).

First the theorem itself: random trees of requests, offline, one at a time, in a cache as large as
the longest request. Then the paper's workloads, many programs at a time: in an unlimited cache, and
in caches of a part of all tokens that the workload's prompts and answers span. No model: virtual
time, so that only order, sharing and memory matter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from forkroot.benchmarks.cache.virtual import VOCABULARY, VirtualRuntime, optimum
from forkroot.benchmarks.common.programs import Driver, Ids, Maker, Workload, answering
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.workloads import SHAPES
from forkroot.core.api.config import ORDERS, EngineConfig

NUM_TREES = 40
TREE_REQUESTS = 60
UNLIMITED = 3_000_000
NEVER = ALL = 10**6


@dataclass(frozen=True, slots=True)
class Setting:
    """How a workload is run.

    part: of its span that the pool holds; None: an unlimited pool.
    host: parts of its span that the host holds.
    width: programs at a time; None: the workload's own.
    """

    part: float | None = None
    order: str = "lpm"
    width: int | None = None
    hints: bool = True
    holds: bool = True
    host: float = 0.0

    @property
    def name(self) -> str:
        """What it is called in the row."""
        hints = "" if self.hints else " without hints"
        holds = "" if self.holds else " without holding"
        width = f", {self.width} at a time" if self.width else ""
        host = " before a host" if self.host else ""
        return f"{self.part or 'unlimited'} {self.order}{host}{hints}{holds}{width}"


SETTINGS = (
    *(Setting(order=order) for order in ORDERS),
    Setting(hints=False),
    Setting(holds=False),
    *(Setting(0.1, order=order) for order in ORDERS),
    Setting(0.1, hints=False),
    Setting(0.1, host=2.0),
    Setting(0.2),
    Setting(0.3),
    Setting(0.5),
    Setting(0.1, width=4),
    Setting(0.1, width=ALL),
)


def random_tree(seed: int) -> list[Ids]:
    """Requests that grow out of each other at random places, each closed by a token of its own."""
    rng = random.Random(seed)
    requests: list[Ids] = [()]
    for _ in range(TREE_REQUESTS):
        stem = rng.choice(requests)
        kept = stem[: rng.randint(0, max(0, len(stem) - 1))]
        grown = tuple(rng.choices(range(VOCABULARY // 2), k=rng.randint(1, 80)))
        requests.append((*kept, *grown, VOCABULARY // 2 + len(requests)))
    rng.shuffle(requests)
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


def measure(
    shape: Callable[[Maker], Workload],
    share: float,
    config: EngineConfig,
    settings: Sequence[Setting],
) -> dict[str, Any]:
    """One workload: the optimum, and hit rate over optimum under each setting."""
    workload = shape(Maker(range(256, VOCABULARY), share, config.seed))
    runtime, figures = run(workload, config, UNLIMITED, hints=False)
    prefilled, span = optimum(runtime.sequences)
    best = 1 - prefilled / figures["prompt_tokens"]
    longest = max(sequence.num_ids for sequence in runtime.sequences)
    row = {"workload": workload.name, "programs": len(workload.bodies), "width": workload.width}
    row |= {"span": span, "longest": longest, "optimum": round(best, 4)}
    for setting in settings:
        num_slots = max(round(span * setting.part), longest) if setting.part else UNLIMITED
        hold_min = config.hold_min if setting.holds else NEVER
        host_slots = round(span * setting.host)
        changed = replace(config, order=setting.order, hold_min=hold_min, host_slots=host_slots)
        widened = replace(workload, width=setting.width or workload.width)
        _, figures = run(widened, changed, num_slots, setting.hints)
        assert figures["prefilled"] >= prefilled, "better than the best"
        assert setting.name not in row, "two settings of one name"
        row[setting.name] = figures | {"of_optimum": round(_rate(figures) / best, 4)}
    return row


def _rate(figures: dict[str, Any]) -> float:
    return float(1 - figures["prefilled"] / figures["prompt_tokens"])


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--share", type=float, default=1.0, help="of the paper's programs")
    options.add_argument("--only", default="", help="workloads whose name has this in it")
    options.add_argument(
        "--overlap", action="store_true", help="each step is launched before the last one landed"
    )
    options.add_argument("--settings", help="their names, with | between; else all")
    args = options.parse_args()
    names = [it.name for it in SETTINGS] if args.settings is None else args.settings.split("|")
    settings = [it for it in SETTINGS if it.name in names]
    config = EngineConfig(seed=args.seed, overlap=args.overlap)
    shapes = [shape for shape in SHAPES if args.only in shape.__name__]
    figures = {
        "theorem": {order: theorem(order) for order in ORDERS},
        "workloads": [measure(shape, args.share, config, settings) for shape in shapes],
    }
    settings_of_run = {"overlap": True} if args.overlap else {}
    report("hit_rate", figures, args.out, seed=args.seed, share=args.share, **settings_of_run)


if __name__ == "__main__":
    main()
