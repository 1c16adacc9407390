"""The paper's workloads on the embedded model: programs per second with the cache and without.

Shapes as in `workloads`, a part of the programs and half the length, so that all fit the model's
context. With cache and hints, with the cache alone and with nothing, in turn, from an empty cache
each time. Prints one JSON row: programs per second, and the ratios within each round.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch

from forkroot.benchmarks.common.programs import Driver, Maker, Workload
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.workloads import SHAPES, nothing_shared
from forkroot.core.local import LocalBackend

WORDS = range(300, 4000)
MODES = {
    "cache + hints": {"cache": True, "hints": True},
    "cache": {"cache": True, "hints": False},
    "nothing": {"cache": False, "hints": False},
}


def seconds(
    backend: LocalBackend, workload: Workload, hints: bool, now: Callable[[], float]
) -> float:
    """How long the workload takes from an empty cache."""
    backend.clear_cache()
    started = now()
    Driver(backend.submit).run(workload.programs(hints), workload.width)
    return now() - started


def measure(
    backends: dict[str, LocalBackend],
    workload: Workload,
    repeats: int,
    now: Callable[[], float],
) -> dict[str, Any]:
    """Programs per second of each mode, and the median of the rounds' ratios to "nothing"."""
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    for backend in backends.values():
        backend.reset_counters()
    for _ in range(repeats):
        for mode, backend in backends.items():
            times[mode].append(seconds(backend, workload, MODES[mode]["hints"], now))
    figures: dict[str, Any] = {"workload": workload.name, "programs": len(workload.bodies)}
    for mode, taken in times.items():
        ratios = [bare / mine for bare, mine in zip(times["nothing"], taken, strict=True)]
        counters = backends[mode].info().counters
        figures[mode] = {
            "programs_per_second": round(len(workload.bodies) / median(taken), 3),
            "ratio": round(median(ratios), 2),
            "computed_tokens": int(counters["computed_tokens"]) // repeats,
        }
    return figures


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--share", type=float, default=0.1, help="of the paper's programs")
    options.add_argument("--size", type=float, default=0.5, help="of the paper's lengths")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--threads", type=int, default=1, help="the number of torch's threads")
    options.add_argument("--only", default="", help="workloads whose name has this in it")
    options.add_argument("--model", default="tiny", help="a checkpoint folder")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    now = process_time if args.busy else perf_counter
    backends = {
        mode: LocalBackend.from_folder(args.model, num_slots=131_072, **settings)
        for mode, settings in MODES.items()
    }
    figures = []
    for shape in (*SHAPES, nothing_shared):
        if args.only in shape.__name__:
            workload = shape(Maker(WORDS, args.share, args.seed, args.size))
            figures.append(measure(backends, workload, args.repeats, now))
    for backend in backends.values():
        backend.close()
    settings = {name: getattr(args, name) for name in ("model", "seed", "share", "size")}
    report("throughput", {"workloads": figures}, args.out, **settings, clock=now.__name__)


if __name__ == "__main__":
    main()
