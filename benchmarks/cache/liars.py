"""What a tenant that lies in its hints costs another one.

Two tenants run the same mixed programs, each with its own texts, in a pool of a part of what they
span. One has exact hints in every run. The other gives none ("honest": its alone-share), or lies:
"idle" programs are said to come back and never do, "urgent" ones to be at their end always,
"flood" makes each call a root and a program of its own that is expected many times. Reported is the
first tenant's throughput and mean latency relative to "honest", and that the answers stay the same.
Virtual time, no model. Prints one JSON row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from statistics import mean
from typing import Any

from forkroot.benchmarks.cache.exact import Hinted, ProgramLog, changed
from forkroot.benchmarks.cache.latency import UNLIMITED, mixed
from forkroot.benchmarks.cache.virtual import VirtualRuntime, optimum
from forkroot.benchmarks.common.programs import Driver, Program
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Call, ForkHint

LIES: dict[str, Callable[[int], ForkHint | None]] = {
    "honest": lambda number: None,
    "idle": lambda number: ForkHint(
        "", program=f"idle {number}", calls_left=9, tokens_left=10**6, next_use=1, pause=1e9
    ),
    "urgent": lambda number: ForkHint(
        "", program="urgent", calls_left=0, tokens_left=0, next_use=1, pause=1e9
    ),
    "flood": lambda number: ForkHint(
        f"root {number}", 10**6, 1, program=f"flood {number}", calls_left=10**9, next_use=1
    ),
}


def of_tenant(name: str, programs: Iterator[Program]) -> Iterator[Program]:
    """Programs whose calls are a tenant's."""
    return (changed(it, lambda call: replace(call, namespace=name)) for it in programs)


def lying(lie: Callable[[int], ForkHint | None], programs: Iterator[Program]) -> Iterator[Program]:
    """Programs whose calls bear a lie each."""

    def with_lie(numbers: Iterator[int], call: Call) -> Call:
        hint = lie(next(numbers))
        return call if hint is None else replace(call, hint=hint)

    return (changed(it, partial(with_lie, count(1000 * i))) for i, it in enumerate(programs))


class Clock:
    """When programs ended, and how long they took."""

    def __init__(self, runtime: VirtualRuntime) -> None:
        self._runtime = runtime
        self.ends: list[float] = []
        self.latencies: list[float] = []

    def timed(self, program: Program) -> Program:
        """The same program, timed from its first step."""
        started = self._runtime.now()
        result = yield from program
        self.ends.append(self._runtime.now())
        self.latencies.append(self._runtime.now() - started)
        return result


def measure(seed: int, share: float, part: float, config: EngineConfig) -> dict[str, Any]:
    """The first tenant's figures under each lie."""
    own, other, log = mixed(seed, share), mixed(seed + 100, share), ProgramLog()
    runtime = VirtualRuntime(config, UNLIMITED, knows=False)
    Driver(runtime.submit, runtime.tick).run(log.watch(own.programs(False)), 32)
    _, span = optimum(runtime.sequences)
    longest = max(sequence.num_ids for sequence in runtime.sequences)
    num_slots = max(round(2 * part * span), longest)
    found: dict[str, Any] = {"programs": len(own.bodies), "slots": num_slots}
    answers = None
    for name, lie in LIES.items():
        runtime = VirtualRuntime(config, num_slots, is_timed=True)
        clock = Clock(runtime)
        first = map(clock.timed, of_tenant("first", Hinted(log).wrap(own.programs(False))))
        second = of_tenant("second", lying(lie, other.programs(False)))
        programs = [it for pair in zip(first, second, strict=True) for it in pair]
        Driver(runtime.submit, runtime.tick).run(programs, 2 * (config.max_running or 64))
        texts = sorted(it.tokens.tobytes() for it in runtime.sequences)
        assert answers in (None, texts), "an answer is another one"
        answers = texts
        runtime.finish()
        found[name] = {
            "programs/s": round(len(clock.ends) / max(clock.ends), 4),
            "mean": round(mean(clock.latencies), 3),
        }
    for name in LIES:
        for figure in ("programs/s", "mean"):
            found[name][f"{figure}, of honest"] = round(
                found[name][figure] / found["honest"][figure], 3
            )
    return found


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--share", type=float, default=0.3, help="of the programs")
    options.add_argument("--running", type=int, default=16, help="sequences at a time")
    options.add_argument("--part", type=float, default=0.1, help="of the span that the pool holds")
    args = options.parse_args()
    config = EngineConfig(seed=args.seed, max_running=args.running)
    figures = measure(args.seed, args.share, args.part, config)
    fields = {name: getattr(args, name) for name in ("seed", "share", "running", "part")}
    report("liars", figures, args.out, **fields)


if __name__ == "__main__":
    main()
