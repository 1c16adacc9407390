"""How long programs take under load, with hints and without.

Programs of several of the paper's shapes arrive as a Poisson process, at a part of the rate that
saturates the runtime, in a pool of a part of what they span. The same programs arrive at the same
seconds with exact hints, and without any: mean and 99th percentile of a program's latency, and
programs per second. No model: virtual time, in which a step takes a time of its own and one for
each token. Prints one JSON row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from forkroot.benchmarks.cache.exact import Hinted, ProgramLog, Wrapper
from forkroot.benchmarks.cache.virtual import VOCABULARY, VirtualRuntime, optimum
from forkroot.benchmarks.common import workloads
from forkroot.benchmarks.common.programs import Body, Driver, Maker, Program, Workload
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.config import EngineConfig

MIX: tuple[tuple[Callable[[Maker], Workload], float], ...] = (
    (workloads.react, 0.4),
    (workloads.tree_of_thought, 0.4),
    (workloads.skeleton_of_thought, 0.4),
    (workloads.judge, 0.8),
    (workloads.multi_chain, 0.5),
    (workloads.chat, 1.0),
    (workloads.rag, 0.4),
    (workloads.gsm8k, 0.3),
)
UNLIMITED = 3_000_000


class OpenDriver(Driver):
    """Runs programs that arrive at given seconds, however many run already."""

    def __init__(self, runtime: VirtualRuntime) -> None:
        super().__init__(runtime.submit, runtime.tick)
        self._runtime = runtime

    def run_at(self, programs: Iterator[Program], arrivals: list[float]) -> list[float]:
        """Seconds that each took."""
        runtime, ended = self._runtime, [0.0] * len(arrivals)
        waiting = enumerate(programs)
        num_started = 0
        while len(self._results) < len(arrivals):
            if not runtime.has_work and num_started < len(arrivals):
                runtime.sleep(arrivals[num_started])
            due = sum(it <= runtime.now() for it in arrivals[num_started:])
            num_started += self._start_next(waiting, due)
            known = set(self._results)
            if runtime.has_work:
                self._wait()
            for index in self._results.keys() - known:
                ended[index] = runtime.now()
        return [end - start for start, end in zip(arrivals, ended, strict=True)]


def mixed(seed: int, share: float) -> Workload:
    """Programs of all shapes of the mix, in a seeded order."""
    bodies: list[Body] = []
    for number, (shape, part) in enumerate(MIX):
        bodies += shape(Maker(range(256, VOCABULARY), part * share, seed + number)).bodies
    random.Random(seed).shuffle(bodies)
    return Workload("mixed", bodies)


def saturation(workload: Workload, config: EngineConfig, num_slots: int) -> float:
    """Programs per second where twice as many run at a time as the runtime has rows, before the
    last of them have begun."""
    runtime = VirtualRuntime(config, num_slots, knows=False, is_timed=True)
    ends: list[float] = []

    def timed(program: Program) -> Program:
        result = yield from program
        ends.append(runtime.now())
        return result

    programs = map(timed, workload.programs(False))
    width = 2 * (config.max_running or 64)
    Driver(runtime.submit, runtime.tick).run(programs, width)
    num = max(1, len(ends) - width)
    return num / ends[num - 1]


def measure(seed: int, share: float, load: float, part: float, config: EngineConfig) -> Any:
    """Latencies with and without hints."""
    workload, log = mixed(seed, share), ProgramLog()
    runtime = VirtualRuntime(config, UNLIMITED, knows=False)
    Driver(runtime.submit, runtime.tick).run(log.watch(workload.programs(False)), 32)
    _, span = optimum(runtime.sequences)
    longest = max(sequence.num_ids for sequence in runtime.sequences)
    num_slots = max(round(part * span), longest)
    rate = load * saturation(workload, config, num_slots)
    rng = random.Random(seed)
    arrivals = np.cumsum([rng.expovariate(rate) for _ in workload.bodies]).tolist()
    wrappers: dict[str, Wrapper] = {"off": lambda programs: programs, "on": Hinted(log).wrap}
    found = {"programs": len(arrivals), "slots": num_slots, "rate": round(rate, 3)}
    for name, wrap in wrappers.items():
        runtime = VirtualRuntime(config, num_slots, knows=name == "on", is_timed=True)
        seconds = OpenDriver(runtime).run_at(wrap(workload.programs(False)), arrivals)
        figures = runtime.finish()
        found[name] = {
            "mean": round(float(np.mean(seconds)), 3),
            "p50": round(float(np.percentile(seconds, 50)), 3),
            "p99": round(float(np.percentile(seconds, 99)), 3),
            "throughput": round(len(arrivals) / runtime.now(), 4),
            **figures,
        }
    for name in ("mean", "p50", "p99", "throughput"):
        found[f"{name}, on/off"] = round(found["on"][name] / found["off"][name], 3)
    return found


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--share", type=float, default=1.0, help="of the programs")
    options.add_argument("--load", type=float, default=0.8, help="of saturation")
    options.add_argument("--running", type=int, default=16, help="sequences at a time")
    options.add_argument("--part", type=float, default=0.25, help="of the span that the pool holds")
    args = options.parse_args()
    config = EngineConfig(seed=args.seed, max_running=args.running)
    figures = measure(args.seed, args.share, args.load, args.part, config)
    report(
        "latency",
        figures,
        args.out,
        seed=args.seed,
        share=args.share,
        load=args.load,
        running=args.running,
        part=args.part,
    )


if __name__ == "__main__":
    main()
