"""What a tenant that lies in its hints costs another one.

Two tenants run mixed programs, each as many at a time as there are rows, in a pool of a part of
what they span. The first has exact hints in every run. The second never ends, and gives none
("honest": the first one's alone-share), or lies: "idle" programs are said to come back and never
do, "urgent" ones to be at their end always, "flood" makes each call a root and a program of
its own that is expected many times. Each tenant starts its next program when one of its own has
ended, so that a liar that loses time takes none of the other's. Reported are the first one's
programs per second, before its last ones have begun, and its mean latency, relative to "honest";
its answers stay the same. A few programs more or less at the same time change both by some per
cent; so these are means over several seeds, beside "others": an honest second tenant with other
programs, whose distance from 1 is that of chance. Virtual time, no model. Prints one JSON row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    "others": lambda number: None,
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


class Tenant(Driver):
    """The programs of one tenant over a runtime that others share. num_ended: of its programs."""

    def __init__(self, runtime: VirtualRuntime, programs: Iterable[Program], width: int) -> None:
        super().__init__(runtime.submit, None)
        self._waiting = enumerate(programs)
        self._start_next(self._waiting, width)

    @property
    def num_ended(self) -> int:
        """Programs that have ended."""
        return len(self._results)

    def go_on(self) -> None:
        """Take in what has ended in the last tick."""
        before = self.num_ended
        while not self._ended.empty():
            self._take(*self._ended.get())
        self._start_next(self._waiting, self.num_ended - before)


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

    def rate(self, width: int) -> float:
        """Programs per second before the last `width` had begun."""
        num = max(1, len(self.ends) - width)
        return num / self.ends[num - 1]


def endless(seed: int, share: float) -> Iterator[Program]:
    """Mixed programs of one seed after another."""
    return (it for number in count(seed) for it in mixed(number, share).programs(False))


def measure(seed: int, share: float, part: float, config: EngineConfig) -> dict[str, Any]:
    """The first tenant's figures under each lie."""
    own, log, width = mixed(seed, share), ProgramLog(), config.max_running or 64
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
        programs = map(clock.timed, of_tenant("first", Hinted(log).wrap(own.programs(False))))
        first = Tenant(runtime, programs, width)
        first_seed = seed + (200 if name == "others" else 100)
        liar = of_tenant("second", lying(lie, endless(first_seed, share)))
        second = Tenant(runtime, liar, width)
        while first.num_ended < len(own.bodies):
            runtime.tick()
            first.go_on()
            second.go_on()
        texts = sorted(
            it.tokens.tobytes()
            for it in runtime.sequences
            if it.job.call.namespace == "first" and not it.job.is_prefill_only
        )
        assert answers in (None, texts), "an answer is another one"
        answers = texts
        found[name] = {
            "programs/s": round(clock.rate(width), 4),
            "mean": round(mean(clock.latencies), 3),
            "liar's programs": second.num_ended,
        }
    return found


def relative(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Each lie's figures relative to "honest": their mean over all runs, and each run's."""
    found: dict[str, Any] = {}
    for name in LIES:
        for figure in ("programs/s", "mean"):
            each = [run[name][figure] / run["honest"][figure] for run in runs]
            found.setdefault(name, {})[figure] = {
                "of honest": round(mean(each), 3),
                "runs": [round(it, 3) for it in each],
            }
    return found


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=6, help="runs, each with other programs")
    options.add_argument("--share", type=float, default=0.3, help="of the programs")
    options.add_argument("--running", type=int, default=16, help="sequences at a time")
    options.add_argument("--part", type=float, default=0.1, help="of the span that the pool holds")
    args = options.parse_args()
    runs = []
    for seed in range(args.seed, args.seed + args.seeds):
        config = EngineConfig(seed=seed, max_running=args.running)
        runs.append(measure(seed, args.share, args.part, config))
    figures = {"relative": relative(runs), "runs": runs}
    names = "seed", "seeds", "share", "running", "part"
    report("liars", figures, args.out, **{name: getattr(args, name) for name in names})


if __name__ == "__main__":
    main()
