"""The standalone server against its bars, each stage on a real `forkroot serve` of its own.

overhead: short streamed chats, with the server between and without. streams: many at once, a third
dropped and a tenth malformed. kill: the engine's process killed under load. isolation: what one key
learns of another's cache. fuzz (only if chosen): made-up requests to every route. Prints one JSON
row for all stages chosen.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.server import (
    server_fuzz,
    server_isolation,
    server_kill,
    server_overhead,
    server_streams,
)

STAGES = ("overhead", "streams", "kill", "isolation")


def measure(stage: str, options: Any) -> Any:
    """The figures of one stage."""
    match stage:
        case "overhead":
            return asyncio.run(server_overhead.measure(options.rounds, options.each))
        case "streams":
            return asyncio.run(server_streams.measure(options.streams, options.seed))
        case "kill":
            return asyncio.run(server_kill.measure(options.open))
        case "fuzz":
            return server_fuzz.measure(options.schemathesis, options.seconds, options.seed)
    return asyncio.run(server_isolation.measure(options.probes, options.seed))


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--stage", action="append", choices=(*STAGES, "fuzz"), help="else all")
    options.add_argument("--schemathesis", default="st", metavar="COMMAND", help="for fuzz")
    options.add_argument("--seconds", type=int, default=600, help="of fuzz")
    options.add_argument(
        "--rounds", type=int, default=12, help="rounds of the overhead measurement"
    )
    options.add_argument("--each", type=int, default=4, help="chats of each client in a round")
    options.add_argument("--streams", type=int, default=500, help="at once")
    options.add_argument("--open", type=int, default=50, help="streams when the engine is killed")
    options.add_argument("--probes", type=int, default=1000, help="of another key's prefixes")
    chosen = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    figures: dict[str, Any] = {}
    loads = [os.getloadavg()[0]]
    for stage in chosen.stage or STAGES:
        figures[stage] = measure(stage, chosen)
        loads.append(os.getloadavg()[0])
    fields = {name: getattr(chosen, name) for name in ("seed", "rounds", "each", "streams")}
    fields |= {"open": chosen.open, "probes": chosen.probes, "load_average": loads}
    report("server", figures, chosen.out, **fields)


if __name__ == "__main__":
    main()
