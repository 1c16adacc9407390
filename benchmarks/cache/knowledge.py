"""What knowing the future is worth in a crowded pool, and how much of it is known.

The paper's workloads in pools of a part of what they span: evicting what was used least recently
("lru"), by what was found again ("no hints"), and with exact hints. Each run stands beside the
offline optimum for the same sequences, started in the same order in the same pool (`of_oracle`:
what eviction leaves), and beside the optimum of all orders in an unlimited pool (`of_optimum`: what
eviction, order and the memory of running sequences leave together). Virtual time, no model; all
answers are compared. Prints one JSON row.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Any

from forkroot.benchmarks.cache.exact import Hinted, ProgramLog, Wrapper
from forkroot.benchmarks.cache.virtual import VOCABULARY, VirtualRuntime, optimum
from forkroot.benchmarks.common.programs import Driver, Maker, Workload
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.workloads import SHAPES
from forkroot.core.api.config import EngineConfig

UNLIMITED = 3_000_000


def run(
    workload: Workload, config: EngineConfig, num_slots: int, wrap: Wrapper, knows: bool
) -> tuple[VirtualRuntime, dict[str, Any]]:
    """Run a workload to its end; the runtime, and how it went."""
    is_recorded = num_slots < UNLIMITED
    runtime = VirtualRuntime(config, num_slots, knows, is_recorded)
    Driver(runtime.submit, runtime.tick).run(wrap(workload.programs(False)), workload.width)
    return runtime, runtime.finish()


def measure(
    shape: Callable[[Maker], Workload], share: float, part: float, config: EngineConfig
) -> dict[str, Any]:
    """One workload under each kind of knowledge."""
    workload = shape(Maker(range(256, VOCABULARY), share, config.seed))
    log = ProgramLog()
    runtime, figures = run(workload, config, UNLIMITED, log.watch, knows=False)
    prefilled, span = optimum(runtime.sequences)
    longest = max(sequence.num_ids for sequence in runtime.sequences)
    num_slots, prompts = max(round(span * part), longest), figures["prompt_tokens"]
    row: dict[str, Any] = {"workload": workload.name, "slots": num_slots}
    kinds: dict[str, tuple[Wrapper, bool]] = {
        "lru": (lambda programs: programs, False),
        "no hints": (lambda programs: programs, True),
        "exact hints": (Hinted(log, workload.name).wrap, True),
    }
    expected = _answers(runtime)
    for name, (wrap, knows) in kinds.items():
        runtime, figures = run(workload, config, num_slots, wrap, knows)
        assert _answers(runtime) == expected, "an answer is another one"
        hits = prompts - figures["prefilled"]
        row[name] = {
            "of_oracle": round(hits / (prompts - runtime.oracle()), 4),
            "of_optimum": round(hits / (prompts - prefilled), 4),
            "ticks": figures["ticks"],
            "retracted": figures["retracted"],
        }
    return row


def _answers(runtime: VirtualRuntime) -> list[bytes]:
    """What all sequences generated, in no order that depends on time."""
    return sorted(it.tokens.tobytes() for it in runtime.sequences)


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--share", type=float, default=1.0, help="of the paper's programs")
    options.add_argument("--part", type=float, default=0.1, help="of the span that the pool holds")
    options.add_argument("--only", default="", help="workloads whose name has this in it")
    args = options.parse_args()
    config = EngineConfig(seed=args.seed)
    shapes = [shape for shape in SHAPES if args.only in shape.__name__]
    found = [measure(shape, args.share, args.part, config) for shape in shapes]
    means = {
        name: {
            of: round(mean(row[name][of] for row in found), 4) for of in ("of_oracle", "of_optimum")
        }
        for name in ("lru", "no hints", "exact hints")
    }
    figures = {"means": means, "workloads": found}
    report("knowledge", figures, args.out, seed=args.seed, share=args.share, part=args.part)


if __name__ == "__main__":
    main()
